"""The command `anaphora`: picks the subcommand, and turns our errors into one line and an exit code.

Exit codes: 0 done, 1 error, 2 findings.
"""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from io import TextIOWrapper
from typing import NoReturn

from anaphora.cli import bench, cost, explain, lint, pull, serve, simulate
from anaphora.cli.one_line import one_line
from anaphora.errors import AnaphoraError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
COMMANDS = (serve, bench, explain, lint, simulate, cost, pull)


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line with exit code 1; 2 means findings here."""

    def error(self, message: str) -> NoReturn:
        """Print the message and where to find help, then exit."""
        print(f"error: {one_line(message)}\nsee `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(1)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="anaphora",
        description="An LLM inference server that never prefills the same prefix twice.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"anaphora {version('anaphora')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.NAME,
            help=command.SUMMARY,
            description=command.SUMMARY,
            epilog=f"example:\n  {command.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


def _escape_what_cannot_be_written() -> None:
    """Have signs that the terminal's encoding lacks written as escapes, rather than lose a result by an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _escape_what_cannot_be_written()
    try:
        options = build_parser().parse_args(argv)
        code: int = options.run(options)
        if sys.stdout is not None:  # whoever started us may have closed it
            sys.stdout.flush()
    except AnaphoraError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read, such as `head`, has seen enough
        _give_up_output()
        return 1
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        _give_up_output()
        print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 1
    return code


def _give_up_output() -> None:
    """Have what is still to be written go nowhere, so that it does not fail again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
