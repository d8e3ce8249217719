"""What OpenVINO's C++ has to say when it fails, in one line."""


def reason_of(error: Exception) -> str:
    """Return what is wrong, without the places in OpenVINO's source that it went through."""
    return last_line(str(error)) or type(error).__name__


def last_line(message: str) -> str:
    """Return the last line of a message that is not empty; the lines above it say where, not what."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1].removesuffix(".") if lines else ""
