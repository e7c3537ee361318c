"""Computing elsewhere: the same answer, while the process that waits goes on."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

import numpy as np
import pytest

from app.infra.errors import Unavailable
from app.infra.subprocesses import run_in_subprocess
from app.kinship.clustering.algorithms import leiden
from modelkin.errors import InvalidParameter, JobCancelled, MissingExtra


def hog(seconds: float) -> int:
    """Holds the interpreter's lock for so long, and answers which process it was."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # with the lock, unlike CDLL
    return os.getpid()


def fail(how: str) -> None:
    """Ends in some way that is no answer."""
    if how == "mistake":
        raise InvalidParameter("there are no such leaves", field="leaves")
    if how == "extra":
        raise MissingExtra("igraph", "clustering", of="modelkin-service")
    if how == "bug":
        raise ZeroDivisionError("by nothing")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_what_holds_the_lock_holds_up_nobody_here() -> None:
    """While it computes for a second this process's threads go on, and ``meanwhile`` is called."""
    calls: list[float] = []
    ticks: list[float] = []
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.02):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    pid = run_in_subprocess(hog, 1.0, meanwhile=lambda: calls.append(time.monotonic()))
    over.set()
    thread.join()
    assert os.getpid() != pid
    assert len(calls) >= 3
    assert max(np.diff(ticks)) < 0.8


def test_arrays_go_and_come_back() -> None:
    """What is computed is what would have been computed here."""
    matrix = np.random.default_rng(3).random((300, 300))
    expected = np.sort(matrix, axis=0)
    assert np.array_equal(expected, run_in_subprocess(np.sort, matrix, 0, meanwhile=lambda: None))


@pytest.mark.slow
def test_communities_are_the_same_wherever_they_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that is too long for this process is given the labels it would have got here."""
    random = np.random.default_rng(4)
    groups = np.repeat(np.arange(5), 40)
    pairs = np.unique(np.sort(random.integers(0, 200, (4000, 2)), axis=1), axis=0)
    weights = np.where(groups[pairs[:, 0]] == groups[pairs[:, 1]], 1.0, 0.02)
    found = []
    for long in (10**9, 0):
        monkeypatch.setattr(leiden, "_MIN_SUBPROCESS_EDGES", long)
        found += leiden.communities(200, pairs, weights, (1.0,), 7, lambda: None)
    near, apart = found
    assert np.array_equal(near, apart)
    assert 5 == len(set(near.tolist()))


def test_who_does_not_want_it_any_more_ends_it() -> None:
    """What ``meanwhile`` raises is raised at once, and the other process is gone."""
    began = time.monotonic()

    def cancelled() -> None:
        raise JobCancelled("enough")

    with pytest.raises(JobCancelled, match="enough"):
        run_in_subprocess(hog, 60.0, meanwhile=cancelled)
    assert time.monotonic() - began < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("mistake", InvalidParameter, "there are no such leaves"),
        (
            "extra",
            MissingExtra,
            r"needs igraph, which is not installed: pip install 'modelkin-service\[clustering",
        ),
        ("bug", RuntimeError, "ZeroDivisionError: by nothing"),
        ("death", Unavailable, "ended early, exit code -9"),
    ],
)
def test_what_goes_wrong_there_is_told_here(how: str, error: type[Exception], words: str) -> None:
    """A refusal is the same, a bug is named, and a killed process may be tried again."""
    with pytest.raises(error, match=words) as caught:
        run_in_subprocess(fail, how, meanwhile=lambda: None)
    assert getattr(caught.value, "field", "leaves") == "leaves"
