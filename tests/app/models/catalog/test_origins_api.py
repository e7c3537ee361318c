"""Uploads and queries that state by what importance their indices were selected, and which layout
they follow.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import text

import modelkin
from app.models.catalog.puts import Put
from app.models.catalog.writer import ModelWriter
from app.models.spaces.origins import StatedOrigin
from app.settings import Settings
from modelkin import BulkItem, BulkResult, Importance, Layout, Support
from modelkin.client._protocol.uploads import lines
from modelkin.core.importance import Origin
from modelkin.errors import SpaceMismatch
from modelkin.wire import PATCH, SKETCH, encode_patch, signature_to_json
from tests.support.app.space import AppSpace
from tests.support.fixtures import on_one_database
from tests.support.http_space import SIGNATURE, SUPPORT, Space, assert_problem

M = 1000
ONE, OTHER = (Support(range(start, M, 7), M) for start in (0, 1))
BASE, OTHER_BASE = "org/base@sha256:" + "9f2c" * 16, "sha256:" + "07" * 32
LAYOUT = Layout.of([("w", (30, 30)), ("v", (100,))])
SWAPPED = Layout.of([("v", (100,)), ("w", (30, 30))])
TENSORS = LAYOUT.to_json()
DELTAS = {"kind": "delta", "base": BASE}
Send = Callable[..., httpx.Response]


def put_support(space: Space, **stated: str) -> httpx.Response:
    """PUT a support."""
    return space.put_bytes("new", OTHER.to_bytes(), SUPPORT, **stated)


def patch_support(space: Space, **stated: str) -> httpx.Response:
    """Change a stored support."""
    headers = {"Content-Type": PATCH, "If-Match": "*"}
    url, data = space.path("supports", "stored"), encode_patch(ONE, OTHER)
    return space.http.patch(url, content=data, headers=headers, params=stated)


def put_signature(space: Space, **stated: str) -> httpx.Response:
    """PUT a signature alone."""
    url, data = space.path("signatures", "new"), OTHER.signature().to_bytes()
    return space.http.put(url, content=data, headers={"Content-Type": SIGNATURE}, params=stated)


def put_sketch(space: Space, **stated: str) -> httpx.Response:
    """PUT the sketch of a stored signature."""
    url, data = space.path("sketches", "signed"), ONE.sketch().to_bytes()
    return space.http.put(url, content=data, headers={"Content-Type": SKETCH}, params=stated)


def query(what: str) -> Send:
    """POST a support to search with it."""

    def send(space: Space, **stated: str) -> httpx.Response:
        headers = {"Content-Type": SUPPORT}
        return space.http.post(
            space.path(what), content=ONE.to_bytes(), headers=headers, params=stated
        )

    return send


SENDS = {
    "put_support": put_support,
    "patch_support": patch_support,
    "put_signature": put_signature,
    "put_sketch": put_sketch,
    "find_neighbors": query("neighbors"),
    "find_donors": query("donors"),
}


def filled(http: httpx.Client, **body: Any) -> Space:
    """A space with a support, and a model that sent a signature alone."""
    space = Space(http, M, **body)
    space.put("stored", ONE)
    space.put_signature("signed", ONE.signature())
    return space


@on_one_database
@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_another_importance_base_or_layout_is_a_409_that_names_both(
    http: httpx.Client, send: Send
) -> None:
    """Whatever is sent, nothing changes; the space's own importance, base and layout are taken."""
    space = filled(http, importance=DELTAS, layout=TENSORS)
    version = space.show()["version"]
    for stated, mine, theirs in (
        ({"importance": "fisher"}, "by fisher", f"by delta against {BASE}"),
        ({"importance": "delta", "base": OTHER_BASE}, OTHER_BASE, BASE),
        ({"layout": SWAPPED.digest}, SWAPPED.digest, LAYOUT.digest),
    ):
        detail = assert_problem(send(space, **stated), 409, "space_mismatch")
        assert mine in detail
        assert theirs in detail
    assert version == space.show()["version"]
    digest = BASE.partition("@")[2]
    same = {"importance": "delta", "base": digest, "layout": LAYOUT.digest}
    assert send(space, **same).status_code in {200, 201}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_statement_that_cannot_be_is_a_422(space: Space, send: Send) -> None:
    """The parameter is named, and the message says what to send."""
    for stated, field, said in (
        ({"importance": "hessian"}, "importance", "must be one of fisher, grad_moment"),
        ({"importance": "unstated"}, "importance", "must be one of"),
        ({"importance": "weight", "base": BASE}, "base", "leave it out"),
        ({"importance": "delta", "base": "org/base"}, "base", "name@digest"),
        ({"base": BASE}, "base", "importance=delta"),
        ({"layout": "w,v"}, "layout", "layout_digest"),
    ):
        assert said in assert_problem(send(space, **stated), 422, "invalid_parameter", field)


def test_a_statement_is_compared_only_with_what_the_space_states(http: httpx.Client) -> None:
    """Unstated spaces take any kind, spaces without a base any base and without a layout any
    layout; an upload may state nothing.
    """
    unstated = Space(http, M)
    for kind in ("fisher", "weight", "delta"):
        assert put_support(unstated, importance=kind, layout=SWAPPED.digest).status_code < 300
    without_base = Space(http, M, importance={"kind": "delta"})
    assert 201 == put_support(without_base, importance="delta", base=BASE).status_code
    assert 201 == put_support(Space(http, M, importance=DELTAS, layout=TENSORS)).status_code


@pytest.mark.slow
@pytest.mark.parametrize("what", ["put_support", "patch_support", "put_signature"])
def test_an_upload_that_states_nothing_is_stored_with_a_note(
    http: httpx.Client, client: modelkin.Client, what: str
) -> None:
    """Where the space has a kind to compare; with a statement, or without a kind, there is none."""
    other = filled(http, importance={"kind": "weight"})
    assert "note" not in SENDS[what](other, importance="weight").json()
    space = filled(http, importance={"kind": "weight"})
    answer = SENDS[what](space)
    assert answer.status_code < 300, answer.text
    assert "holds supports by weight, and this upload states no importance" in answer.json()["note"]
    assert "note" not in SENDS[what](filled(http)).json()
    read = http.get(space.path("models", "stored")).json()
    assert "note" not in read
    assert "states no importance" in (client.put_support(space.name, "plain", ONE).note or "")
    assert client.models.get(space.name, "plain").note is None


def test_a_batch_refuses_the_lines_of_another_kind_alone(http: httpx.Client) -> None:
    """Of two kinds in one batch, and of two layouts, the space's own are stored."""
    space = Space(http, M, importance={"kind": "weight"}, layout=TENSORS)
    support = {"support": base64.b64encode(ONE.to_bytes()).decode()}
    signature = {"signature": signature_to_json(ONE.signature())}
    results = put_lines(
        space,
        {"model": "a", "importance": "weight", "layout": LAYOUT.digest, **support},
        {"model": "b", "importance": "delta", "base": BASE, **support},
        {"model": "c", "importance": "fisher", **signature},
        {"model": "d", "layout": SWAPPED.digest, **signature},
        {"model": "e", **support},
        {"model": "f", "importance": "weights", **support},
        {"model": "g", "importance": "weight", "base": BASE, **support},
    )
    assert [None, "space_mismatch", "space_mismatch", "space_mismatch", None] == [
        result.get("error", {}).get("code") for result in results[:5]
    ]
    assert f"by delta against {BASE}" in results[1]["error"]["detail"]
    assert "by weight" in results[1]["error"]["detail"]
    assert LAYOUT.digest in results[3]["error"]["detail"]
    assert [("invalid_parameter", "importance"), ("invalid_parameter", "base")] == [
        (result["error"]["code"], result["error"]["errors"][0]["field"]) for result in results[5:]
    ]
    assert 2 == space.show()["supports"]


def put_lines(space: Space, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    """Send a batch; the results of its lines."""
    body = "".join(json.dumps(line) + "\n" for line in lines)
    headers = {"Content-Type": "application/jsonl"}
    answer = space.http.post(space.path("batch"), content=body, headers=headers)
    assert 200 == answer.status_code, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_kind_that_is_stated_meanwhile_is_compared_under_the_lock(app_space: AppSpace) -> None:
    """An upload that began while the space was unstated is refused when it is no more, and its file
    is deleted.
    """
    writer, before = app_space.services[ModelWriter], app_space.space
    support = Support(range(0, before.num_parameters, 7), before.num_parameters)
    with app_space.database.reading() as session:
        prepared = writer.prepare(session, before, "a", support)
    file = app_space.services[Settings].blob_dir / str(prepared.blob_key)
    assert file.is_file()
    with app_space.database.writing() as session:
        session.execute(text("UPDATE spaces SET importance_kind = 'weight'"))
    put = Put("a", prepared, origin=StatedOrigin(Importance("fisher")))
    with pytest.raises(SpaceMismatch), app_space.database.writing() as session:
        writer.put(session, before, put)
    assert 0 == app_space.space.models
    assert not file.exists()


# --- the SDK ----------------------------------------------------------------------------------


def of(kind: str, layout: Layout | None = None, base: str | None = None) -> Support:
    """A support with an origin."""
    return ONE.with_origin(Origin(Importance.of(kind, base), layout))


def test_the_sdk_states_the_origin_of_what_it_sends(
    http: httpx.Client, client: modelkin.Client
) -> None:
    """Every method that sends a support or its signature is refused in a space of another kind."""
    space = filled(http, importance={"kind": "weight"}).name
    support = of("delta", base=BASE)
    for call in (
        lambda: client.put_support(space, "new", support),
        lambda: client.put_signature(space, "new", support.signature()),
        lambda: client.neighbors(space, support),
        lambda: client.neighbors(space, support.signature()),
        lambda: client.donors(space, support),
    ):
        with pytest.raises(modelkin.ConflictError) as error:
            call()
        assert "space_mismatch" == error.value.problem_code
        assert f"delta against {BASE}" in str(error.value)
    assert client.put_support(space, "new", of("weight")).model == "new"


def test_the_sdk_states_the_layout_of_what_it_sends(
    http: httpx.Client, client: modelkin.Client
) -> None:
    """A layout with other tensors is a 409 whatever the kind."""
    space = filled(http, importance={"kind": "weight"}, layout=TENSORS)
    other = Layout.of([("u", (30, 30)), ("v", (100,))])
    with pytest.raises((modelkin.ConflictError, SpaceMismatch)):
        client.put_support(space.name, "new", of("weight", other))
    assert client.put_support(space.name, "new", of("weight", LAYOUT)).model == "new"


def test_a_delta_of_another_kind_is_refused(http: httpx.Client, client: modelkin.Client) -> None:
    """Where the SDK sends what changed, and then the whole support, neither is stored."""
    space = Space(http, M, importance={"kind": "weight"})
    client.put_support(space.name, "a", of("weight"))
    changed = Support(ONE.indices[1:], M)
    before = space.show()["version"]
    with pytest.raises(modelkin.ConflictError):
        client.put_support(space.name, "a", changed.with_origin(of("fisher").origin))
    assert before == space.show()["version"]
    client.put_support(space.name, "a", changed.with_origin(of("weight").origin))
    assert changed.digest == space.model("a")["digest"]


def test_put_many_counts_the_items_of_another_kind_as_failed(
    http: httpx.Client, client: modelkin.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the space's kind are stored beside them, and those of none with a note."""
    space = Space(http, M, importance={"kind": "weight"})
    weight, delta = of("weight"), of("delta")
    items = [
        BulkItem("a", weight),
        BulkItem("b", delta),
        BulkItem("c", weight.signature(), sketch=weight.sketch()),
        BulkItem("d", delta.signature()),
        BulkItem("e", ONE),
    ]
    summary = client.put_many(space.name, items)
    assert (3, 2) == (summary.created, summary.failed)
    assert [("b", "space_mismatch"), ("d", "space_mismatch")] == [
        (failure.model, failure.code) for failure in summary.failures
    ]
    assert 3 == space.show()["models"]
    assert "states no importance" in (summary.note or "")  # of the last one
    assert client.put_many(space.name, items[:1]).note is None
    monkeypatch.setattr(lines, "_MAX_LINE_BYTES", 0)  # each is put by itself
    results: list[BulkResult] = []  # in any order
    client.put_many(space.name, [items[0], items[4]], on_result=results.append)
    assert {"a": False, "e": True} == {each.model: bool(each.note) for each in results}


def test_a_signature_keeps_the_origin_of_its_support() -> None:
    """It is beside the value: equality and bytes do not know it."""
    stated = of("weight", LAYOUT).signature()
    assert (of("weight", LAYOUT).origin, None) == (stated.origin, ONE.signature().origin)
    assert stated == ONE.signature()
    assert stated.to_bytes() == ONE.signature().to_bytes()
    assert modelkin.Signature.from_bytes(stated.to_bytes()).origin is None
