"""The forms of a report: a page, a table, a bill of materials, and the badge of a model."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from pydantic import TypeAdapter

from app.kinship.reports.composing import compose
from app.kinship.reports.records import Document
from app.kinship.reports.renderings.badge import badge, words_of
from app.kinship.reports.renderings.bill_of_materials import bill_of_materials
from app.kinship.reports.renderings.kept import beginning, json_pieces, rows_in
from app.kinship.reports.renderings.page import MAX_SHOWN, STYLE_SOURCE
from app.kinship.reports.renderings.spreadsheet import COLUMNS, spreadsheet
from modelkin.types.reports import Report
from tests.app.kinship.reports.planted import (
    END,
    HOSTILE,
    REPORT_ID,
    TURNED,
    evidence,
    lines_of,
    model,
    page_of,
)

TABLES = (
    *("contradicted", "undeclared", "copies", "merges", "license_findings", "licenses"),
    *("savings", "models"),
)
NAMES = ["-1+cmd|' /C calc'!A0", "@SUM(1)", "+1", "\t=1", "=1", "'=1"]
"""Names that a spreadsheet would compute."""


def written(pieces: Iterable[bytes]) -> bytes:
    """A form of a report, as it is sent piece by piece."""
    return b"".join(pieces)


def table_of(report: Report) -> str:
    """The table of a report."""
    return written(spreadsheet(rows_in(lines_of(report)))).decode("utf-8-sig")


@pytest.fixture(scope="module")
def report() -> Report:
    """The report of the planted models."""
    return compose(REPORT_ID, evidence())


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_loads_and_runs_nothing(report: Report) -> None:
    """It is one file: no script, no link, no picture, and no tag of a model's name."""
    read = Tags(page_of(report))
    names = {tag for tag, _ in read.tags}
    assert set() == names & {"script", "link", "img", "iframe", "object", "a", "form", "b", "i"}
    attributes = {name for _, attrs in read.tags for name in attrs}
    assert set() == attributes & {"src", "href", "style", "onload", "onclick"}
    assert "url(" not in page_of(report)


def test_a_page_shows_hostile_names_as_they_are_written(report: Report) -> None:
    """A name is text: its tags are seen, and what turns a line's direction is written out."""
    read = Tags(page_of(report))
    assert HOSTILE in read.text
    assert TURNED not in read.text
    assert r"org/safe\u202egpj.exe" in read.text
    assert "モデル/日本語" in read.text


def test_a_page_has_one_style_which_its_policy_names(report: Report) -> None:
    """The hash is of the very text of the style, which browsers compute again."""
    [style] = re.findall(r"<style>(.*?)</style>", page_of(report), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" == STYLE_SOURCE
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style


def test_a_page_has_the_lines_that_matter_before_any_table(report: Report) -> None:
    """A reader who reads no further knows what was found."""
    text = page_of(report)
    assert text.index("What matters") < text.index("<table")
    for line in report.headlines:
        subject = line.partition(":")[0]
        assert text.index(f"<strong>{subject}</strong>") < text.index("<table")


def test_a_long_table_goes_on_elsewhere() -> None:
    """The page shows the first rows, and says how many more the other forms have."""
    models = {f"org/{n:04}": model(f"org/{n:04}", 1) for n in range(MAX_SHOWN + 3)}
    text = page_of(compose(REPORT_ID, evidence(models=models, likenesses={})))
    assert "3 more rows are in the report as CSV and JSON." in text
    assert f"org/{MAX_SHOWN - 1:04}" in text
    assert f"org/{MAX_SHOWN:04}" not in text


def cells_of(report: Report) -> list[dict[str, str]]:
    """The rows of the table of a report, as a spreadsheet reads them."""
    return list(csv.DictReader(io.StringIO(table_of(report))))


def test_a_table_has_a_row_for_each_finding(report: Report) -> None:
    """Findings of all kinds are in one table, whose first column says which."""
    rows = cells_of(report)
    assert {
        *("contradicted_base", "undeclared_base", "exact_copy", "average", "license_differs"),
        *("license_missing", "saving", "new_model", "changed_model"),
    } == {row["finding"] for row in rows}
    assert list(COLUMNS) == list(rows[0])
    [wrong] = [row for row in rows if row["finding"] == "contradicted_base"]
    assert ("org/wrong", "lab/other", "-0.1") == (wrong["model"], wrong["other"], wrong["log10_p"])
    [silent] = [r for r in rows if (r["finding"], r["model"]) == ("undeclared_base", "org/silent")]
    assert ("meta/base", "0.93", "-2610.0", "no") == (
        *(silent["other"], silent["share"], silent["log10_p"], silent["declared"]),
    )


def test_no_cell_of_a_table_is_a_formula() -> None:
    """A text that a spreadsheet would compute gets an apostrophe before it; numbers do not."""
    models = {name: model(name, 1, license="=1+1") for name in NAMES}
    rows = cells_of(compose(REPORT_ID, evidence(models=models, likenesses={})))
    shown = {row["model"] for row in rows if row["finding"] == "new_model"}
    assert {name.replace("\t", "\\t") for name in NAMES} == {cell[1:] for cell in shown}
    assert {"'"} == {cell[0] for cell in shown}
    assert {"'=1+1"} == {row["license"] for row in rows if row["license"]}


def documents(report: Report) -> dict[str, Any]:
    """The bill of materials of a report."""
    made: dict[str, Any] = json.loads(written(bill_of_materials(report)))
    return made


def fault_of(text: str) -> object:
    """What the library's own validator finds wrong with a document, in its strict form."""
    # Its import compiles grammars for seconds, in each process that collects this file.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)


def test_a_bill_of_materials_is_valid(report: Report) -> None:
    """By the library's own validator, in its strict form."""
    text = written(bill_of_materials(report)).decode()
    assert fault_of(text) is None


def test_a_bill_of_materials_has_each_model_with_its_pedigree(report: Report) -> None:
    """Bases are ancestors, other kin are variants; hashes are of weights, licences as declared."""
    found = {each["bom-ref"]: each for each in documents(report)["components"]}
    assert 9 == len(found)
    assert {"machine-learning-model"} == {each["type"] for each in found.values()}
    silent = found["model:org/silent"]
    assert ["base"] == [each["name"] for each in silent["pedigree"]["ancestors"]]
    assert ["tuned"] == [each["name"] for each in silent["pedigree"]["variants"]]
    assert "Equal lines mean a common origin" in silent["pedigree"]["notes"]
    assert {"base", "other"} == {
        each["name"] for each in found["model:org/blend"]["pedigree"]["ancestors"]
    }
    assert [64 * "b"] == [each["content"] for each in found["model:org/mirror"]["hashes"]]
    tuned = found["model:org/tuned"]["licenses"][0]["license"]
    assert {"id": "Apache-2.0", "acknowledgement": "declared"} == tuned
    assert "llama-license" == found["model:org/mirror"]["licenses"][0]["license"]["name"]


def test_the_hub_of_a_bill_of_materials_depends_on_all_models(report: Report) -> None:
    """And none of these on another one: what was made of what stands in pedigrees."""
    document = documents(report)
    depends = {each["ref"]: each.get("dependsOn") for each in document["dependencies"]}
    models = [each["bom-ref"] for each in document["components"]]
    assert {"hub": sorted(models), **dict.fromkeys(models)} == depends


def test_a_bill_of_materials_says_what_was_measured(report: Report) -> None:
    """Figures stand as properties of their own name space, and the fingerprint as evidence."""
    found = {each["bom-ref"]: each for each in documents(report)["components"]}
    wrong = {each["name"]: each["value"] for each in found["model:org/wrong"]["properties"]}
    assert ("lab/other", "lab/other") == (
        *(wrong["modelkin:declared_base"], wrong["modelkin:contradicted_base"]),
    )
    [evidence_] = found["model:org/silent"]["externalReferences"]
    assert ("evidence", "/v1/fingerprints/org/silent") == (evidence_["type"], evidence_["url"])


def test_a_bill_of_materials_says_what_is_left_out() -> None:
    """It holds the models that the report holds, and how many there are beside these."""
    document = documents(compose(REPORT_ID, evidence(), most=4))
    assert 4 == len(document["components"])
    left = {each["name"]: each["value"] for each in document["metadata"]["properties"]}
    assert "5" == left["modelkin:models:left_out"]


def test_a_long_bill_of_materials_is_one_valid_document() -> None:
    """The library writes a few models at a time; together they have one hub, each name once."""
    models = {f"org/{n:04}": model(f"org/{n:04}", 1) for n in range(130)}
    text = written(bill_of_materials(compose(REPORT_ID, evidence(models=models, likenesses={}))))
    assert fault_of(text.decode()) is None
    document = json.loads(text)
    refs = [each["bom-ref"] for each in document["components"]]
    assert [f"model:{name}" for name in models] == refs
    [hub] = [each for each in document["dependencies"] if "dependsOn" in each]
    assert ("hub", refs) == (hub["ref"], hub["dependsOn"])


def test_names_that_are_written_alike_are_two_components() -> None:
    """One with a mark of direction, and one with the letters by which that is shown."""
    names = ["a\u202eb", r"a\u202eb"]
    report = compose(REPORT_ID, evidence(models={n: model(n, 1) for n in names}, likenesses={}))
    text = written(bill_of_materials(report)).decode()
    assert fault_of(text) is None
    assert 2 == len({each["bom-ref"] for each in json.loads(text)["components"]})


def test_a_report_is_kept_as_json_that_is_read_by_rows(report: Report) -> None:
    """It is the JSON of the report, and its lines give the same rows, all or the first."""
    kept = Document.of(json_pieces(report))
    text = written(kept.pieces())
    assert (len(text), report) == (kept.size, TypeAdapter(Report).validate_json(text))
    assert [row for name in TABLES for row in getattr(report, name)] == [*rows_in(kept.lines())]
    first, counts = beginning(kept.lines(), 2)
    assert report.models[:2] == first.models
    assert (report.headlines, len(report.models)) == (first.headlines, counts["models"])


def test_an_empty_report_is_read_again() -> None:
    """Tables without a row have two lines and no more."""
    empty = compose(REPORT_ID, evidence(models={}, likenesses={}, contradicted=(), merges=()))
    kept = Document.of(json_pieces(empty))
    assert empty == beginning(kept.lines(), 2)[0]
    assert [] == list(rows_in(kept.lines()))


def test_the_same_report_has_the_same_forms(report: Report) -> None:
    """Bytes follow from the report alone, so that whoever has two can compare them."""
    again = compose(REPORT_ID, evidence())
    assert page_of(report) == page_of(again)
    assert table_of(report) == table_of(again)
    assert written(bill_of_materials(report)) == written(bill_of_materials(again))


@pytest.mark.parametrize(
    ("verdict", "models", "expected"),
    [
        ("copy", ["a"], "a copy of a"),
        ("derived", ["a"], "shares weights with a"),
        ("reuses", ["a"], "reuses tensors of a"),
        ("average", ["a", "b"], "average of a and b"),
        ("assembled", ["a", "b", "c"], "assembled of 3 models"),
        ("unknown", [], "no other model found in them"),
        (None, [], "not measured yet"),
    ],
)
def test_a_badge_says_what_a_model_is(
    verdict: str | None, models: list[str], expected: str
) -> None:
    """In the words of anatomies; who made what of whom it does not say."""
    assert expected == words_of(verdict, models)


@pytest.mark.parametrize("name", [HOSTILE, TURNED, "a" * 500, "モデル/日本語", "]]>&\"'"])
def test_a_badge_is_a_picture_whatever_the_name(name: str) -> None:
    """A hostile name is text in it: the picture has no script, no link, and bounded width."""
    root = ElementTree.fromstring(badge(f"a copy of {name}", "copy", END))
    svg = "{http://www.w3.org/2000/svg}"
    assert {"svg", "title", "clipPath", "rect", "g", "text"} == {
        each.tag.removeprefix(svg) for each in root.iter()
    }
    assert float(root.attrib["width"]) < 700
    assert root.attrib["aria-label"].endswith(", measured 2026-11-29")
    assert "\u202e" not in root.attrib["aria-label"]
