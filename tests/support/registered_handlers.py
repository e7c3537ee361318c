"""Importing this makes every service and worker of the process know the kinds of the tests."""

from __future__ import annotations

from app import bootstrap
from tests.support.job_handlers import Jobs

setattr(bootstrap, "JobService", Jobs)  # noqa: B010  # where open_resources looks it up
