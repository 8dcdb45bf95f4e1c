"""``python -m tokenmill``: the command line."""

import sys

from tokenmill.cli import main

if __name__ == "__main__":
    sys.exit(main())
