"""Importing this makes every service and worker of the process know the kinds of the tests."""

from __future__ import annotations

from app import resources
from tests.workers.kinds import Jobs

resources.JobService = Jobs  # type: ignore[misc]
