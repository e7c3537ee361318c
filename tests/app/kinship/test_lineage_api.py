"""Lineages over HTTP: planted ones are recognised, and every verdict comes with its evidence."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from modelkin import Support
from tests.support.http_space import (
    Space,
    assert_problem,
    ok,
    random_support,
    related,
    true_similarity,
)

M, K = 10_000, 500


def planted(seed: int, unrelated: int = 8) -> dict[str, Support]:
    """root -> base -> model -> copy and base -> sibling, each keeping 80%, and unrelated models."""
    rng = np.random.default_rng(seed)
    found = {"root": random_support(rng, M, K)}
    for name, parent in (
        ("base", "root"),
        ("model", "base"),
        ("copy", "model"),
        ("sibling", "base"),
    ):
        found[name] = related(rng, found[parent], 0.8)
    return found | {f"other-{i}": random_support(rng, M, K) for i in range(unrelated)}


def declare(space: Space, **bases: str | None) -> None:
    """Declare bases; names are spelled with an underscore for a hyphen."""
    for name, base in bases.items():
        path = space.path("models", name.replace("_", "-"))
        ok(space.http.patch(path, json={"base_model": base}))


def lineage(space: Space, model: str = "model") -> dict[str, Any]:
    """The lineage of a stored model."""
    return ok(space.http.get(space.path("lineage"), params={"model": model}))


@pytest.fixture
def line(space: Space) -> Space:
    """A planted lineage without any declaration."""
    space.put_all(planted(1))
    return space


SUPPORTS = planted(1)


def test_a_true_base_is_consistent(line: Space) -> None:
    """The declared base stands out, with its S, z-score and the background."""
    declare(line, model="base")
    found = lineage(line)
    assert ("consistent", "base", None) == (
        found["verdict"],
        found["declared_base"],
        found["likely_base"],
    )
    base = found["base"]
    assert true_similarity(SUPPORTS["model"], SUPPORTS["base"]) == base["similarity"]
    assert ("exact", 0.0, True, "base") == tuple(
        base[field] for field in ("estimate", "standard_error", "stands_out", "relation")
    )
    usual = found["usual"]
    z = (base["similarity"] - usual["similarity"]) / usual["deviation"]
    assert z == pytest.approx(base["z_score"])
    assert base["z_score"] > 5
    assert found["limit"] < base["similarity"]
    assert "S = 0.8" in found["summary"]


def test_siblings_and_derivatives_are_no_contradiction(line: Space) -> None:
    """Models declared to be made from the model, or from its base, are named as such."""
    declare(line, model="base", copy="model", sibling="base", base="root")
    found = lineage(line)
    assert "consistent" == found["verdict"]
    relations = {kin["model"]: kin["relation"] for kin in found["kin"]}
    assert ("derivative", "base", "sibling", "ancestor") == tuple(
        relations[name] for name in ("copy", "base", "sibling", "root")
    )
    assert None is relations["other-0"]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0.06, 0.12])
def test_a_base_among_derivatives_alone_is_no_stranger(space: Space, kept: float) -> None:
    """Where all that is near is the base and what is made from the model, the base is no stranger.

    It is within .05 of the nearest, or no model that is not made from this one is nearer.
    """
    rng = np.random.default_rng(5)
    model = random_support(rng, M, K)
    made = {f"made-{i}": related(rng, model, 0.1) for i in range(30)}
    others = {f"other-{i}": random_support(rng, M, K) for i in range(5)}
    space.put_all({"model": model, "base": related(rng, model, kept), **made, **others})
    for name in made:
        declare(space, **{name: "model"})
    declare(space, model="base")
    found = lineage(space)
    assert {"derivative", "base"} >= {kin["relation"] for kin in found["kin"]}
    assert found["reason"] not in {"background", "farther"}


def test_a_stranger_as_base_is_a_mismatch(line: Space) -> None:
    """A declared base as far as unrelated models is contradicted; the likely one is named."""
    declare(line, model="other-3")
    found = lineage(line)
    assert ("mismatch", False) == (found["verdict"], found["base"]["stands_out"])
    assert "other-3" in found["summary"]
    assert "no nearer than unrelated models" in found["summary"]
    assert found["likely_base"] in {"base", "copy"}  # S has no direction
    assert found["likely_base"] in found["summary"]


def test_a_base_that_another_lies_before_is_a_mismatch(line: Space) -> None:
    """If a model declares the root, the verdict names the base in between, with its S."""
    declare(line, model="root", copy="model")
    found = lineage(line)
    assert ("mismatch", "base", "base") == (
        found["verdict"],
        found["likely_base"],
        found["rival"]["model"],
    )
    to_root = true_similarity(SUPPORTS["base"], SUPPORTS["root"])
    assert to_root == found["rival"]["to_base"]
    assert found["rival"]["similarity"] > found["base"]["similarity"] + 0.05


def test_a_base_of_the_base_is_no_mismatch_once_that_is_declared(line: Space) -> None:
    """The root is an ancestor of the base in between, and so of the model."""
    declare(line, model="root", base="root", sibling="root", copy="model")
    assert "consistent" == lineage(line)["verdict"]


def test_nothing_declared_proposes_the_nearest(line: Space) -> None:
    """For an undeclared model the answer names one that stands out; S has no direction."""
    declare(line, copy="model", model="base")
    found = lineage(line, "sibling")
    assert ("undeclared", "base", None) == (found["verdict"], found["likely_base"], found["base"])
    assert "or be made from this model" in found["summary"]
    unrelated = lineage(line, "other-0")
    assert ("undeclared", None) == (unrelated["verdict"], unrelated["likely_base"])
    assert "No model stands out" in unrelated["summary"]


def test_a_root_is_offered_no_child_of_its_own(line: Space) -> None:
    """What is near it is the finding, unless that is a root, too: then both are."""
    declare(line, model="base", sibling="base")
    found = lineage(line, "base")
    assert ("undeclared", None) == (found["verdict"], found["likely_base"])
    assert (
        "it is the root of a family. 'root', which declares none, may be made from it"
        in (found["summary"])
    )
    assert "base" == lineage(line, "root")["likely_base"]
    assert {"root", "copy"} == {each["model"] for each in audit(line, verdict="undeclared")}
    line.put("second", related(np.random.default_rng(9), SUPPORTS["root"], 0.8))
    declare(line, second="root")
    assert ("root", "base") == tuple(lineage(line, m)["likely_base"] for m in ("base", "root"))
    assert {"root", "base", "copy"} == {m["model"] for m in audit(line, verdict="undeclared")}


def test_a_base_elsewhere_is_unknown(line: Space) -> None:
    """A base outside the space cannot be measured; the kin are listed all the same."""
    declare(line, model="hub/elsewhere")
    found = lineage(line)
    assert ("unknown_base", None) == (found["verdict"], found["base"])
    assert "hub/elsewhere" in found["summary"]
    assert found["likely_base"] in {"base", "copy"}
    (link,) = found["chain"]
    assert ("model", "hub/elsewhere", None) == (
        link["model"],
        link["base_model"],
        link["similarity"],
    )


def test_the_chain_is_followed(line: Space) -> None:
    """Each declared base leads to the next, with the S of every step, up to the last known."""
    declare(line, copy="model", model="base", base="root", root="hub/first")
    found = lineage(line, "copy")
    steps = [(link["model"], link["base_model"]) for link in found["chain"]]
    assert [("copy", "model"), ("model", "base"), ("base", "root"), ("root", "hub/first")] == steps
    measured = [true_similarity(SUPPORTS[a], SUPPORTS[b]) for a, b in steps[:3]]
    assert [*measured, None] == [link["similarity"] for link in found["chain"]]
    assert not found["cycle"]


@pytest.mark.parametrize("ends", ["model", "base"])
def test_a_cycle_through_the_model_is_reported(line: Space, ends: str) -> None:
    """Bases that lead back to the model cannot all be right."""
    declare(line, model=ends, base="model")
    found = lineage(line)
    assert ("cycle", True) == (found["verdict"], found["cycle"])
    assert f"{ends} -> model" in found["summary"]


def test_a_cycle_further_back_leaves_the_verdict(line: Space) -> None:
    """Two bases that declare each other do not stop the model's own base from being measured."""
    declare(line, copy="model", model="base", base="model")
    found = lineage(line, "copy")
    assert ("consistent", True, 3) == (found["verdict"], found["cycle"], len(found["chain"]))


def test_too_few_models_are_inconclusive(space: Space) -> None:
    """Without three other models there is no background."""
    space.put_all({name: SUPPORTS[name] for name in ("model", "base", "other-0")})
    declare(space, model="base")
    found = lineage(space)
    assert "inconclusive" == found["verdict"]
    assert "too few other models" in found["summary"]
    assert {None} == {kin["stands_out"] for kin in found["kin"]}


def test_a_base_of_another_size_is_said(line: Space) -> None:
    """A quarter of the indices bounds S, however much the two have in common."""
    small = SUPPORTS["base"].indices[::4]
    line.put("base", Support.from_indices(small, M))
    declare(line, model="base")
    said = lineage(line)["summary"]
    bound = 2 * small.size / (small.size + K)
    assert f"S is at most {bound:.3f}" in said
    line.put("base", SUPPORTS["base"])
    assert "at most" not in lineage(line)["summary"]


def test_a_space_of_one_family_has_a_verdict(space: Space) -> None:
    """If all models declare the same base there is no background.

    Then it is enough that the base is nearer than its other derivatives.
    """
    rng = np.random.default_rng(3)
    base = random_support(rng, M, K)
    derived = {f"m{n}": related(rng, base, 0.55 + 0.04 * n) for n in range(9)}
    space.put_all({"base": base, **derived}, {name: {"base_model": "base"} for name in derived})
    for n in range(9):
        assert "consistent" == lineage(space, f"m{n}")["verdict"]


@pytest.fixture
def signed(space: Space) -> Space:
    """A planted lineage of signatures alone."""
    for name, support in planted(2, unrelated=12).items():
        space.put_signature(name, support.signature())
    return space


def test_signatures_alone_give_estimates_with_errors(signed: Space) -> None:
    """Evidence of signatures has its error; it never contradicts a true base."""
    declare(signed, model="base", copy="model", sibling="base")
    found = lineage(signed)
    assert found["verdict"] in {"consistent", "inconclusive"}
    assert ("signature", True) == (
        found["base"]["estimate"],
        found["base"]["standard_error"] > 0.01,
    )
    assert "±" in found["summary"]
    declare(signed, model="other-0")
    assert "mismatch" == lineage(signed)["verdict"]


@pytest.mark.slow
def test_estimates_that_overlap_are_inconclusive(http: httpx.Client) -> None:
    """With 32 minhashes a nearer model may be the base or not, and the verdict says so."""
    verdicts = set()
    for seed in range(4, 10):
        space = Space(http, M, signature={"num_perm": 32})
        for name, support in planted(seed, unrelated=6).items():
            space.put_signature(name, support.signature(num_perm=32))
        declare(space, model="root")
        verdicts.add(lineage(space)["verdict"])
    assert "inconclusive" in verdicts


def test_an_unknown_model_is_a_404(line: Space) -> None:
    """An unknown model has no lineage, and an invalid name is refused."""
    answer = line.http.get(line.path("lineage"), params={"model": "nobody"})
    assert "'nobody'" in assert_problem(answer, 404, "model_not_found")
    answer = line.http.get(line.path("lineage"), params={"model": "a/../b"})
    assert_problem(answer, 422, "invalid_name", "model")
    assert_problem(line.http.get(line.path("lineage")), 422, "invalid_parameter", "model")


def test_the_SDK_reads_a_lineage(line: Space, client: modelkin.Client) -> None:
    """The client's lineage equals that of plain HTTP, typed, and its kin make a table."""
    declare(line, model="root", base="root")
    found, plain = client.lineage(line.name, "model"), lineage(line)
    assert (plain["verdict"], plain["summary"]) == (found.verdict, found.summary)
    assert [kin["model"] for kin in plain["kin"]] == list(found.to_pandas().model)
    assert found.base is not None
    assert plain["base"]["z_score"] == found.base.z_score
    assert [link["base_model"] for link in plain["chain"]] == [c.base_model for c in found.chain]


def audit(space: Space, **params: Any) -> list[dict[str, Any]]:
    """The findings of all pages."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = ok(space.http.get(space.path("lineages"), params={**params, **cursor}))
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


@pytest.mark.slow
def test_an_audit_has_the_verdict_of_every_lineage(line: Space) -> None:
    """What matters first: the declared ones, and those of no declaration that stand out.

    Pages have any size. Each has the verdict, the reason and the likely base of its own lineage.
    """
    declare(line, model="base", copy="model", sibling="other-3", base="absent")
    found = audit(line, limit=1)
    assert found == audit(line) == audit(line, limit=3)
    assert ["sibling", "root", "base", "copy", "model"] == [each["model"] for each in found]
    for each in found:
        own = lineage(line, each["model"])
        for field in ("verdict", "reason", "declared_base", "likely_base", "summary"):
            assert own[field] == each[field]
        shown = own["base"] or next(k for k in own["kin"] if k["model"] == own["likely_base"])
        assert (shown["similarity"], shown["kappa"]) == (each["similarity"], each["kappa"])
    verdicts = {each["model"]: each["verdict"] for each in found}
    assert ("unknown_base", "consistent", "undeclared", "mismatch") == tuple(
        verdicts[name] for name in ("base", "model", "root", "sibling")
    )


def test_an_audit_is_narrowed_by_verdict_and_base(line: Space) -> None:
    """To some verdicts, and to what declares one base, which shows false derivatives."""
    declare(line, model="base", sibling="base", copy="other-3", **{"other-4": "other-3"})
    of = audit(line, base_model="base")
    assert {"model": "consistent", "sibling": "consistent"} == {
        each["model"]: each["verdict"] for each in of
    }
    assert {"copy", "other-4"} == {m["model"] for m in audit(line, base_model="other-3")}
    assert ["copy"] == [each["model"] for each in audit(line, verdict="mismatch", limit=2)]
    two = audit(line, verdict=["mismatch", "undeclared"])
    assert {"copy", "root"} == {each["model"] for each in two}
    refused = line.http.get(line.path("lineages"), params={"verdict": "good"})
    assert_problem(refused, 422, "invalid_parameter")
