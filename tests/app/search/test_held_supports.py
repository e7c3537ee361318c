"""What a search holds of the supports that it compares."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests.support.app.harness import open_app
from tests.support.http_space import random_support, related

M, K, MODELS = 1_000_000, 100_000, 60
SUPPORT_BYTES = M // 8


@pytest.mark.parametrize("method", ["exact", "scan"])
def test_a_search_holds_few_supports_at_a_time(tmp_path: Path, method: str) -> None:
    """It takes less memory than half of those that it compares."""
    random = np.random.default_rng(3)
    base = random_support(random, M, K)
    with open_app(tmp_path, support_cache_bytes=0) as app:
        app.create_space("s", M)
        for number in range(MODELS):
            app.put_support("s", f"m{number}", related(random, base, 0.5))
        ask: dict[str, str | int] = {"model": "m0", "method": method, "k": 50}
        app.http.get("/v1/spaces/s/neighbors", params=ask)
        tracemalloc.start()
        try:
            answer = app.http.get("/v1/spaces/s/neighbors", params=ask)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert {"exact"} == {item["estimate"] for item in answer.json()["items"]}, answer.text
        assert peak < MODELS * SUPPORT_BYTES / 2, peak
