"""Lineages whose declared base has changed: no honest model is accused."""

from __future__ import annotations

from typing import Any

import numpy as np

from modelkin import Support
from tests.app.kinship.test_lineage_api import K, M, declare, lineage
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, ok, random_support, related

pytestmark = on_one_database

RNG = np.random.default_rng(7)
FIRST, LATER = random_support(RNG, M, K), random_support(RNG, M, K)
OTHERS = {f"other-{i}": random_support(RNG, M, K) for i in range(8)}


def fill(space: Space, model: Support, *bases: Support) -> None:
    """A model that declares a base, the contents of which come one after another.

    A model that is near it declares nothing, so a wrong base is behind that.
    """
    for content in bases:
        space.put("base", content)
    near = related(np.random.default_rng(2), model, 0.7)
    space.put_all({"model": model, "near": near, **OTHERS})
    declare(space, model="base")


def tuned(base: Support) -> Support:
    return related(np.random.default_rng(1), base, 0.8)


def pin(space: Space, pinned: str, contents: dict[str, int]) -> None:
    """What a source records of a model that pins its base, and of that base."""
    for name, hub in (("model", {"base_revision": pinned}), ("base", {"contents": contents})):
        path = space.path("models", name)
        ok(space.http.patch(path, json={"attributes": {"hub": hub}}))


def found(space: Space) -> tuple[Any, ...]:
    answer = lineage(space)
    return answer["verdict"], answer["reason"], answer["base_revision"]


def test_a_base_that_was_replaced(space: Space) -> None:
    """A model made from the first content of its base is consistent with that, by its S."""
    model = tuned(FIRST)
    fill(space, model, FIRST, LATER)
    assert ("consistent", "stands_out", 1) == found(space)
    answer = lineage(space)
    assert answer["base"]["similarity"] > 0.6
    assert "compared at its revision 1 here, and has 2 revisions" in answer["summary"]


def test_a_present_base_decides_where_it_is_nearer(space: Space) -> None:
    """A model made from the present content is compared with that alone."""
    fill(space, tuned(LATER), FIRST, LATER)
    assert ("consistent", "stands_out", None) == found(space)


def test_a_wrong_base_is_contradicted_by_all_its_revisions(space: Space) -> None:
    """A model that is near no revision of its base is a mismatch, though the base has changed."""
    fill(space, random_support(RNG, M, K), FIRST, LATER)
    assert ("mismatch", "background") == found(space)[:2]


def test_a_revision_that_is_not_kept(space: Space) -> None:
    """Where the revision that a model is made from may be one that is gone, nothing is said."""
    second = random_support(RNG, M, K)
    later = [random_support(RNG, M, K) for _ in range(6)]
    fill(space, tuned(second), FIRST, second, *later)
    assert ("inconclusive", "changed") == found(space)[:2]
    answer = lineage(space)
    assert "has changed since" in answer["summary"]
    assert None is answer["likely_base"]


def test_a_pinned_revision_that_is_kept(space: Space) -> None:
    """The pinned revision decides alone, for the model and against it."""
    fill(space, tuned(FIRST), FIRST, LATER)
    pin(space, "v1", {"v1": 1, "v2": 2})
    assert ("consistent", "stands_out", 1) == found(space)
    pin(space, "v2", {"v1": 1, "v2": 2})
    assert ("mismatch", "background", None) == found(space)


def test_a_pinned_revision_that_never_came(space: Space) -> None:
    """A pinned revision that the service does not know neither contradicts a model nor has another
    one stand in for it, however near that is.
    """
    fill(space, tuned(LATER), FIRST, LATER)
    pin(space, "v0", {"v1": 1, "v2": 2})
    assert ("inconclusive", "pinned") == found(space)[:2]
    assert "the model names revision 'v0' of its base" in lineage(space)["summary"].lower()
