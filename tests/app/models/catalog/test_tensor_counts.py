"""Index counts by tensor: stored with each content, and made for supports of older versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, select

from app.infra.db.tables.catalog import ModelRow, TensorCountsRow
from app.models.catalog.batches import BatchEntry, BatchService
from app.models.catalog.repositories import tensor_counts as repository
from app.models.catalog.repositories.tensor_counts import counts_by_name
from app.models.catalog.tensor_counts import JOB_KIND, TensorCountService
from app.models.spaces.repositories import spaces
from modelkin import Layout, Support
from tests.support.app.harness import AppHarness, open_app
from tests.support.app.space import silent
from tests.support.backends import Backend
from tests.support.http_space import SIGNATURE

LAYOUT = Layout.of([("a", [30, 10]), ("b", []), ("c", [559])])
M = LAYOUT.num_parameters


@pytest.fixture
def app(tmp_path: Path, backend: Backend) -> Iterator[AppHarness]:
    """A service with the space ``s``, which has a layout, and ``plain``, which has none."""
    with open_app(tmp_path, backend) as opened:
        made = opened.http.post("/v1/spaces", json={"name": "s", "layout": LAYOUT.to_json()})
        assert 201 == made.status_code
        opened.create_space("plain", M)
        yield opened


def support(seed: int, k: int = 50) -> Support:
    """A random support."""
    rng = np.random.default_rng(seed)
    return Support.from_indices(np.sort(rng.choice(M, k, replace=False)), M)


def stored(app: AppHarness, *names: str) -> dict[str, list[int]]:
    """The stored counts, by model."""
    with app.database.reading() as session:
        space = spaces.get_space(session, app.tenant, "s")
        found = counts_by_name(session, space, names)
    return {name: counts.tolist() for name, counts in found.items()}


def counts(given: Support) -> list[int]:
    """The counts of a support, index by index."""
    ends = LAYOUT.ends.tolist()
    found = [0] * len(ends)
    for index in given.indices.tolist():
        found[next(place for place, end in enumerate(ends) if index < end)] += 1
    return found


def kappa(app: AppHarness, model: str) -> Any:
    """The kappa of a model's first neighbour."""
    answer = app.http.get("/v1/spaces/s/neighbors", params={"model": model}).json()
    return answer["items"][0]["kappa"]


def rows(app: AppHarness) -> int:
    """How many models have counts."""
    with app.database.reading() as session:
        return len(session.scalars(select(TensorCountsRow.model_id)).all())


def test_counts_follow_the_content(app: AppHarness) -> None:
    """Of a put, a replacement and a batch; a signature and a deleted model have none."""
    app.put_support("s", "a", support(1))
    app.put_support("plain", "a", support(1))
    assert {"a": counts(support(1))} == stored(app, "a")
    app.put_support("s", "a", support(2, 80))
    assert {"a": counts(support(2, 80))} == stored(app, "a")
    entries = [BatchEntry("b", support(3)), BatchEntry("c", support(4))]
    with app.database.reading() as session:
        space = spaces.get_space(session, app.tenant, "s")
        app.services[BatchService].put(session, space, entries)
    assert {"b": counts(support(3)), "c": counts(support(4))} == stored(app, "b", "c")
    signature = support(5).signature(256, 1, "affine32").to_bytes()
    headers = {"Content-Type": SIGNATURE}
    put = app.http.put("/v1/spaces/s/signatures/d", content=signature, headers=headers)
    assert 201 == put.status_code
    assert {} == stored(app, "d")
    app.put_support("s", "d", support(5))
    assert {"d": counts(support(5))} == stored(app, "d")
    assert 204 == app.http.delete("/v1/spaces/s/models/d").status_code
    assert 3 == rows(app)


def test_old_supports_are_counted_by_the_schedule(app: AppHarness) -> None:
    """Without counts there is no kappa; the next tick makes them, and the one after has no job."""
    for seed, name in enumerate("abc"):
        app.put_support("s", name, support(seed))
    app.put_support("plain", "a", support(1))
    before = kappa(app, "a")
    assert [] == [kind for kind in app.worker.tick() if kind == JOB_KIND]
    with app.database.writing() as session:
        session.execute(delete(TensorCountsRow))
    assert kappa(app, "a") is None
    assert JOB_KIND in app.worker.tick()
    assert {name: counts(support(seed)) for seed, name in enumerate("abc")} == stored(app, *"abc")
    assert before == kappa(app, "a")
    assert JOB_KIND not in app.worker.tick()


def test_a_count_goes_on_where_it_ended(
    app: AppHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that dies keeps what it has counted; what cannot be read is left out, not the rest."""
    monkeypatch.setattr("app.models.catalog.tensor_counts._PAGE_SIZE", 2)
    for seed, name in enumerate("abcde"):
        app.put_support("s", name, support(seed))
    with app.database.writing() as session:
        session.execute(delete(TensorCountsRow))
        lost = session.scalars(select(ModelRow.blob_key).where(ModelRow.name == "d")).one()
    service = app.services[TensorCountService]

    def dying(done: int, total: int, stage: str = "") -> None:
        if done >= 2 and stage and not total:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        service.count_missing(dying)
    assert 2 == rows(app)
    assert lost is not None
    (tmp_path / "blobs" / lost).unlink()
    assert {"counted": 2, "left_out": 1} == service.count_missing(silent)
    assert {"counted": 0, "left_out": 1} == service.count_missing(silent)
    assert set("abce") == set(stored(app, *"abcde"))


def test_a_support_that_cannot_be_read_is_logged_once(
    app: AppHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each run tries it again and says no more, and counts it once its file is back."""
    app.put_support("s", "a", support(1))
    with app.database.writing() as session:
        session.execute(delete(TensorCountsRow))
        key = session.scalars(select(ModelRow.blob_key).where(ModelRow.name == "a")).one()
    assert key is not None
    blob = tmp_path / "blobs" / key
    content = blob.read_bytes()
    blob.unlink()
    service = app.services[TensorCountService]
    for _ in range(3):
        assert {"counted": 0, "left_out": 1} == service.count_missing(silent)
    logged = [
        r.getMessage() for r in caplog.records if r.name == "app.models.catalog.tensor_counts"
    ]
    assert 1 == len(logged)
    assert "the indices of 'a' are not counted" in logged[0]
    blob.write_bytes(content)
    assert {"counted": 1, "left_out": 0} == service.count_missing(silent)
    assert {"a": counts(support(1))} == stored(app, "a")


def test_a_support_that_changes_meanwhile_keeps_its_own_counts(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A content that is replaced or deleted between the reading and the storing is left out."""
    for seed, name in enumerate("abc"):
        app.put_support("s", name, support(seed))
    with app.database.writing() as session:
        session.execute(delete(TensorCountsRow))
    service = app.services[TensorCountService]
    encode, encoded = repository.encode, list[bytes | None]()

    def late(*args: Any) -> bytes | None:
        counted = encode(*args)
        encoded.append(counted)
        if len(encoded) == 3:  # all three are read, and none is stored
            app.put_support("s", "a", support(9, 70))
            app.http.delete("/v1/spaces/s/models/b")
        return counted

    monkeypatch.setattr(repository, "encode", late)
    assert {"counted": 1, "left_out": 2} == service.count_missing(silent)
    assert {"a": counts(support(9, 70)), "c": counts(support(2))} == stored(app, *"abc")
