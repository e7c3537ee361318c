"""Models of a hub: a sync beyond a quota fails, says which one, and downloads nothing in vain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from app.tenancy.quotas.service import QuotaService
from tests.support.app.harness import AppHarness, open_hub_app
from tests.support.blob_files import blob_files
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppHarness]:
    """A service without a model."""
    with open_hub_app(tmp_path) as app:
        yield app


def limit(app: AppHarness, **quotas: Any) -> None:
    """Set quotas of the tenant."""
    with app.database.writing() as session:
        app.services[QuotaService].set(session, app.tenant.id, quotas)


def weights(seed: int) -> dict[str, bytes]:
    """The files of a model."""
    return {"model.safetensors": safetensors(random_tensors(seed))}


@pytest.mark.slow
def test_a_sync_beyond_the_quota_of_models_fails(hub: Hub, app: AppHarness) -> None:
    """Its job and its source name the quota; a model that is stored follows its hub; and once there
    is room, the next poll asks for the other again.
    """
    hub.push("org/a", weights(1))
    hub.push("org/b", weights(2))
    source = app.hubs.follow(hub.url, filters={"owners": ["org"]})
    assert "succeeded" == app.hubs.sync_model(source, "org/a").state
    limit(app, models=1)
    before = len(hub.downloads)
    job = app.hubs.sync_model(source, "org/b")
    assert job.error is not None
    assert ("failed", "quota_exceeded") == (job.state, job.error["code"])
    assert "has 1 models in its spaces and may have 1" in job.error["detail"]
    assert before == len(hub.downloads)
    noted = app.hubs.source(source.id).last_error
    assert noted is not None
    assert "(quota models)" in noted["detail"]
    hub.push("org/a", weights(3))
    assert "succeeded" == app.hubs.sync_model(source, "org/a").state
    limit(app, models=2)
    assert 202 == app.http.post(f"/v1/sources/{source.id}/poll").status_code
    app.worker.run_all()
    assert app.hubs.model("org/b") is not None


@pytest.mark.parametrize(("quota", "most"), [("spaces", 0), ("support_bytes", 10)])
def test_a_model_that_meets_a_quota_in_the_end_leaves_nothing(
    hub: Hub, app: AppHarness, quota: str, most: int
) -> None:
    """No space is made beyond a quota, and a support without room leaves no file."""
    hub.push("org/a", weights(1))
    limit(app, **{quota: most})
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert job.error is not None
    assert ("failed", "quota_exceeded") == (job.state, job.error["code"])
    assert f"(quota {quota})" in job.error["detail"]
    assert not blob_files(app.services[Settings].blob_dir)
