"""`python -m laws` is `tapestry`."""

from __future__ import annotations

import sys

from laws.cli import main

if __name__ == "__main__":
    sys.exit(main())
