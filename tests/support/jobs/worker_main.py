"""``python -m tests.support.jobs.worker_main``: the worker with the job handlers of the tests."""

from __future__ import annotations

import sys

from tests.support.jobs.handlers import register_all
from workers.__main__ import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], register_all))
