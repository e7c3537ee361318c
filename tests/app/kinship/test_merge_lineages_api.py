"""Lineages of merges over HTTP: each declared base is judged, and the weightiest verdict counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelkin import Support
from tests.app.kinship.test_lineage_api import K, M, lineage
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, ok, random_support, related

pytestmark = on_one_database


@pytest.fixture
def merge(space: Space) -> Space:
    """A model that is near two others, beside strangers."""
    rng = np.random.default_rng(3)
    root = random_support(rng, M, K)
    a, b = related(rng, root, 0.9), related(rng, root, 0.9)
    supports: dict[str, Support] = {"a": a, "b": b, "merge": related(rng, root, 0.9)}
    space.put_all(supports | {f"other-{n}": random_support(rng, M, K) for n in range(8)})
    return space


def declare(space: Space, name: str, *bases: str) -> None:
    ok(space.http.patch(space.path("models", name), json={"base_models": bases}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bases", "verdict", "decided"),
    [
        (("a", "b"), "consistent", "a"),
        (("a", "b", "other-1"), "mismatch", "other-1"),
        (("other-2", "gone", "a"), "mismatch", "other-2"),
        (("a", "gone", "b"), "unknown_base", "gone"),
        (("gone", "lost"), "unknown_base", "gone"),
    ],
)
def test_the_weightiest_verdict_counts(
    merge: Space, bases: tuple[str, ...], verdict: str, decided: str
) -> None:
    """Each base has its own, and the one that decided is the declared base of the answer."""
    declare(merge, "merge", *bases)
    found = lineage(merge, "merge")
    assert (verdict, decided) == (found["verdict"], found["declared_base"])
    assert list(bases) == [each["base_model"] for each in found["declared_bases"]]
    verdicts = {each["base_model"]: each["verdict"] for each in found["declared_bases"]}
    assert verdict == verdicts[decided]
    measured = {each["base_model"] for each in found["declared_bases"] if each["similarity"]}
    assert set(bases) - {"gone", "lost"} == measured
    audit = ok(merge.http.get(merge.path("lineages"), params={"base_model": bases[-1]}))
    [row] = audit["items"]
    assert (verdict, list(bases)) == (row["verdict"], row["declared_bases"])
    if verdict == "mismatch":
        assert f"'{decided}'" in found["summary"]
        assert "Of the others" in found["summary"]


@pytest.mark.slow
def test_relations_by_any_base(merge: Space) -> None:
    """Bases, siblings, ancestors and derivatives are found by any of several bases."""
    declare(merge, "merge", "a", "b")
    declare(merge, "b", "other-0")
    declare(merge, "other-1", "gone", "b")
    declare(merge, "other-2", "other-3", "merge")
    found: dict[str, Any] = {}
    for name in ("a", "b", "other-0", "other-1", "other-2", "other-3"):
        answer = ok(merge.http.get(merge.path("lineage"), params={"model": name}))
        found[name] = {each["model"]: each for each in answer["kin"]}.get("merge", {})
    assert [
        ("a", "derivative"),
        ("b", "derivative"),
        ("other-0", "derivative"),
        ("other-1", "sibling"),
        ("other-2", "base"),
        ("other-3", None),
    ] == [(name, kin["relation"]) for name, kin in found.items()]
    assert (None, ["a", "b"]) == (found["a"]["base_model"], found["a"]["base_models"])


def test_a_cycle_by_any_base(merge: Space) -> None:
    """A way back to the model is a cycle whichever base it leads over, and the chain shows it."""
    declare(merge, "merge", "a", "b")
    declare(merge, "a", "other-0")
    declare(merge, "b", "other-1", "merge")
    found = lineage(merge, "merge")
    assert ("cycle", True) == (found["verdict"], found["cycle"])
    links = [(link["model"], link["base_model"]) for link in found["chain"]]
    assert [("merge", "b"), ("b", "merge")] == links
    assert "(merge -> b -> merge)" in found["summary"]
