"""Data subspaces among all else that the service does: events, verification, quotas, deletion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, update

from app.infra.db.tables.catalog import ModelRow, SignatureRow
from app.infra.storage.file_blobs import FileBlobs
from app.operations.copies.verification import Verification
from app.stores import open_buckets
from modelkin import Subspace
from modelkin.wire import SUBSPACE
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend
from tests.support.fixtures import on_one_database
from tests.support.servers.webhook_receiver import receiving

pytestmark = on_one_database

RNG = np.random.default_rng(11)
BASE = RNG.normal(size=(8, 2))
SPEC: dict[str, Any] = {"constant": 0.0, "weighting": "flat", "compare": "whole"}


def near(share: float) -> Subspace:
    """A subspace as far from the base as a share of another one makes it."""
    return Subspace.of_basis(BASE + share * RNG.normal(size=(8, 2)))


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """The service of this file, on each database."""
    with open_keyed_app(tmp_path_factory.mktemp("app"), backend) as made:
        yield made


@pytest.fixture
def space(app: AppHarness, request: pytest.FixtureRequest) -> str:
    """A space of data subspaces."""
    name: str = request.node.name.split("[")[0].replace("_", "-")[:90]
    body = {"name": name, "num_parameters": 8, "kind": "subspaces", "subspaces": SPEC}
    assert 201 == app.http.post("/v1/spaces", json=body).status_code
    return name


def put(app: AppHarness, space: str, model: str, subspace: Subspace) -> None:
    answer = app.http.put(
        f"/v1/spaces/{space}/subspaces/{model}",
        content=subspace.to_bytes(),
        headers={"Content-Type": SUBSPACE},
    )
    assert answer.status_code in {200, 201}, answer.text


@pytest.mark.slow
def test_subscribers_learn_of_new_data_and_its_neighbours(app: AppHarness, space: str) -> None:
    """A stored subspace is an event, and so are the neighbours that it has above a threshold."""
    with receiving() as receiver:
        stored = app.webhooks.subscribe(f"{receiver.url}/ok", space=space)
        changed = app.webhooks.subscribe(
            f"{receiver.url}/ok", "neighbors.changed", space=space, threshold=0.9
        )
        put(app, space, "base", near(0.0))
        put(app, space, "far", Subspace.of_basis(RNG.normal(size=(8, 2))))
        put(app, space, "close", near(0.01))
        app.worker.run_all()
        events = [json.loads(d["payload"])["data"] for d in app.webhooks.deliveries(stored)]
        assert {"base", "far", "close"} == {event["model"] for event in events}
        assert {2} == {event["support_size"] for event in events}
        told = [json.loads(d["payload"])["data"] for d in app.webhooks.deliveries(changed)]
        pairs = {(event["model"], item["model"]) for event in told for item in event["changes"]}
        assert ("close", "base") in pairs
        assert not any("far" in pair for pair in pairs)
        for made in (stored, changed):
            app.http.delete(f"/v1/subscriptions/{made}")


@pytest.mark.slow
def test_verification_finds_a_damaged_subspace(app: AppHarness, space: str, tmp_path: Path) -> None:
    """And nothing is wrong with whole ones, nor with what supports alone have."""
    put(app, space, "a", near(0.1))
    put(app, space, "b", near(0.2))
    put(app, space, "b", near(0.3))
    assert [] == findings(app, tmp_path)
    of_a = select(ModelRow.id).where(ModelRow.name == "a").scalar_subquery()
    for damage, says in ((b"x", "damaged"), (near(0.5).to_bytes(), "not that of its digest")):
        with app.database.writing() as session:
            changed = update(SignatureRow).where(SignatureRow.model_id == of_a)
            session.execute(changed.values(values=damage))
        assert any(f"its data subspace is {says}" in found for found in findings(app, tmp_path))
    assert 204 == app.http.delete(f"/v1/spaces/{space}").status_code


def findings(app: AppHarness, folder: Path) -> list[str]:
    """What a verification of the database finds; no blob is needed for data subspaces."""
    with open_buckets(app.database, None) as buckets:
        blobs = FileBlobs(folder / "blobs", "x")
        checked = Verification(app.database, blobs, buckets, deep=True)
        return [str(each) for each in checked.findings()]


def test_a_deleted_space_is_gone(app: AppHarness, space: str) -> None:
    """With its models; another one of its name begins empty."""
    put(app, space, "a", near(0.1))
    path = f"/v1/spaces/{space}/neighbors"
    assert 200 == app.http.get(path, params={"model": "a"}).status_code
    assert 204 == app.http.delete(f"/v1/spaces/{space}").status_code
    body = {"name": space, "num_parameters": 8, "kind": "subspaces", "subspaces": SPEC}
    assert 201 == app.http.post("/v1/spaces", json=body).status_code
    put(app, space, "b", near(0.1))
    found = app.http.get(path, params={"model": "b"}).json()
    assert ([], 0) == (found["items"], found["candidates"])
