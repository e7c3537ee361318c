"""Heartbeats of workers: a worker that sends none for long is unregistered."""

from __future__ import annotations

import pytest

from app.jobs import queue
from tests.support.jobs.claims import known
from tests.support.jobs.deployment import Deployment
from workers.heartbeat import CHECKS_PER_LEASE, Heartbeat


@pytest.fixture
def deployment(idle_deployment: Deployment) -> Deployment:
    """A database whose workers are these tests."""
    return idle_deployment


def listening(deployment: Deployment) -> Heartbeat:
    """A worker whose checks of others the test triggers."""
    heartbeat = Heartbeat(deployment.database, "me", lease=60, alone=False, on_silence=lambda: None)
    known(deployment, f"{id(heartbeat)}")
    return heartbeat


def test_who_says_nothing_for_long_is_silent(deployment: Deployment) -> None:
    """After several checks without a heartbeat a worker is unregistered; others stay."""
    heartbeat = listening(deployment)
    known(deployment, "mute")
    known(deployment, "loud")
    for look in range(CHECKS_PER_LEASE + 1):
        assert {"mute", "loud"} <= deployment.registered_workers(), look
        with deployment.database.writing() as session:
            queue.heartbeat(session, "loud")
        heartbeat.check_others()
    assert {"mute", "loud"} & deployment.registered_workers() == {"loud"}
    with deployment.database.writing() as session:
        assert not queue.heartbeat(session, "mute")
