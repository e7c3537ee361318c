"""Clusterings whose package is not installed: refused at once, where this process does its jobs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.support.app.harness import AppHarness, open_app
from tests.support.http_space import random_support

ABSENT = {"sklearn", "igraph"}
SAID = "this needs igraph, which is not installed: pip install 'modelkin-service[clustering]'"


@pytest.fixture(autouse=True)
def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the three packages cannot be found."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name in ABSENT else found(name, package),
    )


def filled(app: AppHarness) -> str:
    rng = np.random.default_rng(3)
    space = app.create_space("s", 1000)
    for number in range(4):
        app.put_support(space, f"m{number}", random_support(rng, 1000, 50))
    return f"/v1/spaces/{space}/clusterings"


def test_what_must_fail_is_refused_at_once(tmp_path: Path) -> None:
    """With the line that helps; another algorithm is taken. The page says what is missing."""
    with open_app(tmp_path, embedded_worker="on") as app:
        url = filled(app)
        for asked in ({"algorithm": "leiden"}, {}):
            refused = app.http.post(url, json=asked)
            assert (501, "missing_extra") == (refused.status_code, refused.json()["code"])
        assert SAID.replace("igraph", "scikit-learn") == refused.json()["detail"]
        assert 202 == app.http.post(url, json={"algorithm": "agglomerative"}).status_code
        shown = app.http.get("/spaces/s/clusterings").text
        assert "Some algorithms need packages that this service lacks" in shown
        assert '<option value="leiden" disabled>' in shown
        assert '<option value="agglomerative">' in shown


def test_other_workers_may_have_it(tmp_path: Path) -> None:
    """Where workers are processes of their own, this one knows nothing of their packages."""
    with open_app(tmp_path, embedded_worker="off") as app:
        url = filled(app)
        assert 202 == app.http.post(url, json={"algorithm": "leiden"}).status_code
        assert "this service lacks" not in app.http.get("/spaces/s/clusterings").text
