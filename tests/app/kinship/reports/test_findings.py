"""The tables of a report: what counts as a base, a copy, another licence; what is saved."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.kinship.reports.composing import compose
from app.kinship.reports.known import KnownModel, Likeness
from modelkin.core.fingerprints.sources import Verdict
from modelkin.types.reports import Report
from tests.app.kinship.reports.planted import (
    BEGIN,
    HOSTILE,
    REPORT_ID,
    evidence,
    like,
    model,
)


@pytest.fixture(scope="module")
def report() -> Report:
    """The report of the planted models."""
    return compose(REPORT_ID, evidence())


def report_of(models: list[KnownModel], kin: list[Likeness], **changed: Any) -> Report:
    """The report of some models and of what they are to each other."""
    given = {"models": {each.name: each for each in models}, "likenesses": kin}
    return compose(REPORT_ID, evidence(**{"contradicted": [], "merges": [], **given, **changed}))


def undeclared(report: Report) -> dict[str, str]:
    """The bases that nobody declared, by model."""
    return {each.model: each.base for each in report.undeclared}


def test_an_older_model_with_enough_lines_is_an_undeclared_base(report: Report) -> None:
    """The one with most lines is named, the greatest share first; a sibling is none."""
    assert [("org/mirror", 1.0), ("org/silent", 0.93), (HOSTILE, 0.4)] == [
        (each.model, each.share) for each in report.undeclared
    ]
    assert {"meta/base"} == {each.base for each in report.undeclared}


@pytest.mark.parametrize(
    ("share", "verdict", "days", "expected"),
    [
        (0.05, "derived", 1, {"child": "base"}),
        (0.04, "derived", 1, {}),
        (0.9, "reuses", 1, {}),
        (0.9, "derived", -1, {"base": "child"}),
        (0.01, "part", 1, {"child": "base"}),
        (0.01, "part", -1, {}),
    ],
)
def test_lines_alone_need_a_share_and_a_date(
    share: float, verdict: Verdict, days: int, expected: dict[str, str]
) -> None:
    """Below a twentieth of the lines there is no base, nor in few tensors; a younger is none."""
    base, child = model("base", 1), model("child", 1 + days)
    kin = [Likeness("child", "base", verdict, share, -300.0)]
    if verdict != "part":
        kin.append(Likeness("base", "child", verdict, share, -300.0))
    assert expected == undeclared(report_of([base, child], kin))


def test_without_dates_of_publication_nobody_is_the_base() -> None:
    """When a service stored two models says nothing of their age."""
    base, child = (model(name, days, published_at=None) for name, days in (("a", 1), ("b", 5)))
    kin = like("b", "a", "derived", 0.9)
    report = report_of([base, child], kin)
    assert {} == undeclared(report)
    assert any(note.startswith("2 models declare no base") for note in report.notes)
    made = model("made", 6, published_at=None, declared=("a",))
    report = report_of([base, child, made], [*kin, *like("made", "a", "derived", 0.9)])
    assert any(note.startswith("1 model declares no base") for note in report.notes)
    dated = [model("a", 1), model("b", 5)]
    assert not any("says which came first" in note for note in report_of(dated, kin).notes)


def test_what_a_declared_base_explains_is_no_base() -> None:
    """Two fine-tunes of one base share its lines; a second parent that is no kin of it is named."""
    base, other = model("base", -9), model("other", -9)
    first, second = (model(name, days, declared=("base",)) for name, days in (("a", 1), ("b", 2)))
    kin = [
        *like("a", "base", "derived", 0.6),
        *like("b", "base", "derived", 0.6),
        *like("b", "a", "derived", 0.5),
        *like("b", "other", "derived", 0.2),
    ]
    assert {"b": "other"} == undeclared(report_of([base, other, first, second], kin))


@pytest.mark.parametrize(("verdict", "expected"), [("derived", {}), ("assembled", {"c": "far"})])
def test_kin_in_common_explain_a_base(verdict: str, expected: dict[str, str]) -> None:
    """Of a popular family only the nearest kin are stored; a merge of both is no common origin."""
    base, far = model("base", -9), model("far", -8)
    between = model("between", 3, declared=("base", "far"), verdict=verdict)
    child = model("c", 2, declared=("base",))
    kin = [
        *like("c", "base", "derived", 0.6),
        *like("c", "far", "derived", 0.4),
        *like("c", "between", "derived", 0.3),
        *like("between", "base", "derived", 0.5),
        *like("between", "far", "derived", 0.5),
    ]
    assert expected == undeclared(report_of([base, far, between, child], kin))


@pytest.mark.parametrize(("verdict", "expected"), [("derived", {}), ("average", {"c": "far"})])
def test_a_chain_of_kin_explains_a_base(verdict: str, expected: dict[str, str]) -> None:
    """None of the kin of what was found need be kin of the model, nor of its base."""
    base, far = model("base", -9), model("far", -8)
    middle = model("middle", 3, declared=("far", "near"), verdict=verdict)
    near = model("near", 1, declared=("base",), verdict="derived")
    child = model("c", 2, declared=("base",))
    kin = [
        *like("c", "base", "derived", 0.6),
        *like("c", "far", "derived", 0.1),
        *like("far", "middle", "derived", 0.5),
        *like("middle", "near", "derived", 0.5),
        *like("near", "base", "derived", 0.5),
    ]
    assert expected == undeclared(report_of([base, far, middle, near, child], kin))


def test_models_that_declare_each_other_are_no_undeclared_bases() -> None:
    """A loop of declarations is no finding of this table, and does not end in one."""
    first = model("a", 1, declared=("b",))
    second = model("b", 2, declared=("a",))
    report = report_of([first, second], like("a", "b", "derived", 0.6))
    assert {} == undeclared(report)
    assert 1 == len(report.savings)


def test_copies_are_grouped_with_the_oldest_first(report: Report) -> None:
    """Equal digests of all weights make an exact copy; lines alone make copies of copies, too."""
    assert [(("meta/base", "org/mirror"), True, 14_000_000_000)] == [
        (each.models, each.is_exact, each.bytes) for each in report.copies
    ]
    chain = [model(name, days) for name, days in (("c", 3), ("a", 1), ("b", 2))]
    kin = [*like("a", "b", "copy", 0.995), *like("b", "c", "copy", 0.992)]
    [group] = report_of(chain, kin).copies
    assert (("a", "b", "c"), 0.992, False) == (group.models, group.share, group.is_exact)


def test_a_licence_that_is_not_that_of_a_base_is_told(report: Report) -> None:
    """Both stand beside each other; none is called right, and equal ones are not told."""
    assert {
        ("org/silent", None, "llama-license", "missing"),
        ("org/blend", "apache-2.0", "llama-license", "differs"),
        ("org/blend", "apache-2.0", "mit", "differs"),
        ("org/tuned", "apache-2.0", "llama-license", "differs"),
        (HOSTILE, "apache-2.0", "llama-license", "differs"),
    } == {(f.model, f.license, f.base_license, f.kind) for f in report.license_findings}


@pytest.mark.parametrize("spelling", ["Apache-2.0", "apache 2.0", "APACHE_2.0"])
def test_one_licence_has_many_spellings(spelling: str) -> None:
    """Case and separators make no other licence."""
    models = [model("base", -9), model("child", 1, declared=("base",), license=spelling)]
    assert () == report_of(models, like("child", "base", "derived", 0.6)).license_findings


def test_licences_are_counted_as_they_are_declared(report: Report) -> None:
    """Of the models that the report is about, the most frequent first; none counts, too."""
    counted = {each.license: each.models for each in report.licenses}
    assert {"apache-2.0": 6, None: 1, "llama-license": 1, "見本": 1} == counted


def test_savings_are_half_of_the_lines_and_all_of_an_exact_copy(report: Report) -> None:
    """A model is stored beside the one with most of its lines, and exact copies take nothing."""
    assert {
        "org/mirror": 14_000_000_000,
        "org/silent": 6_510_000_000,
        "org/blend": 4_900_000_000,
        "org/tuned": 4_060_000_000,
        HOSTILE: 2_800_000_000,
    } == {each.model: each.saved for each in report.savings}
    assert sum(each.saved for each in report.savings) == report.size.saved


def test_the_figures_count_the_tables(report: Report) -> None:
    """What a reader counts in the tables is what the figures say."""
    size = report.size
    assert (9, 8, 163) == (size.models, size.new, size.fingerprints)
    assert (1, 4, 3) == (size.contradicted, size.declared, size.undeclared)
    assert (1, 1, 5) == (size.copies, size.merges, size.licenses)
    assert [each.model for each in report.models] == sorted(each.model for each in report.models)


def test_a_table_has_an_end_and_the_figures_count_all() -> None:
    """A hub of a hundred thousand models has a report that can be read, and a note says so."""
    models = {f"org/{n}": model(f"org/{n}", 1) for n in range(30)}
    report = compose(REPORT_ID, evidence(models=models, likenesses={}), most=20)
    assert (20, 30) == (len(report.models), report.size.models)
    assert report.notes[-1].startswith("The table of models holds 20 of 30 rows")


def test_the_lines_that_matter_are_five_sentences(report: Report) -> None:
    """Each begins with its subject, and has its figure and an example."""
    about = ["Declared bases", "Undeclared bases", "Licences", "Copies and merges", "Storage"]
    whose = " of these 9 models"  # of 163, which other pages count
    assert [each + whose for each in about] == [x.partition(":")[0] for x in report.headlines]
    assert (
        "Declared bases of these 9 models: 1 of 4 declared bases that could be judged is "
        "contradicted by the weights: lab/other as the base of org/wrong."
    ) == report.headlines[0]
    assert "3 models share weights with an older one" in report.headlines[1]
    storage = "Storage of these 9 models: storing differences to bases and copies would"
    assert report.headlines[4].startswith(storage)


def test_where_nothing_was_found_the_lines_say_so() -> None:
    """An empty report has the same five lines, and claims nothing."""
    report = report_of([], [], judged=0, unknown=0, fingerprints=0)
    assert 5 == len(report.headlines)
    assert "Copies and merges: none was found." == report.headlines[3]
    assert (
        "Storage: nobody has stated how large the files are, so no saving is estimated."
        == (report.headlines[4])
    )


def test_no_sentence_of_a_report_accuses_anybody(report: Report) -> None:
    """A report has facts: it never says that anything is stolen, or whose fault it is."""
    said = " ".join((report.opening, *report.headlines, *report.notes)).casefold()
    assert not {"stolen", "theft", "violat", "infring", "illegal"} & {
        word for word in ("stolen", "theft", "violat", "infring", "illegal") if word in said
    }
    assert "does not say what follows from them" in said


def test_a_report_about_a_time_says_what_is_new_in_it() -> None:
    """Models that were measured again are told apart from new ones."""
    known = model("old", 1, is_new=False, stored_at=BEGIN - timedelta(days=9))
    report = report_of([known, model("new", 2)], [])
    assert "The report is about 2 models: 1 new, and 1 changed or measured again." in report.opening
    assert {"old": False, "new": True} == {each.model: each.is_new for each in report.models}
