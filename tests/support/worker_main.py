"""``python -m tests.support.worker_main``: the worker, with the kinds of the tests."""

from __future__ import annotations

import sys

import tests.support.registered_handlers  # noqa: F401  # by itself
from workers.__main__ import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
