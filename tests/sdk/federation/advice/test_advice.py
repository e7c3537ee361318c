"""Advice for federations whose answer is known: planted structures, and what was measured."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from benchmarks.federation.advice import (
    MODULE,
    ROOT,
    SPLITS,
    measured,
    module_of,
    structure,
    trained,
)
from modelkin import Layout, Support
from modelkin.errors import InvalidParameter, SpaceMismatch
from modelkin.federation.advice.advice import Advice, advise
from modelkin.federation.advice.measured import MEASURED
from modelkin.federation.advice.structure import Structure, structure_of
from tests.support.federations import planted_federations

M, LAYOUT = planted_federations.M, planted_federations.LAYOUT
planted = planted_federations.planted
FOUR, APART = planted_federations.FOUR, planted_federations.APART
ALIKE = planted(np.zeros(20, np.int64), of_group=0.0, alone=0.2)


def taken(found: Advice) -> dict[str, str]:
    """The answers by their questions."""
    return {each.question: each.take for each in found.answers}


def test_a_model_for_each_group_pays() -> None:
    """Four groups that are far apart are as groups of labels: clusters, and no weights."""
    found = advise(structure_of(APART, LAYOUT))
    answers = taken(found)
    assert (4, True) == (found.structure.groups, found.is_like)
    assert tuple(FOUR) == found.structure.labels
    assert ("yes", "no") == (
        answers["a model for each group"],
        answers["weights by cover in one model"],
    )
    assert found.structure.within is not None
    assert found.structure.between is not None
    assert found.structure.within > found.structure.kappa > found.structure.between


def test_one_model_is_enough() -> None:
    """Clients that are alike have no groups: one model, and a word on groups that hide."""
    found = advise(structure_of(ALIKE, LAYOUT))
    assert (1, "even labels, IID") == (found.structure.groups, found.like.name)
    assert "no" == taken(found)["a model for each group"]
    assert "swapped" in found.answers[0].why


def test_few_clients_have_what_no_other_has() -> None:
    """Then weights by cover pay, unless these clients have most samples anyhow."""
    rare = np.where(np.arange(20) < 3, 1, 0)
    found = structure_of(planted(rare, of_group=1.4, alone=0.4), LAYOUT)
    few, many = np.where(rare, 20, 60).tolist(), np.where(rare, 90, 60).tolist()
    question = "weights by cover in one model"
    answers = [taken(advise(found, samples))[question] for samples in (None, few, many)]
    assert ["yes", "yes", "no"] == answers


def alike(kappa: float) -> Advice:
    """The advice for twenty clients without groups."""
    none = (0,) * 20, (1.0,) * 20
    return advise(Structure(20, kappa, None, None, 0.0, *none, by_tensor=True))


def test_groups_may_hide() -> None:
    """Nearest to a federation that hides its groups, clients may have some: nothing is said."""
    assert ("not known", "no") == tuple(
        taken(alike(kappa))["a model for each group"] for kappa in (0.9, 0.6)
    )
    why = alike(0.9).answers[0].why
    hidden = next(each for each in MEASURED if each.hides_groups)
    assert f"groups may hide, as there: by groups {hidden.by_groups:.3f}" in why


def test_other_ways_are_compared_with_plain_ways_of_their_own_network() -> None:
    """Their figures are of another network than those of groups, and the reason says so."""
    found = advise(structure_of(APART, LAYOUT))
    beside, mixed = found.like.beside, found.like.mixed
    expected = f"on a small perceptron {mixed:.3f}, and {beside:.3f} by the best of one model, "
    assert found.answers[1].why.startswith(expected)
    assert "not measured on two of ten labels swapped" == alike(0.9).answers[1].why


def test_what_near_federations_contradict_is_not_decided() -> None:
    """Turned images are as near to labels of which some are any, where groups do not pay."""
    labels, covers = (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2), (1.0,) * 12
    found = advise(Structure(12, 0.53, 0.81, 0.43, 0.54, labels, covers, by_tensor=False))
    assert len(found.near) > 2
    assert "not known" == found.answers[0].take
    for name in ("images turned in four ways; ", "beside 40% of any", "train both ways"):
        assert name in found.answers[0].why
    agreed = advise(Structure(12, 0.36, 0.70, 0.32, 0.41, (0, 1) * 6, covers, by_tensor=False))
    assert {each.name for each in agreed.near} >= {agreed.like.name}


def test_what_is_like_nothing_is_not_decided() -> None:
    """Twenty strangers: each answer that rests on a measured federation is open."""
    strangers = planted(np.arange(20), of_group=9.0, alone=9.0)
    found = advise(structure_of(strangers, LAYOUT))
    assert abs(found.structure.kappa) < 0.05
    assert not found.is_like
    assert 3 == [*taken(found).values()][:3].count("not known")
    (why,) = {each.why for each in found.answers[:3]}
    assert why.startswith(f"no measured federation is like it: the nearest is {found.like.name};")


def test_wrong_arguments() -> None:
    """Too few clients, other numbers of samples, another layout, other models."""
    with pytest.raises(InvalidParameter, match="3 clients or more"):
        structure_of(APART[:2])
    with pytest.raises(InvalidParameter, match="20 clients, and 1 numbers"):
        advise(structure_of(APART), [1])
    with pytest.raises(SpaceMismatch, match="parameters"):
        structure_of(APART, Layout.of((("a", (7,)),)))
    with pytest.raises(SpaceMismatch):
        structure_of([*APART, Support.from_indices([1], M + 1)])


def test_accuracies_are_those_of_the_studies() -> None:
    """Each figure of a measured federation is that of its cells, and of the guide's table."""
    for split, kept in zip(SPLITS, MEASURED, strict=True):
        assert trained(split).items() <= asdict(kept).items()
        assert split.words == kept.name


def test_the_module_is_as_written() -> None:
    """Of what it holds, its generator makes the same text."""
    assert module_of(MEASURED) == MODULE.read_text()


def cell(page: str, row: str, column: int) -> str:
    """A cell of the first row of a page's tables that begins so."""
    line = next(each for each in page.splitlines() if each.startswith(f"| {row} |"))
    return line.split("|")[column + 1].strip()


def test_figures_in_reasons_are_those_of_the_page() -> None:
    """Those of weights by cover, and of a robust mean on mixed labels."""
    found = structure_of(planted(np.where(np.arange(20) < 3, 1, 0), of_group=1.4, alone=0.4))
    why = {each.question: each.why for each in advise(found).answers}
    page = (ROOT / "docs" / "benchmarks" / "federation.md").read_text()
    heard, unheard = (cell(page, f"rare labels: {by}", 2)[:5] for by in ("cover", "samples"))
    said = f"had {heard} by cover and {unheard} by samples"
    assert said in why["weights by cover in one model"]
    _, mixed = page.split("Labels mixed, Dir(0.3): the mean accuracy of honest clients with kin")
    gain, turned = (cell(mixed, attack, 2)[1:] for attack in ("nobody attacks", "signs turned"))
    said = f"where nobody did, it gained {gain} over FedAvg; where 4 of 20 turned signs, "
    assert why["a robust mean by kin"].endswith(said + turned[:5])


@pytest.mark.slow
def test_a_structure_is_as_measured() -> None:
    """Of one more seed, what training in every way gave is the answer, or none is."""
    for split, expected in (("labels", "yes"), ("noisy labels", "no")):
        found = advise(structure(split, 7))
        assert taken(found)["a model for each group"] in {expected, "not known"}
    assert "no" == taken(advise(structure("dirichlet 0.1", 3)))["a model for each group"]


@pytest.mark.slow
def test_a_structure_is_as_kept() -> None:
    """What is kept of one split is what its clients' supports show, over the same seeds."""
    at = [split.name for split in SPLITS].index("noisy labels")
    found, kept = measured(SPLITS[at]), MEASURED[at]
    assert asdict(kept) == pytest.approx(asdict(found), abs=0.005)
