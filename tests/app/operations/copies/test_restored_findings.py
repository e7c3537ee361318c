"""A backup of a service with an acknowledged finding, restored elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest

from tests.support.app.backups import Copies
from tests.support.app.harness import open_app
from tests.support.backends import Backend
from tests.support.http_space import Space, ok, random_support, related

M, K = 10_000, 500


def fill(space: Space) -> None:
    """Strangers, a base, and a model made from it that declares a stranger."""
    rng = np.random.default_rng(11)
    base = random_support(rng, M, K)
    space.put_all({f"other-{n}": random_support(rng, M, K) for n in range(8)})
    space.put_all({"base": base, "liar": related(rng, base, 0.8)})
    ok(space.http.patch(space.path("models", "liar"), json={"base_model": "other-3"}))


def listed(space: Space, **params: Any) -> dict[str, dict[str, Any] | None]:
    """What was acknowledged of each finding."""
    found = ok(space.http.get(space.path("lineages"), params=params))
    return {each["model"]: each["acknowledgement"] for each in found["items"]}


@pytest.mark.slow
def test_what_was_acknowledged_is_restored(backend: Backend, tmp_path: Path) -> None:
    """It still holds for its finding, and no longer once the model declares another base."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    with open_app(before, backend) as app:
        http = cast(httpx.Client, app.http)
        space = Space(http, M)
        fill(space)
        path, model = space.path("lineage/acknowledgement"), {"model": "liar"}
        noted = ok(http.put(path, params=model, json={"note": "known"}))["acknowledgement"]
        assert "known" == noted["note"]
        Copies(backend, before).back_up(tmp_path / "to")
    restored = Copies(backend, after)
    restored.put_back(tmp_path / "to")
    assert "" == restored.verify()
    with open_app(after, backend, prepared=True) as app:
        http = cast(httpx.Client, app.http)
        space = Space.existing(http, space.name, M)
        assert {"liar": noted} == listed(space, acknowledged=True)
        ok(http.patch(space.path("models", "liar"), json={"base_model": "other-4"}))
        assert {} == listed(space, acknowledged=True)
        assert "liar" in listed(space, acknowledged=False)
