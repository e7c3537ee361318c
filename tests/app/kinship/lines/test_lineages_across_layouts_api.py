"""Lineages of models of a space whose bases are of another layout, and lines beside S."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from modelkin import Support
from tests.app.kinship.lines.conftest import NEW, OLD, Fingerprints, planted, words
from tests.support.http_space import random_support, related

M, K = 10_000, 500
_names = (f"across-{number}" for number in itertools.count())


class Family:
    """A space with a base, a model that is made from it, and strangers.

    Args:
        stored: the fingerprints of the same tenant.
        fields: of the space.
    """

    def __init__(self, stored: Fingerprints, **fields: Any) -> None:
        self._http, self.name = stored.app.http, next(_names)
        made = self._http.post(
            "/v1/spaces", json={"name": self.name, "num_parameters": M, **fields}
        )
        assert 201 == made.status_code, made.text
        rng = np.random.default_rng(1)
        base = random_support(rng, M, K)
        self.supports: dict[str, Support] = {"base": base, "model": related(rng, base, 0.8)}
        self.supports |= {f"other-{i}": random_support(rng, M, K) for i in range(5)}
        for name, support in self.supports.items():
            stored.app.put_support(self.name, name, support)

    def declare(self, model: str, *bases: str) -> None:
        """Declare the bases of a model."""
        fields: dict[str, Any] = {"base_models": list(bases)}
        if len(bases) == 1:
            fields = {"base_model": bases[0]}
        answer = self._http.patch(f"/v1/spaces/{self.name}/models/{model}", json=fields)
        assert 200 == answer.status_code, answer.text

    def lineage(self, model: str = "model") -> dict[str, Any]:
        """The lineage of a model."""
        answer = self._http.get(f"/v1/spaces/{self.name}/lineage", params={"model": model})
        assert 200 == answer.status_code, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def findings(self, **params: Any) -> list[dict[str, Any]]:
        """The findings of the audit."""
        answer = self._http.get(f"/v1/spaces/{self.name}/lineages", params=params)
        assert 200 == answer.status_code, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        return found


@pytest.fixture
def space(stored: Fingerprints) -> Family:
    return Family(stored)


def test_a_base_of_another_layout_is_judged_by_lines(stored: Fingerprints, space: Family) -> None:
    """It is no unknown base any more, and the audit lists it with its share."""
    space.declare("model", "small")
    assert ("unknown_base", None, None) == words(space.lineage())
    stored.put("small", planted("base"))
    assert "unknown_base" == space.lineage()["verdict"]  # the model has no fingerprint
    stored.put("model", planted("up-scaled"))
    found = space.lineage()
    assert ("consistent", "lines", "depth_up_scaled") == words(found)
    assert (None, None) == (found["base"], found["lines_agree"])
    assert 1.0 == found["lines"]["share_of_lines"]
    assert found["log10_p"] == found["lines"]["log10_p"]
    assert None is found["no_p"]
    assert "It is not in this space, so S says nothing of it." in found["summary"]
    [link] = found["chain"]
    assert ("small", None, 1.0) == (
        link["base_model"],
        link["similarity"],
        link["share_of_lines"],
    )
    finding = next(each for each in space.findings() if each["model"] == "model")
    assert ("consistent", "lines", 1.0) == tuple(
        finding[field] for field in ("verdict", "reason", "share_of_lines")
    )


def test_a_base_of_another_layout_is_contradicted(stored: Fingerprints, space: Family) -> None:
    """The audit finds it, with the model that the lines are of."""
    stored.put("claimed", planted("stranger"), published_at=OLD)
    stored.put("true", planted("base"), published_at=OLD)
    stored.put("model", planted("tuned"), published_at=NEW)
    space.declare("model", "claimed")
    found = space.lineage()
    assert ("mismatch", "lines", None) == words(found)
    assert "true" == found["likely_base"]
    [finding] = space.findings(verdict="mismatch")
    assert ("model", "claimed", "true", "lines") == tuple(
        finding[field] for field in ("model", "declared_base", "likely_base", "reason")
    )


def test_lines_offer_a_root_no_child_of_its_own(stored: Fingerprints, space: Family) -> None:
    """Where S or lines alone show that others are made from it, and beside a copy."""
    space.declare("model", "base")
    for name in ("base", "other-0"):
        stored.put(name, planted("base"))  # by S, other-0 is a stranger
    found = space.lineage("base")
    assert ("undeclared", None) == (found["verdict"], found["likely_base"])
    assert "others declare this one: it is the root of a family." in found["summary"]
    assert "base" == space.lineage("other-0")["likely_base"]
    assert ["other-0"] == [each["model"] for each in space.findings(verdict="undeclared")]
    stored.put("other-1", planted("tuned"), base_models=("other-0",))
    space.declare("other-1", "other-0")
    assert "base" == space.lineage("other-0")["likely_base"]  # two roots are one each
    assert "other-0" == space.lineage("base")["likely_base"]
    assert [] == space.findings(verdict="undeclared")  # they are among the copies


def test_a_root_by_lines_is_offered_no_child_by_s(stored: Fingerprints, space: Family) -> None:
    """What declares it may have another layout, or be in no space."""
    assert "model" == space.lineage("base")["likely_base"]
    stored.put("base", planted("base"))
    stored.put("made", planted("tuned"), base_models=("base",))
    found = space.lineage("base")
    assert ("undeclared", None) == (found["verdict"], found["likely_base"])
    assert "'model', which declares none, may be made from it" in found["summary"]
    assert "base" == space.lineage("model")["likely_base"]


def test_lines_agree_with_s_within_a_layout(stored: Fingerprints, space: Family) -> None:
    """S keeps its verdict and reason, and the answer says that lines come to the same."""
    space.declare("model", "base")
    before = space.lineage()
    assert (None, None) == (before["lines"], before["lines_agree"])
    stored.put("base", planted("base"))
    stored.put("model", planted("tuned"))
    found = space.lineage()
    kept = ("verdict", "reason", "base", "kin", "usual", "limit", "declared_base")
    assert [before[field] for field in kept] == [found[field] for field in kept]
    assert ("consistent", True) == (found["verdict"], found["lines_agree"])
    assert "By lines, too: 62% of the model's lines are the declared base's." in found["summary"]


def test_where_lines_and_s_disagree_the_answer_says_why(
    stored: Fingerprints, space: Family
) -> None:
    """S of a permuted copy is that of strangers; lines find it wherever its rows stand."""
    space.declare("model", "other-1")
    stored.put("other-1", planted("base"))
    stored.put("model", planted("permuted units"))
    found = space.lineage()
    assert ("mismatch", False) == (found["verdict"], found["lines_agree"])
    assert "background" == found["reason"]
    assert "consistent" == found["lines"]["verdict"]
    assert "Lines say otherwise: 88% of the model's lines" in found["summary"]
    assert "may find nothing where rows, columns or units were put" in found["summary"]


def test_lines_may_contradict_what_s_confirms(stored: Fingerprints, space: Family) -> None:
    """As where the fingerprint of a name is not of the file that its support is of."""
    space.declare("model", "base")
    stored.put("base", planted("stranger"), published_at=OLD)
    stored.put("elsewhere", planted("base"), published_at=OLD)
    stored.put("model", planted("tuned"), published_at=NEW)
    found = space.lineage()
    assert ("consistent", False) == (found["verdict"], found["lines_agree"])
    assert "mismatch" == found["lines"]["verdict"]
    assert "Lines say otherwise: no line of the declared base is found" in found["summary"]
    assert "those of 'elsewhere'. A support and a fingerprint of one name" in found["summary"]


@pytest.mark.slow
def test_lines_that_leave_it_open_contradict_no_s(stored: Fingerprints, space: Family) -> None:
    """A base that S confirms may have no line left."""
    space.declare("model", "base")
    stored.put("base", planted("stranger"))
    stored.put("model", planted("tuned"))
    found = space.lineage()
    assert ("consistent", None) == (found["verdict"], found["lines_agree"])
    assert "Lines alone neither confirm nor contradict the declared base" in found["summary"]


def test_a_doubted_base_elsewhere_leaves_a_likely_one(stored: Fingerprints, space: Family) -> None:
    """Lines that find nothing prove nothing; what stands out in the space is told of."""
    space.declare("model", "small")
    stored.put("small", planted("stranger"))
    stored.put("model", planted("tuned"))
    found = space.lineage()
    assert ("inconclusive", "base") == (found["verdict"], found["likely_base"])
    assert "'base' is the nearest model that stands out" in found["summary"]
    assert ["base"] == [
        each["likely_base"] for each in space.findings() if each["model"] == "model"
    ]
    assert "declares small, and is near base" in stored.app.http.get("/").text


def test_data_that_are_alike_are_no_undeclared_kin(stored: Fingerprints) -> None:
    """In a federation all clients of a group are near each other, and none has a base."""
    layout = [{"name": "body", "shape": [M]}]
    space = Family(stored, layout=layout, importance={"kind": "fisher"})
    assert "base" == space.lineage()["likely_base"]
    assert [] == space.findings(verdict="undeclared")


def test_a_likely_base_is_looked_for_among_fingerprints(
    stored: Fingerprints, space: Family
) -> None:
    """Where nothing in the space stands out, and nothing is declared."""
    stored.put("other-2", planted("transposed"))
    stored.put("elsewhere", planted("base"))
    found = space.lineage("other-2")
    assert ("undeclared", "elsewhere") == (found["verdict"], found["likely_base"])
    assert "copy" == found["likely_by_lines"]["edge"]
    [finding] = [each for each in space.findings() if each["model"] == "other-2"]
    assert ("elsewhere", 1.0) == (finding["likely_base"], finding["share_of_lines"])
    stored.put("model", planted("transposed"))
    assert "base" == space.lineage("model")["likely_base"]  # S stands first in its own space


def test_p_is_of_the_declared_base_where_s_is_measured(stored: Fingerprints) -> None:
    """Without one it is of the likely base, which lines may have found."""
    layout = [{"name": "body", "shape": [M]}]
    space = Family(stored, layout=layout, importance={"kind": "weight"})
    stored.put("other-2", planted("transposed"))
    stored.put("elsewhere", planted("base"))
    found = space.lineage("other-2")
    assert found["log10_p"] == found["likely_by_lines"]["log10_p"] < -100
    space.declare("other-2", "other-1")
    found = space.lineage("other-2")
    assert ("mismatch", "chance", "elsewhere", 0.0, None) == tuple(
        found[field] for field in ("verdict", "reason", "likely_base", "log10_p", "no_p")
    )


@pytest.mark.slow
def test_a_loop_across_layouts_is_a_cycle(stored: Fingerprints, space: Family) -> None:
    """The declarations of fingerprints go on where those of the space end."""
    stored.put("elsewhere", planted("base"), base_models=("model",))
    stored.put("model", planted("tuned"))
    space.declare("model", "elsewhere")
    found = space.lineage()
    assert ("cycle", None, True) == (found["verdict"], found["reason"], found["cycle"])
    assert ["elsewhere", "model"] == [each["base_model"] for each in found["chain"]]


@pytest.mark.slow
def test_bases_of_both_kinds_are_judged_each_by_its_own(
    stored: Fingerprints, space: Family
) -> None:
    """One in the space by S, one of another layout by lines."""
    stored.put("elsewhere", planted("base"))
    stored.put("model", planted("tuned"))
    space.declare("model", "base", "elsewhere", "gone")
    bases = {each["base_model"]: each for each in space.lineage()["declared_bases"]}
    assert {
        "base": ("consistent", "stands_out"),
        "elsewhere": ("consistent", "lines"),
        "gone": ("unknown_base", None),
    } == {name: (each["verdict"], each["reason"]) for name, each in bases.items()}
