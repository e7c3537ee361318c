"""Answers print as short tables, on terminals and in notebooks."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import modelkin.types
from modelkin._printing import Printed, Table, excerpt, table_of
from modelkin.core.layout import Layout
from modelkin.types.checkpoints.pushed import PushedCheckpoint, PushedCheckpoints
from modelkin.types.clusterings import Assignment, Vote
from modelkin.types.kinship import (
    Donor,
    DonorExplanation,
    Donors,
    Graph,
    GraphEdge,
    GraphNode,
    SimilarityBaseline,
)
from modelkin.types.lineages import Kin, Lineage
from modelkin.types.models import ModelInfo
from modelkin.types.paging import Rows
from modelkin.types.search import Neighbor, Neighbors, SimilarityMatrix

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
ROW_TYPES = {
    *("BlockAngles", "BulkItem", "BulkResult", "Cluster", "ClusterQuality", "DeliveryAttempt"),
    *("DeclaredBase", "Donor", "DonorExplanation", "GraphEdge", "GraphNode", "HttpsFile"),
    *("HubFile",),
    *("KnownModel", "Relative", "FingerprintItem", "LikelyBase", "LineEvidence", "LineRelation"),
    *("ContradictedBase", "CopyGroup", "DeclaredLicense", "LicenseFinding", "MeasuredBase"),
    *("ReportedModel", "Saving", "TakenApart", "UndeclaredBase"),
    *("JobProgress", "Kin", "LearngeneTensor", "LineageLink", "MergeParty", "MlflowFile"),
    *("Acknowledgement", "DuplicateModel", "LineageFinding"),
    *("CheckpointItem", "Neighbor", "Page", "PublicNeighbor", "PushedCheckpoint", "Revision"),
    *("SignatureSpec", "SimilarityBaseline", "StopList"),
    *("SubspaceSpec", "SupportSizePolicy", "TensorOverlap", "TensorSummary", "Vote"),
}
"""Rows and parts of answers, and what is passed in: no method answers them by themselves."""


def neighbors(names: list[str], **other: Any) -> Neighbors:
    """Neighbours of these names, each a little farther."""
    items = tuple(Neighbor(name, 1 / (n + 2), 0.25, "exact", 0.0) for n, name in enumerate(names))
    return Neighbors(items=items, method="exact", candidates=1, degraded=False, **other)


def info(**other: Any) -> ModelInfo:
    """A model."""
    fields: dict[str, Any] = {
        "space": "s",
        "model": "org/m",
        "kind": "support",
        "support_size": 1234,
        "revision": 1,
        "version": 1,
        "tags": (),
        "attributes": {},
        "verified": True,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return ModelInfo(**fields | other)


def test_every_answer_prints_as_a_table() -> None:
    """Each type that a method answers is printed by the one module, whatever its fields."""
    named = {name: getattr(modelkin.types, name) for name in modelkin.types.__all__}
    answers = {n for n, t in named.items() if dataclasses.is_dataclass(t) and isinstance(t, type)}
    printed = {name for name in answers if named[name].__repr__ is Printed.__repr__}
    assert answers - ROW_TYPES == printed


def test_neighbors_are_a_line_each() -> None:
    """What is the same for all stands above; columns without a value are not shown."""
    assert [
        "Neighbors, 2 items",
        "model: org/a, method: exact, measure: similarity, candidates: 1",
        "model  similarity  jaccard  estimate  standard_error",
        "org/b       0.500    0.250  exact              0.000",
        "org/c       0.333    0.250  exact              0.000",
    ] == repr(neighbors(["org/b", "org/c"], model="org/a")).splitlines()


def test_the_measure_that_ranks_stands_first() -> None:
    """The ordered similarity comes right after the name, so that a terminal cannot hide it."""
    near = Neighbor("org/b", 0.79, 0.66, "exact", 0.0, 9, 0.05, 0.78, ordered_similarity=0.9)
    found = Neighbors(
        items=(near,), method="exact", measure="ordered", candidates=1, degraded=False
    )
    assert ("model", "ordered_similarity", "similarity") == table_of(found).columns[:3]
    lines = table_of(found).text(40).splitlines()
    assert "model  ordered_similarity  similarity" in lines


def test_a_record_is_a_field_a_line() -> None:
    """One model prints its fields under each other, without those that have no value."""
    lines = str(info(attributes={"digit": 7})).splitlines()
    assert "ModelInfo" == lines[0]
    assert "support_size  1,234" in lines
    assert "attributes    digit=7" in lines
    assert "created_at    2026-05-04 03:02" in lines
    assert not any(line.startswith(("source", "tags", "base_model")) for line in lines)


@settings(max_examples=40)
@given(st.lists(st.text(min_size=1, max_size=90), max_size=16), st.text(max_size=300))
def test_no_table_is_longer_than_a_screen(names: list[str], note: str) -> None:
    """Whatever the names: 20 lines and the note, of printable characters, no wider than it."""
    rows = [GraphNode(name, "support", 1, (name, note)) for name in names]
    edges = tuple(GraphEdge(name, name, 0.5, "exact", 0.0) for name in names)
    matrix = SimilarityMatrix(tuple(names), np.eye(len(names)), (), "similarity", note)
    answers: tuple[Any, ...] = (
        neighbors(names, note=note),
        Graph(nodes=tuple(rows), edges=edges, version=1, note=note),
        matrix,
        info(model=note or "m", attributes=dict.fromkeys(names, note), tags=tuple(names)),
        Rows(tuple(rows), GraphNode),
    )
    for answer in answers:
        text = table_of(answer).text(80)
        assert len(text.split("\nnote: ")[0].splitlines()) <= 20
        assert text.replace("\n", "").isprintable()
        assert all(_columns(line) <= 80 for line in text.split("\n"))


def _columns(line: str) -> int:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in line)
    return len(line) + wide - sum(unicodedata.combining(c) > 0 for c in line)


def test_a_note_is_told_whole() -> None:
    """Below the table, whatever stands above it: what it says is lost where it is cut."""
    note = "less like the members than they are like each other, " * 9 + "so compare them"
    names = tuple(f"org/client-{n}" for n in range(10))
    votes = tuple(Vote(name, 0.5, "exact", 0.0, 3) for name in names)
    placed = Assignment(
        clustering="c" * 36,
        cluster=3,
        exemplar=names[0],
        share=0.9,
        similarity=0.5,
        votes=votes,
        nearest_members=names,
        reason="none is near enough",
        note=note,
    )
    lines = table_of(placed).text(60).splitlines()
    last = next(at for at, line in enumerate(lines) if line.startswith("reason: "))
    assert any(line.startswith(names[-1]) for line in lines[:last])
    assert f"reason: none is near enough note: {note}" == " ".join(lines[last:])
    assert all(len(line) <= 60 for line in lines)
    assert f"<p><em>note</em> {note}</p>" in placed._repr_html_()
    record = table_of(info(note=note)).text(60)
    assert f"note: {note}" in record.replace("\n", " ")
    wide = table_of(neighbors(["a"], note="模型" * 60)).text(60).splitlines()
    assert "note:" + "模型" * 60 == "".join(wide[4:]).replace(" ", "")
    assert all(_columns(line) <= 60 for line in wide)


def test_a_long_answer_says_how_much_is_left() -> None:
    """Twelve rows and the number of the others."""
    lines = repr(neighbors([f"m{n}" for n in range(100)])).splitlines()
    assert "… and 88 more" == lines[-1]
    assert 12 == sum(bool(re.match(r"m\d", line)) for line in lines[3:])


def test_columns_that_do_not_fit_are_named() -> None:
    """A narrow terminal shows fewer columns, and says which are missing."""
    found = table_of(neighbors(["org/a"])).text(40).splitlines()
    assert "not shown: standard_error" == found[-1]


def test_names_keep_their_ends() -> None:
    """Names of one organization differ at their ends."""
    assert "organizatio…nt-17" == excerpt("organization/of/a/client-17", 17)


def test_reasons_of_donors_are_columns() -> None:
    """The explanation of a donor stands beside it; a reason that no donor has, does not."""
    why = DonorExplanation("holds 4 of 10", shared_indices=4)
    donor = Donor("org/a", 0.5, 1.0, "exact", 0.0, why)
    columns = table_of(Donors(items=(donor,), method="idf")).columns
    assert {"sentence", "shared_indices"} <= set(columns)
    assert "rarity" not in columns


def test_figures_that_decide_stand_before_words() -> None:
    """Of donors and of kin kappa fits on a narrow terminal; what is left out are errors."""
    why = DonorExplanation("holds 4 of 10 " * 9, shared_indices=4, z_score=2.5)
    donor = Donor("org/a", 0.5, 1.0, "exact", 0.01, why, expected=0.1, kappa=0.44)
    lines = table_of(Donors(items=(donor,), method="idf")).text(60).splitlines()
    head = next(line for line in lines if line.startswith("model "))
    assert ["model", "similarity", "weight", "kappa", "expected", "z_score"] == head.split()
    assert "holds 4 of 10 holds 4 of" in table_of(Donors(items=(donor,), method="idf")).text(150)
    assert "Donors, 1 item" == table_of(Donors(items=(donor,), method="idf")).title
    kin = Kin("org/base", 0.9, "exact", 0.0, 3.1, True, expected=0.2, kappa=0.87)
    found = Lineage(
        model="org/a",
        verdict="consistent",
        summary="it is",
        kin=(kin,),
        usual=SimilarityBaseline(0.2, 0.1, 9),
        limit=0.5,
        chain=(),
        cycle=False,
    )
    columns = table_of(found).columns
    assert ("model", "similarity", "kappa", "expected", "stands_out") == columns[:5]


def test_a_layout_prints_its_size() -> None:
    """How many tensors and parameters, and not the first of the tensors."""
    layout = Layout.of([("0.weight", (64, 64)), ("0.bias", (64,))])
    assert "2 tensors, 4,160 parameters" == excerpt(layout)
    assert "1 tensor, 3 parameters" == excerpt(Layout.of([("w", (3,))]))


def test_empty_rankings_say_so() -> None:
    """No neighbour is a title with a zero."""
    assert repr(neighbors([])).startswith("Neighbors, 0 items\n")


def test_a_secret_is_not_printed() -> None:
    """A field that is left out of ``repr`` is in neither form."""

    @dataclasses.dataclass(frozen=True, repr=False)
    class Signed(Printed):
        name: str
        secret: str = dataclasses.field(repr=False)

    made = Signed("mine", "whsec_1")
    assert "mine" in repr(made)
    assert "whsec_1" not in repr(made) + made._repr_html_()


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags = set[str]()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", '"><img src=x onerror=1>', "&lt;b&gt;", "a\x1b[2J\u202e"]
)
def test_names_are_escaped_in_notebooks(name: str) -> None:
    """A name cannot add an element to the page, and reads as it is."""
    page = _Tags()
    page.feed(neighbors([name], model=name, note=name)._repr_html_())
    table = {"table", "thead", "tbody", "tr", "th", "td"}
    assert {"div", "p", "strong", "br", "em"} | table == page.tags
    assert excerpt(name) in page.words


def test_the_html_has_the_rows_of_the_text() -> None:
    """Both forms are of one table."""
    answer = neighbors([f"m{n}" for n in range(30)])
    assert 13 == answer._repr_html_().count("<tr>")
    assert "<p>… and 18 more</p>" in answer._repr_html_()


def test_a_matrix_prints_its_corner() -> None:
    """Rows and columns are numbered as in the array, and rows named."""
    values = np.array([[1.0, 0.25], [0.25, 1.0]])
    lines = repr(SimilarityMatrix(("org/a", "org/b"), values, ())).splitlines()
    assert ["   model      0      1", "0  org/a  1.000  0.250", "1  org/b  0.250  1.000"] == lines[
        2:
    ]


def test_wide_characters_take_two_columns() -> None:
    """Tables of Japanese names stay aligned."""
    table = Table("t", (), ("model", "n"), (("模型", "1"), ("ab", "2")), (False, True))
    assert ["model  n", "模型   1", "ab     2"] == table.text(80).splitlines()[1:]


def test_a_notebook_shows_texts_as_texts() -> None:
    """Tags, attributes, marks of direction and formulas in a name or a note are text in HTML."""
    evil = "<img src=x onerror=alert(1)>\"'&\x1b[2J\u202e$\\href{javascript:alert(1)}{x}$"
    answers: tuple[Any, ...] = (
        neighbors([evil], note=evil),
        Graph(nodes=(GraphNode(evil, "support", 1, (evil,)),), edges=(), version=1, note=evil),
        SimilarityMatrix((evil, "b"), np.eye(2), (), "similarity", evil),
        info(model=evil, attributes={evil: evil}, tags=(evil,)),
        Rows((GraphNode(evil, "support", 1, (evil,)),), GraphNode),
    )
    for answer in answers:
        shown = answer._repr_html_()
        assert shown.startswith('<div class="tex2jax_ignore mathjax_ignore">')
        assert shown.isprintable()
        assert "<img" not in shown
        assert "&lt;img" in shown


def test_why_something_failed_is_told_whole() -> None:
    """In the last column, on more lines where it needs them: the typo may be in its middle."""
    why = "it has other tensors than the space: " + ", ".join(f"'layers.{n}.w'" for n in range(9))
    failed = PushedCheckpoint("acme/a", "zoo", "failed", why, path="zoo/a.safetensors")
    pushed = PushedCheckpoints.of([failed, PushedCheckpoint("acme/b", "zoo", "created")])
    for width in (60, 100):
        lines = table_of(pushed).text(width).splitlines()
        begin = lines[1].index("reason")
        assert all(len(line) <= width for line in lines)
        assert why in " ".join(line[begin:].strip() for line in lines[2:])
    assert why.replace("'", "&#x27;") in pushed._repr_html_()
