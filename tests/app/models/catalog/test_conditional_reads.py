"""A client that has a model already is answered that it is unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.app.harness import AppHarness, open_app
from tests.support.http_space import random_support

MODEL = "/v1/spaces/s/models/org/m"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service with a space of one model."""
    with open_app(Path(tmp_path_factory.mktemp("served"))) as harness:
        harness.create_space("s", 1000)
        harness.put_support("s", "org/m", random_support(np.random.default_rng(1), 1000, 50))
        yield harness


def _asked(served: AppHarness, known: str) -> Any:
    return served.http.get(MODEL, headers={"If-None-Match": known})


def test_a_known_model_is_answered_without_a_body(served: AppHarness) -> None:
    """With its ETag, also among others, as a weak one, or for any."""
    etag = served.http.get(MODEL).headers["etag"]
    for known in (etag, f'"1-1-1", {etag}', f"W/{etag}", "*"):
        answer = _asked(served, known)
        assert (304, b"", etag) == (answer.status_code, answer.content, answer.headers["etag"])


def test_another_version_is_answered_whole(served: AppHarness) -> None:
    """What a client has of before a change is not the model."""
    etag = served.http.get(MODEL).headers["etag"]
    served.http.patch(MODEL, json={"tags": ["new"]}).raise_for_status()
    answer = _asked(served, etag)
    assert (200, ["new"]) == (answer.status_code, answer.json()["tags"])
    assert etag != answer.headers["etag"]


def test_a_model_that_is_not_there_is_missing(served: AppHarness) -> None:
    """Whatever the client has of it."""
    answer = served.http.get("/v1/spaces/s/models/none", headers={"If-None-Match": "*"})
    assert 404 == answer.status_code
