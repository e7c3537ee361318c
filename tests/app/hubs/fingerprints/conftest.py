"""Models with lines on a hub, and what a service stores of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from app.fingerprints.records import FingerprintRecord
from app.fingerprints.service import FingerprintService
from modelkin.checkpoints import fingerprint
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import Tensors, random_tensors, safetensors

FILE = "model.safetensors"
SHAPES: dict[str, tuple[int, ...]] = {"a.weight": (96, 80), "b.bias": (80,), "c.weight": (70, 64)}


def model(seed: int) -> Tensors:
    """A model whose tensors have lines."""
    return random_tensors(seed, SHAPES)


def tuned(base: Tensors, seed: int) -> Tensors:
    """A fine-tune of another one."""
    drift = random_tensors(seed, {name: tensor.shape for name, tensor in base.items()})
    return {name: tensor + np.float32(0.01) * drift[name] for name, tensor in base.items()}


def files(tensors: Tensors) -> dict[str, bytes]:
    """The files of a model."""
    return {FILE: safetensors(tensors)}


def made_of(folder: Path, tensors: Tensors) -> Fingerprint:
    """The fingerprint that the command line makes."""
    path = folder / "fingerprinted.safetensors"
    path.write_bytes(safetensors(tensors))
    return fingerprint(path)


def record(app: AppHarness, name: str) -> FingerprintRecord | None:
    """What is stored of a name."""
    with app.database.reading() as session:
        return app.services[FingerprintService].find(session, app.tenant, name)


def stored(app: AppHarness, name: str) -> Fingerprint | None:
    """The fingerprint of a name; None without one."""
    found = record(app, name)
    if found is None:
        return None
    with app.database.reading() as session:
        return app.services[FingerprintService].read(session, found)


def result(app: AppHarness, source: Any, name: str = "org/a") -> dict[str, Any]:
    """What a sync answers."""
    job = app.hubs.sync_model(source, name)
    assert job.result is not None, job.error
    return dict(job.result)
