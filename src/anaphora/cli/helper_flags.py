"""The flags of `anaphora serve` that let the server change chats."""

import argparse

from anaphora.config import HelperConfig


def add_helper_flags(group: argparse._ArgumentGroup) -> None:
    """Declare the flags; all are off unless given."""
    group.add_argument(
        "--strip-client-stamp",
        action="store_true",
        help="leave out header lines that clients put before the system text",
    )
    group.add_argument("--sort-tools", action="store_true", help="put tools in the order of their names")
    group.add_argument(
        "--stable-history",
        action="store_true",
        help="keep earlier turns as they were rendered, even if the template would write them anew",
    )
    group.add_argument(
        "--splice-generated-tokens",
        action="store_true",
        help="keep the tokens of a reply that comes back as history",
    )


def helper_config(options: argparse.Namespace) -> HelperConfig:
    """Return from the flags what may be changed in chats."""
    return HelperConfig(
        strip_client_stamp=options.strip_client_stamp,
        sort_tools=options.sort_tools,
        stable_history=options.stable_history,
        splice_generated_tokens=options.splice_generated_tokens,
    )
