"""Shared commits: puts that come at once share a transaction, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from app.infra.db.database import Writer
from app.infra.errors import PreconditionFailed, SpaceNotFound, Unavailable
from app.infra.http.requests.preconditions import match
from app.models.catalog.puts import Put, Stored
from app.models.catalog.shared_commits import SharedCommits
from app.models.catalog.writer import ModelWriter
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from modelkin import Support
from modelkin.errors import ModelkinError
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.blob_files import blob_keys, named_keys

M = 10_000


def support(seed: int) -> Support:
    """One of many distinct supports."""
    return Support.from_indices(range(seed, M, 97), M)


class Gathered:
    """A writer whose first transaction waits until others wait for it, and may then fail.

    Args:
        harness: an open service.
    """

    def __init__(self, harness: AppHarness) -> None:
        self.harness = harness
        self.writer = harness.services[ModelWriter]
        self.commits = harness.services[SharedCommits]
        self.sizes: list[int] = []
        """The puts of each call of the writer, in order."""
        self.fail = False
        """Whether a shared transaction fails once, for no reason of its puts."""
        self._entered, self._go = threading.Event(), threading.Event()
        self.store = self.writer.put_each

    def put_each(
        self, session: Writer, space: SpaceRecord, puts: Sequence[Put]
    ) -> list[Stored | ModelkinError]:
        """Put, later."""
        self._entered.set()
        assert self._go.wait(20)
        self.sizes.append(len(puts))
        results = self.store(session, space, puts)
        if self.fail and len(puts) > 1:
            raise RuntimeError("the transaction fails")
        return results

    def put(self, space: SpaceRecord, model: str, made: Support, expected: str | None) -> Stored:
        """Store a support as an endpoint does, ``If-Match`` what is expected."""
        with self.harness.database.reading() as session:
            prepared = self.writer.prepare(session, space, model, made)
        precondition = None if expected is None else match(expected)
        return self.commits.put(space, Put(model, prepared, precondition=precondition))

    def all(
        self, space: SpaceRecord, puts: Sequence[tuple[str, Support, str | None]]
    ) -> list[Stored | BaseException]:
        """The results of puts; all but the first share a transaction."""
        with ThreadPoolExecutor(len(puts)) as pool:
            asked: list[Future[Stored]] = [pool.submit(self.put, space, *puts[0])]
            assert self._entered.wait(20)
            asked += [pool.submit(self.put, space, *put) for put in puts[1:]]
            queue: Any = self.commits.queue(space)
            while queue.waiting < len(puts) - 1:
                pass
            self._go.set()
            failed = [future.exception() for future in asked]
        return [no if no is not None else f.result() for no, f in zip(failed, asked, strict=True)]


@pytest.fixture
def harness(backend: Backend, tmp_path: Path) -> Iterator[AppHarness]:
    """A service in this process."""
    with open_app(tmp_path, backend) as opened:
        opened.create_space("s", M)
        yield opened


@pytest.fixture
def gathered(harness: AppHarness, monkeypatch: pytest.MonkeyPatch) -> Gathered:
    """Its puts."""
    made = Gathered(harness)
    monkeypatch.setattr(made.writer, "put_each", made.put_each)
    return made


@pytest.fixture
def space(harness: AppHarness) -> SpaceRecord:
    """Its one space."""
    with harness.database.reading() as session:
        return harness.services[SpaceService].get(session, harness.tenant, "s")


def stored(harness: AppHarness) -> dict[str, Support]:
    """The models of the space, read from their files."""
    models = harness.http.get("/v1/spaces/s/models").json()["items"]
    return {
        model["model"]: Support.from_bytes(
            harness.http.get(f"/v1/spaces/s/supports/{model['model']}").content
        )
        for model in models
    }


def files_are_named(harness: AppHarness, tmp_path: Path) -> bool:
    """Whether each file has a row that names it, and each such row its file."""
    return named_keys(harness.database) == blob_keys(tmp_path / "blobs")


PUTS: list[tuple[str, Support, str | None]] = [(f"m{i}", support(i), None) for i in range(5)]


@pytest.mark.parametrize("fails", [False, True])
def test_puts_at_once_share_a_transaction(
    gathered: Gathered, space: SpaceRecord, tmp_path: Path, fails: bool
) -> None:
    """One that fails for all is tried for each alone: each is stored, with its file."""
    gathered.fail = fails
    results = gathered.all(space, PUTS)
    assert ["created"] * 5 == [getattr(result, "status", result) for result in results]
    assert [1, 4, *[1] * (4 if fails else 0)] == gathered.sizes
    assert {name: made for name, made, _ in PUTS} == stored(gathered.harness)
    assert files_are_named(gathered.harness, tmp_path)


@pytest.mark.parametrize("fails", [False, True])
def test_a_refusal_is_of_one_put_alone(
    gathered: Gathered, space: SpaceRecord, tmp_path: Path, fails: bool
) -> None:
    """It leaves no file; a second put of a name sees the first one's result."""
    gathered.fail = fails
    puts = [*PUTS, ("m3", support(50), None), ("new", support(51), '"1-1"')]
    results = gathered.all(space, puts)
    kinds = [getattr(result, "status", type(result)) for result in results]
    assert sorted(map(str, ["created"] * 5 + ["replaced"] + [PreconditionFailed])) == sorted(
        map(str, kinds)
    )
    assert isinstance(results[-1], PreconditionFailed)
    found = stored(gathered.harness)
    assert {f"m{i}" for i in range(5)} == set(found)
    assert found["m3"] in (support(3), support(50))
    assert files_are_named(gathered.harness, tmp_path)


def test_what_fails_after_the_commit_loses_no_file(
    gathered: Gathered, space: SpaceRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Puts that are stored are not tried again: each has the error, and keeps its file."""
    put_each = gathered.store

    def put_and_fail(session: Writer, *rest: Any) -> list[Stored | ModelkinError]:
        results = put_each(session, *rest)
        if len(results) > 1:
            session.after_commit(fail)
        return results

    def fail() -> None:
        raise RuntimeError("after the commit")

    monkeypatch.setattr(gathered, "store", put_and_fail)
    results = gathered.all(space, PUTS)
    assert ["created", *[RuntimeError] * 4] == [getattr(r, "status", type(r)) for r in results]
    assert [1, 4] == gathered.sizes
    assert {name: made for name, made, _ in PUTS} == stored(gathered.harness)
    assert files_are_named(gathered.harness, tmp_path)


def test_a_space_that_is_deleted_meanwhile_refuses_each(
    gathered: Gathered, space: SpaceRecord, tmp_path: Path
) -> None:
    """None is stored, and no file is left."""
    assert 204 == gathered.harness.http.delete("/v1/spaces/s").status_code
    results = gathered.all(space, PUTS)
    assert {SpaceNotFound} == {type(result) for result in results}
    assert files_are_named(gathered.harness, tmp_path)


def test_a_database_that_fails_leaves_no_file(
    gathered: Gathered, space: SpaceRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every put has its error, a 503, and what it wrote is deleted."""

    def away(*_: object) -> None:
        raise OperationalError("select", {}, Exception("the server is away"))

    monkeypatch.setattr(gathered, "store", away)
    results = gathered.all(space, PUTS)
    assert {Unavailable} == {type(result) for result in results}
    assert files_are_named(gathered.harness, tmp_path)
    assert {} == stored(gathered.harness)


@pytest.mark.slow
def test_any_puts_at_once_are_those_of_some_order(
    harness: AppHarness, space: SpaceRecord, tmp_path: Path
) -> None:
    """Of eight threads, over three names: each answer is a step of one history without gaps."""
    writer, commits = harness.services[ModelWriter], harness.services[SharedCommits]
    results: list[tuple[str, Support, Stored]] = []

    def put_some(thread: int) -> None:
        for turn in range(6):
            name, made = f"m{(thread + turn) % 3}", support(thread * 6 + turn)
            with harness.database.reading() as session:
                prepared = writer.prepare(session, space, name, made)
            results.append((name, made, commits.put(space, Put(name, prepared))))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put_some, range(8)))
    history = sorted(results, key=lambda result: result[2].model.version)
    versions = [result[2].model.version for result in history]
    assert list(range(versions[0], versions[0] + 48)) == versions
    for name in ("m0", "m1", "m2"):
        own = [result for result in history if result[0] == name]
        assert ["created"] + ["replaced"] * (len(own) - 1) == [each.status for *_, each in own]
        assert all(made.digest == each.model.digest for _, made, each in own)
    last = {name: made for name, made, _ in history}
    assert last == stored(harness)
    assert named_keys(harness.database) <= blob_keys(tmp_path / "blobs")
