"""Spaces that state the importance of their supports and leave tensors out."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping
from typing import Any

import httpx
import networkx
import numpy as np
import pytest

import modelkin
from modelkin import Importance, Layout
from tests.support.http_space import Space, assert_problem, family, ok

BASE = "org/base@sha256:" + "9f2c" * 16
OTHER_BASE = "sha256:" + "07" * 32
TENSORS = (("conv.weight", (30, 20)), ("bn.running_mean", (30,)), ("bn.running_var", (30,)))
NAMES = (f"importance-{number}" for number in itertools.count())
LAYOUT = [{"name": name, "shape": list(shape)} for name, shape in TENSORS]
SLOW_TO_MATCH = {
    "layout": [{"name": f"{number:04}{'a' * 496}", "shape": [1]} for number in range(1700)],
    "exclude": [f"*{'a' * 250}b{number}*" for number in range(32)],
}
"""A megabyte that keeps a matcher busy for seconds."""


def make(http: httpx.Client, name: str, **body: Any) -> httpx.Response:
    """POST a space, of 1000 parameters unless it has a layout."""
    size = {} if "layout" in body else {"num_parameters": 1000}
    return http.post("/v1/spaces", json={"name": name, **size, **body})


@pytest.mark.parametrize(
    "stated",
    [
        {"kind": "fisher"},
        {"kind": "adam", "note": "after 3 epochs"},
        {"kind": "delta"},
        {"kind": "delta", "base": BASE},
        {"kind": "other", "note": "Hessian diagonal"},
    ],
)
def test_a_space_shows_the_importance_that_it_states(
    http: httpx.Client, stated: dict[str, str]
) -> None:
    """Kind, base and note come back, null where they were left out, also to the same body."""
    name = next(NAMES)
    expected = {"base": None, "note": None, **stated}
    made = make(http, name, importance=stated)
    assert (201, expected) == (made.status_code, made.json()["importance"])
    assert 200 == make(http, name, importance=stated).status_code
    assert expected == ok(http.get(f"/v1/spaces/{name}"))["importance"]


def test_a_space_that_states_nothing_is_unstated(http: httpx.Client) -> None:
    """Without an importance its kind is unstated, and a body without one finds any space."""
    unstated = ok(make(http, "says-nothing"))["importance"]
    assert {"kind": "unstated", "base": None, "note": None} == unstated
    make(http, "says-fisher", importance={"kind": "fisher"})
    assert "fisher" == ok(make(http, "says-fisher"))["importance"]["kind"]


@pytest.mark.parametrize(
    ("first", "then", "same"),
    [
        ({"kind": "fisher"}, {"kind": "weight"}, False),
        (None, {"kind": "weight"}, False),
        ({"kind": "delta", "base": BASE}, {"kind": "delta", "base": OTHER_BASE}, False),
        ({"kind": "delta", "base": BASE}, {"kind": "delta"}, False),
        ({"kind": "delta", "base": BASE}, {"kind": "delta", "base": BASE.split("@")[1]}, True),
        ({"kind": "adam", "note": "a"}, {"kind": "adam", "note": "b"}, True),
    ],
)
def test_another_importance_of_an_existing_space_is_a_409_that_names_both(
    http: httpx.Client, first: dict[str, str] | None, then: dict[str, str], same: bool
) -> None:
    """Kinds and digests of bases are compared; their names and notes are not."""
    name = next(NAMES)
    make(http, name, **({} if first is None else {"importance": first}))
    answer = make(http, name, importance=then)
    if same:
        assert 200 == answer.status_code
        return
    detail = assert_problem(answer, 409, "space_exists")
    for one in (first or {"kind": "unstated"}, then):
        assert one["kind"] in detail
        assert one.get("base", "") in detail


@pytest.mark.parametrize(
    ("importance", "field", "remedy"),
    [
        ({"kind": "hessian"}, "importance.kind", "fisher, grad_moment, adam, weight, delta"),
        ({"kind": "unstated"}, "importance.kind", "one of"),
        ({"kind": "weight", "base": BASE}, "importance.base", "leave it out"),
        ({"kind": "delta", "base": "org/base"}, "importance.base", "name@digest"),
        ({"kind": "delta", "base": f"a\0b@{OTHER_BASE}"}, "importance.base", "NUL"),
        ({"kind": "other", "note": "x" * 501}, "importance.note", "at most 500"),
        ({"base": BASE}, "importance.kind", "missing"),
        ({"kind": "fisher", "epochs": 3}, "importance.epochs", "unknown field"),
    ],
)
def test_an_importance_that_cannot_be_is_a_422(
    http: httpx.Client, importance: dict[str, Any], field: str, remedy: str
) -> None:
    """The field is named and the message says what to send, and there is no space afterwards."""
    answer = make(http, "never-made", importance=importance)
    assert remedy in assert_problem(answer, 422, "invalid_parameter", field)
    assert 404 == http.get("/v1/spaces/never-made").status_code


def test_excluded_tensors_are_not_in_the_layout(http: httpx.Client) -> None:
    """M, the layout and its digest are of the other tensors, and supports have so many."""
    space = Space(http, 600, layout=LAYOUT, exclude=["*.running_*"])
    shown, kept = space.show(), Layout.of(TENSORS[:1])
    assert (600, LAYOUT[:1], ["*.running_*"], kept.digest) == (
        shown["num_parameters"],
        shown["layout"],
        shown["exclude"],
        shown["layout_digest"],
    )
    space.put_all(family(1, 600, 30, 3))
    tensors = ok(http.get(space.path("overlap"), params={"a": "m000", "b": "m001"}))["tensors"]
    assert ["conv.weight"] == [tensor["name"] for tensor in tensors]


def test_a_layout_has_a_digest_and_no_layout_has_none(http: httpx.Client) -> None:
    """The digest is that of the SDK's layout."""
    assert ok(make(http, "without-layout"))["layout_digest"] is None
    assert Layout.of(TENSORS).digest == ok(make(http, "with", layout=LAYOUT))["layout_digest"]


def test_the_same_exclusion_again_is_a_200_and_none_is_a_409(http: httpx.Client) -> None:
    """Without the patterns the layout is another one, and the message names them."""
    body: dict[str, Any] = {"layout": LAYOUT, "exclude": ["*.running_*"]}
    assert 201 == make(http, "excluding", **body).status_code
    assert 200 == make(http, "excluding", **body).status_code
    answer = make(http, "excluding", layout=LAYOUT)
    assert "its layout differs (that space excludes '*.running_*')" in assert_problem(
        answer, 409, "space_exists"
    )


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({"layout": LAYOUT, "exclude": ["*.stft.*"]}, "exclude", "matches none of the 3 tensors"),
        (
            {"layout": LAYOUT, "exclude": ["*"]},
            "exclude",
            "the pattern '*' leaves no parameter of the layout: name fewer",
        ),
        ({"exclude": ["*.running_*"]}, "exclude", "needs a layout"),
        ({"layout": LAYOUT, "exclude": [""]}, "exclude[0]", "at least 1 character"),
        ({"layout": LAYOUT, "exclude": ["bn*"] * 33}, "exclude", "at most 32"),
        (SLOW_TO_MATCH, "exclude", "take too long to match with 1700 names: use fewer or shorter"),
        (
            {"layout": LAYOUT, "exclude": ["bn*"], "num_parameters": 660},
            "num_parameters",
            "without those that are excluded, and num_parameters says 660: leave",
        ),
        ({"importance": "weight"}, "importance", 'write {"kind": "weight"}'),
        ({"layout": LAYOUT, "num_parameters": 3}, "num_parameters", "parameters and num_param"),
    ],
)
def test_an_exclusion_that_cannot_be_is_a_422(
    http: httpx.Client, body: dict[str, Any], field: str, said: str
) -> None:
    """Each names its field, the reason and what to write instead."""
    assert said in assert_problem(make(http, "never", **body), 422, "invalid_parameter", field)


@pytest.mark.parametrize(
    ("importance", "noted"), [(None, True), ({"kind": "fisher"}, False)], ids=["unstated", "stated"]
)
def test_answers_of_an_unstated_space_carry_a_note(
    http: httpx.Client, client: modelkin.Client, importance: dict[str, str] | None, noted: bool
) -> None:
    """Each answer that compares models says so over HTTP and in the SDK; else its note is null."""
    space = Space(http, 1000, **({} if importance is None else {"importance": importance}))
    space.put_all(family(3, 1000, 60, 4))
    notes = {**_notes(space), **_notes_of_the_sdk(client, space.name)}
    expected = "does not state what its supports were selected by"
    assert dict.fromkeys(notes, noted) == {
        name: note is not None and expected in note for name, note in notes.items()
    }


def _notes(space: Space) -> Mapping[str, str | None]:
    """The note of each answer about a space, over HTTP."""
    http, path = space.http, space.path
    pair = {"a": "m000", "b": "m001"}
    graphml = http.get(path("graph"), headers={"Accept": "application/graphml+xml"})
    body = family(3, 1000, 60, 4)["m000"].to_bytes()
    return {
        "neighbors": space.neighbors("m000")["note"],
        "neighbors of a body": space.find(body)["note"],
        "donors": ok(http.get(path("donors"), params={"target": "m000"}))["note"],
        "donors of a body": space.find(body, what="donors")["note"],
        "overlap": ok(http.get(path("overlap"), params=pair))["note"],
        "similarity": ok(http.post(path("similarity"), json={"models": ["m000", "m001"]}))["note"],
        "graph": ok(http.get(path("graph")))["graph"]["note"],
        "graphml": networkx.read_graphml(io.BytesIO(graphml.content)).graph.get("note"),
        "lineage": ok(http.get(path("lineage"), params={"model": "m000"}))["note"],
    }


def _notes_of_the_sdk(client: modelkin.Client, space: str) -> Mapping[str, str | None]:
    """The note of each answer about a space, in the types of the SDK."""
    return {
        "sdk neighbors": client.neighbors(space, "m000").note,
        "sdk donors": client.donors(space, "m000").note,
        "sdk overlap": client.overlap(space, "m000", "m001").note,
        "sdk similarity": client.similarity(space, ["m000", "m001"]).note,
        "sdk graph": client.spaces.graph(space).note,
        "sdk lineage": client.lineage(space, "m000").note,
    }


def test_the_sdk_creates_and_reads_a_space_with_its_importance(client: modelkin.Client) -> None:
    """A kind is enough; an ``Importance`` adds a base; both are read back typed."""
    layout = Layout.of(TENSORS)
    made = client.ensure_space("sdk-weight", layout=layout, importance="weight", exclude=["bn.*"])
    assert (Importance("weight"), ("bn.*",), 600) == (
        made.importance,
        made.exclude,
        made.num_parameters,
    )
    kept = layout.without(["bn.*"])
    assert (kept, kept.digest) == (made.layout, made.layout_digest)
    delta = Importance("delta", BASE, "the second epoch")
    made = client.ensure_space("sdk-delta", num_parameters=9, importance=delta)
    assert delta == made.importance == client.spaces.get("sdk-delta").importance
    unstated = client.ensure_space("sdk-unstated", num_parameters=9)
    assert unstated.importance == Importance("unstated")
    again = client.ensure_space("sdk-unstated", num_parameters=9, importance=unstated.importance)
    assert not again.importance.is_stated


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"importance": "hessian"}, "importance.kind"),
        ({"importance": Importance("fisher", BASE)}, "importance.base"),
        ({"importance": np.ones(3)}, "importance"),
        ({"exclude": "bn.*", "layout": Layout.of(TENSORS)}, "exclude"),
        ({"exclude": ["nothing"], "layout": Layout.of(TENSORS)}, "exclude"),
        ({"exclude": ["bn.*"]}, "exclude"),
    ],
)
def test_the_sdk_refuses_what_cannot_be_before_it_sends(
    options: dict[str, Any], field: str
) -> None:
    """The error names the argument; no service is needed for it."""
    size: dict[str, Any] = {} if "layout" in options else {"num_parameters": 9}
    with (
        modelkin.Client("http://127.0.0.1:9", retries=0) as client,
        pytest.raises(modelkin.InvalidInput) as error,
    ):
        client.ensure_space("s", **size, **options)
    assert field == error.value.field
