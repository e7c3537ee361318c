"""``python -m modelkin`` is the command ``modelkin``."""

from __future__ import annotations

import sys

from modelkin.cli import main

if __name__ == "__main__":
    sys.exit(main())
