"""``python -m tests.support.jobs.service_main``: the service with the job handlers of the tests."""

from __future__ import annotations

import sys

from app.__main__ import main
from tests.support.jobs.handlers import register_all

if __name__ == "__main__":
    sys.exit(main(register_all))
