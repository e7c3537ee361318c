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


def test_a_use_from_before_the_end_begins_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    """A job may find out minutes later that the outage has cut its connection."""
    now = [0.0]
    database = outage(now)
    database.begin(since=0.0)
    now.append(20.0)
    database.end()
    now.append(60.0)
    database.begin(since=19.0)
    assert 2 == len(caplog.records)
    database.begin(since=59.0)
    assert 3 == len(caplog.records)


def logged(error: Exception | None, *args: object) -> tuple[bool, bool]:
    """Whether the log has a record with a traceback and arguments, and whether its traceback."""
    raised = None if error is None else (type(error), error, None)
    record = logging.LogRecord("app", logging.ERROR, "f", 1, "%s", args, raised)
    return WithoutOutages().filter(record), record.exc_info is not None


AWAY = Unavailable("the database cannot serve this now", reason=HOST, announced=True)
BUG = KeyError("bug")


def test_errors_of_an_outage_are_left_out() -> None:
    """As the text of a line, and as the error itself."""
    assert (False, False) == logged(None, explain(AWAY)) == logged(None, 7, AWAY)
    assert (True, False) == logged(None, "text")


def test_tracebacks_of_an_outage_are_left_out() -> None:
    """Also where it caused another error; the line stays, since it may say what is given up."""
    other = BackendUnavailable("the LSH buckets cannot be used now")
    other.__cause__ = AWAY
    assert (True, False) == logged(AWAY, "an event is not sent") == logged(other)


def test_other_errors_keep_their_traceback() -> None:
    """Bugs, also beside an outage, and stores that are full or locked, which no line announces."""
    locked = Unavailable("the database cannot serve this now", reason="database is locked")
    assert (True, True) == logged(BUG) == logged(locked)
    assert (True, True) == logged(BUG, explain(locked)) == logged(BUG, explain(AWAY))
