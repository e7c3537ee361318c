"""Importing this makes every service and worker of the process know the kinds of the tests."""

from __future__ import annotations

from app import bootstrap
from app.container import Container
from app.jobs.service import JobService
from tests.support.job_handlers import register

_register_jobs = bootstrap.register_jobs


def register_jobs(services: Container) -> None:
    """Register the service's kinds, and those of the tests."""
    _register_jobs(services)
    register(services[JobService])


setattr(bootstrap, "register_jobs", register_jobs)  # noqa: B010  # where open_services finds it
