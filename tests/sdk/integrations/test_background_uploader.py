"""What goes out in the background never holds up or breaks who trains."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from modelkin.errors import ApiError, ConnectionFailed
from modelkin.integrations._background_uploader import MAX_QUEUED_UPLOADS, BackgroundUploader


class Gate:
    """Tasks that stop here until it is opened; notes what was done."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.done: list[str] = []

    def closed(self) -> None:
        self.reached.set()
        assert self.opened.wait(10)
        self.done.append("closed")


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_tasks_are_done_in_order() -> None:
    """All that was submitted is done when close has returned."""
    done: list[int] = []
    uploader = BackgroundUploader(flush_seconds=10)
    for i in range(MAX_QUEUED_UPLOADS):
        uploader.submit(f"m{i}", partial(done.append, i))
    assert uploader.close()
    assert list(range(MAX_QUEUED_UPLOADS)) == done


def test_the_last_of_one_name_wins(gate: Gate) -> None:
    """Of tasks of one name that wait, only the newest is done."""
    uploader = BackgroundUploader(flush_seconds=10)
    uploader.submit("first", gate.closed)
    assert gate.reached.wait(10)
    for step in ("step 1", "step 2", "step 3"):
        uploader.submit("model", partial(gate.done.append, step))
    gate.opened.set()
    assert uploader.close()
    assert ["closed", "step 3"] == gate.done


def test_few_wait(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """More names than may wait push out the oldest, and the log says which."""
    uploader = BackgroundUploader(flush_seconds=10)
    uploader.submit("first", gate.closed)
    assert gate.reached.wait(10)
    names = [f"m{i}" for i in range(MAX_QUEUED_UPLOADS + 2)]
    for name in names:
        uploader.submit(name, partial(gate.done.append, name))
    gate.opened.set()
    assert uploader.close()
    assert ["closed", *names[2:]] == gate.done
    assert [f"dropped to make room for newer uploads: {name}" for name in names[:2]] == messages(
        caplog
    )


def test_what_failed_for_now_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A task that meets no service is done once there is one, and warns once meanwhile."""
    tries: list[int] = []
    succeeded = threading.Event()

    def third_time_lucky() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionFailed("no service at http://kin.test")
        succeeded.set()

    uploader = BackgroundUploader(flush_seconds=10, retry_interval_s=0.01)
    uploader.submit("org/a", third_time_lucky)
    assert succeeded.wait(10)
    assert uploader.close()
    assert ["org/a is not stored yet: no service at http://kin.test"] == messages(caplog)


@pytest.mark.parametrize("status", [429, 503])
def test_overload_passes(status: int) -> None:
    """What an overloaded service refuses is kept for the end."""
    answers: list[Exception | None] = [ApiError(status, "overloaded", "later"), None]
    done: list[int] = []

    def overloaded_once() -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        done.append(1)

    uploader = BackgroundUploader(flush_seconds=10, retry_interval_s=0.01)
    uploader.submit("org/a", overloaded_once)
    deadline = time.monotonic() + 10
    while not done and time.monotonic() < deadline:
        time.sleep(0.005)
    assert uploader.close()
    assert [1] == done


def test_what_is_refused_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal is logged with the service's reason, and later uploads continue."""
    tries: list[str] = []

    def refused() -> None:
        tries.append("refused")
        raise ApiError(409, "space_mismatch", "the space has another layout")

    uploader = BackgroundUploader(flush_seconds=10)
    uploader.submit("org/a", refused)
    uploader.submit("org/b", lambda: tries.append("b"))
    assert uploader.close()
    assert ["refused", "b"] == tries
    assert ["org/a is not stored: 409 space_mismatch: the space has another layout"] == messages(
        caplog
    )


def test_a_fault_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Any exception is a line of the log, with where it came from."""
    uploader = BackgroundUploader(flush_seconds=10)
    nothing: dict[str, int] = {}
    uploader.submit("org/a", lambda: nothing["nothing"])
    assert uploader.close()
    (record,) = caplog.records
    assert record.exc_info is not None
    assert KeyError is record.exc_info[0]


def test_the_end_waits_no_longer_than_its_patience(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """Close gives up what is under way and what waits, and names both."""
    uploader = BackgroundUploader(flush_seconds=0.05)
    uploader.submit("org/a", gate.closed)
    assert gate.reached.wait(10)
    uploader.submit("org/b", lambda: gate.done.append("b"))
    began = time.monotonic()
    assert not uploader.close()
    assert 5 > time.monotonic() - began
    assert ["dropped, the service did not answer in time: org/a, org/b"] == messages(caplog)
    gate.opened.set()


def test_the_end_tries_once_more(caplog: pytest.LogCaptureFixture) -> None:
    """What failed before is tried at the end, not only when its time has come."""
    up, failed = threading.Event(), threading.Event()
    done: list[int] = []

    def when_up() -> None:
        if not up.is_set():
            failed.set()
            raise ConnectionFailed("no service there")
        done.append(1)

    uploader = BackgroundUploader(flush_seconds=10, retry_interval_s=3600)
    uploader.submit("org/a", when_up)
    assert failed.wait(10)
    up.set()
    assert uploader.close()
    assert [1] == done
