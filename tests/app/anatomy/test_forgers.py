"""Forged fingerprints: what they are called, and whom they displace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.fingerprints.records import Facts
from modelkin import Fingerprint
from tests.app.anatomy.families import Family, derived, stranger, tensors_of
from tests.sdk.core.fingerprints.planted import Tensors, fingerprint
from tests.support.fixtures import on_one_database

MATRIX = "layers.0.q"
FORGED = 200
"""More than the holders of a key that are listed, and than an answer names."""


def forgeries() -> dict[str, Tensors]:
    """A stranger's weights, with something of a popular base beside or in them."""
    own, base = tensors_of(1), tensors_of(0)
    rows = np.concatenate([own["embed"], base["embed"][:30]])
    return {
        "one matrix": own | {MATRIX: base[MATRIX]},
        "an unused tensor": own | {"pad": 1e-6 * base[MATRIX]},
        "embeddings": own | {"embed": base["embed"]},
        "rows of padding": own | {"embed": rows},
    }


@pytest.fixture(scope="module")
def made() -> dict[str, Fingerprint]:
    return {how: fingerprint(tensors, None) for how, tensors in forgeries().items()}


@on_one_database
@pytest.mark.slow
def test_what_a_stranger_holds_of_a_base_is_reused(
    family: Family, made: dict[str, Fingerprint]
) -> None:
    """No forger is called derived: it reuses tensors, which are named, or nothing is said."""
    family.put("base", stranger(0), stated_by="hub")
    for how, each in made.items():
        found = family.given(each)
        said = {(p["model"], p["verdict"]) for p in found["parents"]}
        assert said <= {("base", "reuses"), ("base", "related")}, how
    [parent] = family.given(made["one matrix"])["parents"]
    assert [MATRIX] == parent["tensors"]


def crowd(base: Fingerprint, number: int) -> Fingerprint:
    """An invented fingerprint: the keys of a base, but for 40 that no file has."""
    draw = np.random.default_rng(number)
    keys = base.keys.copy()
    keys[draw.choice(keys.size, 40, replace=False)] = draw.integers(
        0, 2**64 // base.scale - 1, 40, np.uint64
    )
    order = np.argsort(keys, kind="stable")
    owners, lengths = base.owners[order], base.lengths[order]
    return replace(base, keys=keys[order], owners=owners, lengths=lengths)


@on_one_database
@pytest.mark.slow
def test_a_crowd_that_claims_a_base_displaces_nobody(family: Family) -> None:
    """The base that the service read stands first in the answers about its children, and a
    bystander is kin of none.
    """
    small = {name: tensors_of(0)[name] for name in ("embed", MATRIX, "layers.0.k", "layers.0.v")}
    base = fingerprint(small, None)
    family.put("base", base, stated_by="hub")
    child = fingerprint({name: values[:120] for name, values in small.items()}, None)
    family.put_all({f"forged/{n}": crowd(base, n) for n in range(FORGED)}, Facts(("base",)))
    family.put("bystander", stranger(1))
    family.put("child", child)
    found = family.anatomy("child")
    assert ("base", "hub") == (found["parents"][0]["model"], found["parents"][0]["stated_by"])
    assert found["truncated"]
    first = family.relatives("child", k=100)["items"]
    assert "base" in {each["model"] for each in first}
    assert [] == family.anatomy("bystander")["parents"]


@on_one_database
@pytest.mark.slow
def test_one_random_seed_makes_kin_and_the_answer_says_so(family: Family) -> None:
    """No line tells a seed from a base: the sentence names both."""
    family.put("twin", derived("noise .2"))
    found = family.given(derived("8 bits"))
    assert ["twin"] == [each["model"] for each in found["parents"]]
    assert "a base, a checkpoint, or the same random seed" in found["sentences"][-1]
    assert found["parents"][0]["edge"] is None  # neither declares the other, nor has a date


@on_one_database
def test_a_model_that_declares_itself_is_no_base_of_its_own(family: Family) -> None:
    """It is left out of its own answer, and so is the edge."""
    family.put("loop", stranger(0), facts=Facts(("loop",)))
    assert [] == family.anatomy("loop")["parents"]
