"""Pages about much: they show the first of it, and how much more there is."""

from __future__ import annotations

import time

import numpy as np

import modelkin
from modelkin import BulkItem
from tests.app.ui.conftest import Explorer
from tests.support.http_space import Space, family, ok, random_support


def test_a_pair_shows_the_first_tensors(explorer: Explorer) -> None:
    """Of 510 tensors 500 are drawn and listed; how many are left is said."""
    layout = [{"name": f"layers.{number}", "shape": [10]} for number in range(510)]
    space = Space(explorer.http, 5100, layout=layout)
    first, second = family(3, 5100, 900, 2).items()
    for name, support in (first, second):
        space.put(name, support)
    path = f"/spaces/{space.name}/pairs?a={first[0]}&b={second[0]}"
    page = explorer.http.get(path).text
    assert 500 == page.count("<code>layers.")
    assert "layers.509" not in page.partition("<h2>The same")[0].partition("Tensors</h2>")[2]
    assert "The first 500 of 510 tensors" in page


def test_a_clustering_shows_the_largest_clusters(explorer: Explorer) -> None:
    """Of 503 clusters 500 are listed; how many are left is said."""
    space = Space(explorer.http, 4000)
    rng = np.random.default_rng(5)
    supports = [random_support(rng, 4000, 8) for _ in range(505)]
    items = [BulkItem(f"m{number:03d}", support) for number, support in enumerate(supports)]
    with modelkin.Client(str(explorer.http.base_url)) as client:
        assert 0 == client.put_many(space.name, items).failed
    body = {"algorithm": "agglomerative", "n_clusters": 503, "similarity": "signature"}
    job = explorer.http.post(space.path("clusterings"), json=body)
    end = time.monotonic() + 60
    while ok(explorer.http.get(job.headers["Location"]))["finished_at"] is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    page = explorer.http.get(f"/spaces/{space.name}/clusterings/latest").text
    assert 500 == page.count("Members of cluster")
    assert "and 3 smaller clusters" in page
