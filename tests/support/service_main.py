"""``python -m tests.support.service_main``: the service with the job handlers of the tests."""

from __future__ import annotations

import sys

import tests.support.registered_handlers  # noqa: F401  # in spawned processes, too
from app.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
