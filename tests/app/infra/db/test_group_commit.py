"""Group commit: concurrent writes share a transaction, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from app.infra.db.database import Database, Writer
from app.infra.db.group_commit import GroupCommit
from app.infra.errors import Unavailable
from modelkin.errors import InvalidParameter
from tests.support.app.harness import open_app
from tests.support.backends import SQLITE, Backend
from tests.support.hub_payloads import hf_payload


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """One with a table of numbers."""
    opened = Database(SQLITE.url(tmp_path), timeout=5)
    with opened.writing() as session:
        session.execute(text("CREATE TABLE numbers (n INTEGER PRIMARY KEY)"))
    yield opened
    opened.close()


def insert(session: Writer, number: int) -> int:
    """Stores a number; of 13 nothing, although it comes late."""
    session.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": number})
    if number == 13:
        raise ValueError("13")
    return -number


def each(act: Callable[[Writer, int], int]) -> Callable[[Writer, Sequence[int]], list[int]]:
    """Carry out writes one after the other, in one transaction."""
    return lambda session, numbers: [act(session, number) for number in numbers]


def numbers(database: Database) -> list[int]:
    with database.reading() as session:
        return list(session.execute(text("SELECT n FROM numbers ORDER BY n")).scalars())


def test_everybody_gets_an_answer_of_their_own(database: Database) -> None:
    """Many at once are all written, and each is answered for what it asked; one that fails alone
    gets its error, and spoils nothing for the writes that shared its transaction.
    """
    group_commit = GroupCommit(database, each(insert), max_batch_size=7)
    lead = threading.Event()

    def ask(number: int) -> int | str:
        try:
            lead.wait(5)
            return group_commit.do(number)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(30) as pool:
        asked = [pool.submit(ask, number) for number in range(30)]
        lead.set()
        answers = [future.result() for future in asked]
    assert ["13" if n == 13 else -n for n in range(30)] == answers
    assert [n for n in range(30) if n != 13] == numbers(database)


def test_those_who_wait_are_written_at_once(database: Database) -> None:
    """While a transaction is under way others gather, and share the next one, in order."""
    seen: list[tuple[Writer, int]] = []
    entered, go = threading.Event(), threading.Event()

    def act(session: Writer, number: int) -> int:
        entered.set()
        go.wait(5)
        seen.append((session, number))
        return insert(session, number)

    group_commit = GroupCommit(database, each(act))
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(group_commit.do, 0)
        entered.wait(5)
        rest = [pool.submit(group_commit.do, number) for number in (1, 2, 3, 4)]
        while group_commit.waiting < 4:
            pass
        go.set()
        assert [0, -1, -2, -3, -4] == [future.result() for future in (first, *rest)]
    sessions = [id(session) for session, _ in seen]
    assert (2, 1) == (len(set(sessions)), len(set(sessions[1:])))
    assert 0 == seen[0][1]
    assert {1, 2, 3, 4} == {number for _, number in seen[1:]}


def test_a_database_that_is_away_is_told_to_all(tmp_path: Path) -> None:
    """Every thread gets an error in time, and none gets a success."""
    database = Database(SQLITE.url(tmp_path), timeout=0.1)
    group_commit = GroupCommit(database, each(insert))
    with ThreadPoolExecutor(3) as pool:
        failures = [pool.submit(group_commit.do, number).exception() for number in range(3)]
    assert [Unavailable] * 3 == [type(failure) for failure in failures]
    database.close()


@pytest.mark.slow
def test_a_group_that_fails_on_the_lock_waits_for_it_once(database: Database) -> None:
    """All that share a transaction have its error; none of them waits for the lock once more."""
    patient = Database(str(database.url), timeout=0.5)
    group_commit = GroupCommit(patient, each(insert))
    with (
        database.writing() as other,
        ThreadPoolExecutor(13) as pool,
    ):
        other.execute(text("INSERT INTO numbers VALUES (100)"))
        began = time.monotonic()
        asked = [pool.submit(group_commit.do, number) for number in range(12)]
        failures = [future.exception() for future in asked]
        took = time.monotonic() - began
    assert [Unavailable] * 12 == [type(failure) for failure in failures]
    assert took < 3, "once for the first, and once for those who came meanwhile"
    assert [100] == numbers(database)
    patient.close()


def test_a_write_that_is_refused_for_itself_spoils_no_other(database: Database) -> None:
    """An error that ``act`` raises of one write is of that one, even one that says to try again."""
    entered, go = threading.Event(), threading.Event()

    def act(session: Writer, number: int) -> int:
        entered.set()
        go.wait(5)
        if number == 3:
            raise Unavailable("3 is being changed just now")
        return insert(session, number)

    group_commit = GroupCommit(database, each(act))
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(group_commit.do, 0)
        entered.wait(5)
        rest = [pool.submit(group_commit.do, number) for number in (1, 2, 3, 4)]
        while group_commit.waiting < 4:
            pass
        go.set()
        failures = [future.exception() for future in (first, *rest)]
    assert [None, None, None, Unavailable, None] == [
        None if failure is None else type(failure) for failure in failures
    ]
    assert [0, 1, 2, 4] == numbers(database)


def test_a_group_with_a_refused_write_waits_for_the_lock_once(database: Database) -> None:
    """Each is tried alone then, until the database cannot serve one: nor can it those after it."""
    patient = Database(str(database.url), timeout=0.4)
    entered, go = threading.Event(), threading.Event()
    holding, over = threading.Event(), threading.Event()

    def hold_lock() -> None:
        with database.writing() as other:
            other.execute(text("INSERT INTO numbers VALUES (100)"))
            holding.set()
            over.wait(30)

    def act(session: Writer, number: int) -> int:
        entered.set()
        go.wait(5)
        if number == 1 and not holding.is_set():
            session.rollback()
            locker.start()
            holding.wait(5)
            raise InvalidParameter("1 is refused")
        return insert(session, number)

    locker = threading.Thread(target=hold_lock)
    group_commit = GroupCommit(patient, each(act))
    with ThreadPoolExecutor(13) as pool:
        first = pool.submit(group_commit.do, 0)
        entered.wait(5)
        asked = [pool.submit(group_commit.do, number) for number in range(1, 13)]
        while group_commit.waiting < 12:
            pass
        began = time.monotonic()
        go.set()
        failures = [future.exception() for future in asked]
        took = time.monotonic() - began
        assert first.exception() is None
    over.set()
    locker.join()
    assert [Unavailable] * 12 == [type(failure) for failure in failures]
    assert took < 2, "one of them has waited for the lock"
    assert [0, 100] == numbers(database)
    patient.close()


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
def test_a_thread_that_ends_amid_a_batch_takes_no_other_along(
    database: Database, ending: type[BaseException]
) -> None:
    """What ends the thread that writes for all is its own; the others are asked to try again."""
    entered, go = threading.Event(), threading.Event()
    abandoned: list[int] = []

    def act(session: Writer, numbers: Sequence[int]) -> list[int]:
        entered.set()
        go.wait(30)
        answers = [insert(session, number) for number in numbers]
        if 1 in numbers:
            raise ending
        return answers

    group_commit = GroupCommit(database, act, abandon=abandoned.append)
    asked = [Future[int]() for _ in range(4)]

    def ask(number: int) -> None:
        try:
            asked[number].set_result(group_commit.do(number))
        except BaseException as error:
            asked[number].set_exception(error)

    for number in range(4):
        threading.Thread(target=ask, args=[number], daemon=True).start()
        if number == 0:
            entered.wait(30)
        while group_commit.waiting < number:
            pass
    go.set()
    failures = [future.exception(timeout=30) for future in asked]
    ends = [None if failure is None else type(failure) for failure in failures]
    assert None is ends[0]
    assert [ending, Unavailable, Unavailable] == sorted(ends[1:], key=lambda end: end is not ending)
    assert ([0], [1, 2, 3]) == (numbers(database), sorted(abandoned))
    assert -4 == group_commit.do(4), "the queue serves what comes next"


def test_a_write_is_stored_or_abandoned_whichever_thread_ends(database: Database) -> None:
    """A thread may end over a batch of others while its own write waits: that is taken back."""
    entered, go = threading.Event(), threading.Event()
    abandoned: list[int] = []

    def act(session: Writer, number: int) -> int:
        entered.set()
        go.wait(30)
        if number == 1:
            raise SystemExit
        return insert(session, number)

    group_commit = GroupCommit(database, each(act), abandon=abandoned.append, max_batch_size=1)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(group_commit.do, 0)]
        entered.wait(30)
        asked += [pool.submit(group_commit.do, number) for number in (1, 2)]
        while group_commit.waiting < 2:
            pass
        go.set()
        failures = [future.exception(timeout=30) for future in asked]
    assert 1 == sum(isinstance(failure, SystemExit) for failure in failures)
    assert (0, [0, 1, 2]) == (group_commit.waiting, sorted(numbers(database) + abandoned))


@pytest.mark.slow
def test_two_processes_take_a_delivery_once(backend: Backend, tmp_path: Path) -> None:
    """Services that share a database, and nothing else, agree on what came before."""
    with open_app(tmp_path, backend) as one, open_app(tmp_path, backend) as two:
        source = one.hubs.create()
        payload = hf_payload("org/a")
        with ThreadPoolExecutor(8) as pool:
            codes = list(
                pool.map(
                    lambda turn: (
                        (one, two)[turn % 2]
                        .hubs.send(source, payload, f"msg_{turn // 4}")
                        .status_code
                    ),
                    range(24),
                )
            )
        assert ([200] * 18 + [202] * 6, 1) == (sorted(codes), len(two.hubs.jobs(source)))
