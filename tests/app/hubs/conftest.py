"""A hub on loopback, services that ingest its models, and services without workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from tests.support.app.harness import AppHarness, open_app, open_hub_app
from tests.support.backends import Backend
from tests.support.models.checkpoints import random_tensors, safetensors

GOOD = safetensors(random_tensors(1))


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppHarness]:
    """A service without a model."""
    with open_hub_app(tmp_path) as app:
        yield app


@pytest.fixture(scope="module")
def service(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service that the tests of a module share; each creates sources of its own."""
    folder = tmp_path_factory.mktemp("service")
    with open_app(folder, backend) as opened:
        yield opened


def refused(app: AppHarness, url: str, name: str = "org/a", **wanted: Any) -> tuple[str, str, str]:
    """How a sync ends that stores nothing: its state, and the code and the words of its error."""
    source = app.hubs.follow(url, **wanted)
    job = app.hubs.sync_model(source, name)
    assert job.error is not None, job.result
    assert [] == [path.name for path in downloads(app)]
    assert app.hubs.model(name) is None
    shown = app.hubs.source(source.id).last_error
    assert shown is not None
    assert job.error["code"] == shown["code"]
    return job.state, job.error["code"], job.error["detail"]


def downloads(app: AppHarness) -> list[Path]:
    """The download folders that are left."""
    folder = app.services[Settings].checkpoint_dir
    return [path for path in folder.glob("*/*") if path.is_dir()]
