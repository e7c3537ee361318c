"""Outages in the log: one line when a store goes and one when it is back, and none about errors."""

from __future__ import annotations

import logging

import pytest

from app.infra.errors import BackendUnavailable, Unavailable, explain
from app.infra.outages import Outage, WithoutOutages

HOST = "connection to server at 10.0.0.7 failed"


def outage(moments: list[float]) -> Outage:
    """One of the database, on a clock that stands where the last of these moments is."""
    return Outage("the database", "jobs wait", lambda: moments[-1])


def test_an_outage_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever meets it meanwhile adds none, and nothing answers that was not away."""
    now = [0.0]
    database = outage(now)
    database.end()
    for _ in range(3):
        database.begin()
    now.append(25.0)
    for _ in range(3):
        database.end()
    away, back = (record.getMessage() for record in caplog.records)
    assert away.startswith("the database is away: jobs wait; `")
    assert away.endswith(" check` says why")
    assert back == "the database is back, after 25 s"


def test_an_answer_from_before_ends_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    """A thread may hold a connection that was tried just before the store went."""
    now = [0.0]
    database = outage(now)
    database.begin()
    now.append(0.5)
    database.end()
    database.begin()
    assert 1 == len(caplog.records)
    now.append(1.5)
    database.end()
    assert 2 == len(caplog.records)


def kept(error: Exception, *args: object) -> bool:
    """Whether the log has a record about an error: by its traceback, or in its arguments."""
    record = logging.LogRecord("app", logging.ERROR, "f", 1, "%s", args, (type(error), error, None))
    return WithoutOutages().filter(record)


def test_errors_of_an_outage_are_left_out() -> None:
    """In a traceback, as the cause of another error, and as the text of a line."""
    away = Unavailable("the database cannot serve this now", reason=HOST, announced=True)
    other = BackendUnavailable("the LSH buckets cannot be used now")
    other.__cause__ = away
    bug = KeyError("bug")
    assert not kept(away)
    assert not kept(other)
    assert not kept(bug, explain(away))
    assert not kept(bug, 7, away)


def test_other_errors_keep_their_traceback() -> None:
    """Bugs, and stores that are full or locked: their outage is announced by no line."""
    locked = Unavailable("the database cannot serve this now", reason="database is locked")
    assert kept(KeyError("bug"))
    assert kept(locked)
    assert kept(KeyError("bug"), explain(locked), "text")
