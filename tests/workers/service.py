"""``python -m tests.workers.service``: the service, with the kinds of the tests, in each of its
processes.
"""

from __future__ import annotations

import sys

import tests.workers.known  # noqa: F401  # in spawned processes, too
from app.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
