"""Errors of commands: whatever they quote, such as the name of a file, each stays one harmless line."""


def one_line(message: str) -> str:
    """Return a message with what would break its line, or command the terminal, written as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)
