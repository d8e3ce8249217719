"""`python -m anaphora` is the same as the command `anaphora`."""

import sys

from anaphora.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
