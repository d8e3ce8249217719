"""The command `anaphora`, and `python -m anaphora`, which is the same."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C while Python still reads it in is one line as well."""
    try:
        from anaphora.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
