"""/v1/spaces/{space}/batch: many models in one request, and the effect of a bad line."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import event

import modelkin
from app.infra.db.database import Database
from app.infra.errors import SpaceNotFound
from app.models.catalog.batches import BatchEntry, BatchService
from app.settings import Settings
from modelkin import Support
from modelkin.wire import signature_to_json
from tests.app.tenancy.auth.test_keys import new_key
from tests.sdk.wire.payloads import compressed, forge
from tests.support.app.space import AppSpace
from tests.support.blob_files import blob_files, blob_keys, named_keys, released_keys
from tests.support.declared_problems import checked
from tests.support.fixtures import Start, on_one_database
from tests.support.http_space import (
    RAW,
    ROARING,
    SUPPORT,
    Space,
    assert_problem,
    ok,
    random_support,
)

JSONL = "application/jsonl"
M = 10_000
A, B = (Support.from_indices(range(start, M, 7), M) for start in (0, 1))
SIGNED = signature_to_json(A.signature())
Line = dict[str, Any]


def text(support: Support | bytes) -> str:
    """A support as it stands in a line."""
    data = support if isinstance(support, bytes) else support.to_bytes()
    return base64.b64encode(data).decode()


def dumped(lines: list[Line | bytes]) -> bytes:
    """A body; bytes are lines that no JSON writer would write."""
    return b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines)


def post(space: Space, body: bytes) -> httpx.Response:
    """Send a batch; the answer, whatever it is."""
    url = space.path("batch")
    return space.http.post(url, content=body, headers={"Content-Type": JSONL})


def put(space: Space, *lines: Line | bytes) -> list[dict[str, Any]]:
    """Send lines; the results."""
    answer = post(space, dumped(list(lines)))
    assert (200, JSONL) == (answer.status_code, answer.headers["content-type"]), answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def statuses(results: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Names and statuses."""
    return [(result["model"], result["status"]) for result in results]


def test_lines_are_stored_in_order(space: Space) -> None:
    """Supports and signatures are stored with tags and attributes, and answered line by line."""
    results = put(
        space,
        {"model": "org/a", "support": text(A), "tags": ["y", "x"], "attributes": {"site": 7}},
        {"model": "b", "signature": SIGNED},
    )
    assert [("org/a", "created"), ("b", "created")] == statuses(results)
    stored = space.model("org/a")
    assert (A.digest, ["x", "y"], {"site": 7}) == tuple(
        stored[field] for field in ("digest", "tags", "attributes")
    )
    assert ("signature", A.k) == (space.model("b")["kind"], space.model("b")["support_size"])
    assert (1, 1, 2) == tuple(space.show()[f] for f in ("supports", "signatures", "version"))


@pytest.mark.parametrize("media_type", [SUPPORT, ROARING, RAW])
def test_a_line_names_the_format_of_its_support(space: Space, media_type: str) -> None:
    """A support in base64 may be native, Roaring or raw, and is the same support."""
    data = modelkin.wire.dump_support(A, media_type)
    put(space, {"model": "a", "support": text(data), "media_type": media_type})
    assert A.digest == space.model("a")["digest"]


def test_a_batch_is_as_its_puts_one_by_one(space: Space) -> None:
    """The models of a batch, their versions too, are those that single puts leave."""
    other = Space(space.http, M)
    tagged = {"model": "a", "support": text(A), "tags": ["t"]}
    put(space, tagged, {"model": "b", "support": text(B)})
    other.put("a", A, tags=["t"])
    other.put("b", B)
    own = {"space", "created_at", "updated_at"}
    for name in ("a", "b"):
        expected, found = other.model(name), space.model(name)
        assert {k: expected[k] for k in expected if k not in own} == {
            k: found[k] for k in found if k not in own
        }


def test_a_status_says_what_changed(space: Space) -> None:
    """Other content, tags or attributes replace those stored; absent fields keep theirs."""
    whole: Line = {"model": "a", "support": text(A), "tags": ["t"], "attributes": {"n": 1}}
    bare: Line = {"model": "a", "support": text(A)}
    seen = [put(space, line)[0]["status"] for line in (whole, whole, bare, {**bare, "tags": []})]
    assert ["created", "unchanged", "unchanged", "replaced"] == seen
    assert "replaced" == put(space, {**bare, "attributes": {"n": 2}})[0]["status"]
    assert (1, [], {"n": 2}) == tuple(
        space.model("a")[f] for f in ("revision", "tags", "attributes")
    )
    assert "replaced" == put(space, {"model": "a", "support": text(B)})[0]["status"]
    assert (2, B.digest) == (space.model("a")["revision"], space.model("a")["digest"])


def test_of_several_lines_of_a_model_the_last_stands(space: Space) -> None:
    """They are put one after another: A, B, A again, a model in between; no blob is left over."""
    contents = [("a", A), ("a", B), ("b", A), ("a", A), ("a", A)]
    lines = [{"model": name, "support": text(support)} for name, support in contents]
    found = [result["status"] for result in put(space, *lines)]
    assert ["created", "replaced", "created", "replaced", "unchanged"] == found
    assert (3, A.digest) == (space.model("a")["revision"], space.model("a")["digest"])
    answer = space.http.get(space.path("supports", "a"), headers={"Accept": SUPPORT})
    assert A == Support.from_bytes(answer.content)


def test_a_signature_does_not_replace_a_support(space: Space) -> None:
    """The rule of a single put is that line's error; a support may replace a signature."""
    space.put("full", A)
    alone, upgraded = put(
        space,
        {"model": "full", "signature": SIGNED},
        {"model": "full", "support": text(A)},
    )
    assert ("failed", "support_exists") == (alone["status"], alone["error"]["code"])
    assert "unchanged" == upgraded["status"]


@pytest.mark.slow
def test_many_lines_change_at_once(space: Space) -> None:
    """Signatures become supports, with other tags: one version each, and the counts follow."""
    names = [f"m{i}" for i in range(300)]
    put(space, *({"model": name, "signature": SIGNED} for name in names))
    lines = [{"model": name, "support": text(A), "tags": ["t"]} for name in names]
    assert {"replaced"} == {result["status"] for result in put(space, *lines)}
    shown = space.show()
    assert (300, 0, 600) == (shown["supports"], shown["signatures"], shown["version"])
    assert (2, ["t"], 600) == tuple(space.model("m299")[f] for f in ("revision", "tags", "version"))


def test_a_support_of_too_many_indices_goes_by_itself(space: Space) -> None:
    """The decoded size of a line is bounded; its error says where to send the support."""
    wide = Space(space.http, 2**32)
    dense = Support.from_indices(np.arange(2**22 + 1), 2**32)
    [failed] = put(wide, {"model": "a", "support": text(dense)})
    assert "payload_too_large" == failed["error"]["code"]
    assert "PUT .../supports" in failed["error"]["detail"]


def huge() -> Support:
    """A support of another space."""
    return Support.from_indices([1, 5], M + 1)


BAD: dict[str, tuple[Line | bytes, str]] = {
    "no JSON": (b'{"model": "x", ', "invalid_parameter"),
    "an empty line": (b"", "invalid_parameter"),
    "no object": (b"[1]", "invalid_parameter"),
    "not UTF-8": (b'{"model": "\xff", "support": "AA=="}', "invalid_parameter"),
    "NaN": (b'{"model":"x","support":"AA==","attributes":{"a":NaN}}', "invalid_parameter"),
    "infinity": (b'{"model":"x","support":"AA==","attributes":{"a":1e400}}', "invalid_parameter"),
    "a surrogate": (
        rb'{"model":"x","support":"AA==","attributes":{"a":"\ud800"}}',
        "invalid_parameter",
    ),
    "depth": (b"[" * 100_000, "invalid_parameter"),
    "a field twice": (b'{"model":"x","model":"y","support":"AA=="}', "invalid_parameter"),
    "an unknown field": ({"model": "x", "support": text(A), "tag": "t"}, "invalid_parameter"),
    "no model": ({"support": text(A)}, "invalid_name"),
    "a model that is a number": ({"model": 5, "support": text(A)}, "invalid_name"),
    "a model of NUL": ({"model": "a\0b", "support": text(A)}, "invalid_name"),
    "a model that climbs": ({"model": "../x", "support": text(A)}, "invalid_name"),
    "a long model": ({"model": "x" * 201, "support": text(A)}, "invalid_name"),
    "a bad tag": ({"model": "x", "support": text(A), "tags": ["\n"]}, "invalid_name"),
    "tags as text": ({"model": "x", "support": text(A), "tags": "t"}, "invalid_parameter"),
    "neither": ({"model": "x"}, "invalid_parameter"),
    "both": ({"model": "x", "support": text(A), "signature": SIGNED}, "invalid_parameter"),
    "no base64": ({"model": "x", "support": "not base64!"}, "invalid_support"),
    "base64 cut short": ({"model": "x", "support": text(A)[:-1]}, "invalid_support"),
    "base64 of nothing": ({"model": "x", "support": ""}, "invalid_support"),
    "a cut support": ({"model": "x", "support": text(A.to_bytes()[:-9])}, "invalid_support"),
    "another type": (
        {"model": "x", "support": text(A), "media_type": "text/plain"},
        "unsupported_media_type",
    ),
    "JSON in base64": (
        {"model": "x", "support": text(b'{"indices":[1]}'), "media_type": "application/json"},
        "unsupported_media_type",
    ),
    "a signature with a type": (
        {"model": "x", "signature": SIGNED, "media_type": SUPPORT},
        "invalid_parameter",
    ),
    "unsorted indices": (
        {"model": "x", "support": text(np.array([5, 1], "<u4").tobytes()), "media_type": RAW},
        "invalid_support",
    ),
    "another M": ({"model": "x", "support": text(huge())}, "space_mismatch"),
    "another h": (
        {"model": "x", "signature": signature_to_json(A.signature(num_perm=16))},
        "space_mismatch",
    ),
    "a signature cut short": (
        {"model": "x", "signature": {**SIGNED, "values": [1, 2]}},
        "invalid_signature",
    ),
    "a signature of text": ({"model": "x", "signature": "AA=="}, "invalid_parameter"),
    "a long line": (b" " * ((1 << 20) + 1), "payload_too_large"),
}


@on_one_database
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_line_spoils_no_other(space: Space, bad: str) -> None:
    """It fails with its own code and changes nothing; the lines around it are stored."""
    line, code = BAD[bad]
    good: list[Line] = [{"model": name, "support": text(A)} for name in "ab"]
    first, failed, last = put(space, good[0], line, good[1])
    assert ("created", "failed", "created") == tuple(r["status"] for r in (first, failed, last))
    assert code == failed["error"]["code"], failed
    assert failed["error"]["detail"]
    assert 2 == space.show()["models"]


def test_a_failed_line_names_its_model_and_field(space: Space) -> None:
    """The error of a line has the fields of a problem document, with a field if there is one."""
    line = {"model": "org/x", "support": text(A), "attributes": {"n": 2**70}}
    [result] = put(space, line)
    assert "org/x" == result["model"]
    assert ["attributes"] == [error["field"] for error in result["error"]["errors"]]
    assert None is put(space, {"model": "../x"})[0]["model"]


@pytest.mark.slow
def test_a_bomb_is_refused_unopened(start: Start) -> None:
    """A line that decodes to more than a body may have fails; so do lines that do so together."""
    running = start("--max-body-bytes=1048576")
    with checked(httpx.Client(base_url=running.url)) as http:
        space = Space(http, 2**32)
        k = 250_000
        dense = text(Support.from_indices(np.arange(k), 2**32))
        frame = compressed(b"\1" * 10**7)
        bomb = text(forge(A, m=2**32, k=10**7, frame=frame))
        lines = [{"model": "x", "support": bomb}, *({"model": n, "support": dense} for n in "ab")]
        results = put(space, *lines)
        assert [("x", "failed"), ("a", "created"), ("b", "failed")] == statuses(results)
        assert ["payload_too_large"] * 2 == [results[i]["error"]["code"] for i in (0, 2)]
        assert "another batch" in results[2]["error"]["detail"]
        assert "created" == put(space, {"model": "b", "support": dense})[0]["status"]


REFUSED: dict[str, tuple[Callable[[Space], httpx.Response], int, str]] = {
    "nothing": (lambda space: post(space, b""), 422, "invalid_parameter"),
    "10,001 lines": (lambda space: post(space, b"{}\n" * 10_001), 413, "payload_too_large"),
    "10,001 lines, the last without its end": (
        lambda space: post(space, b"{}\n" * 10_000 + b"{}"),
        413,
        "payload_too_large",
    ),
    "JSON": (
        lambda space: space.http.post(space.path("batch"), json=[]),
        415,
        "unsupported_media_type",
    ),
    "no type": (
        lambda space: space.http.post(space.path("batch"), content=b"{}"),
        415,
        "unsupported_media_type",
    ),
    "no space": (
        lambda space: space.http.post(
            "/v1/spaces/nowhere/batch", content=b"{}", headers={"Content-Type": JSONL}
        ),
        404,
        "space_not_found",
    ),
}


@on_one_database
@pytest.mark.parametrize("refused", REFUSED)
def test_an_invalid_batch_is_refused_as_a_whole(untouched: Space, refused: str) -> None:
    """An empty body, too many lines, another type or no space: one problem, nothing stored."""
    send, status, code = REFUSED[refused]
    assert_problem(send(untouched), status, code)


@pytest.mark.slow
def test_a_body_over_the_limit_is_a_413(start: Start) -> None:
    """A batch is held to the limit of binary bodies, not to that of JSON."""
    running = start("--max-body-bytes=2097152")
    with checked(httpx.Client(base_url=running.url)) as http:
        space = Space(http)
        assert 200 == post(space, (b" " * (1 << 19) + b"\n") * 3).status_code
        assert_problem(post(space, b" " * 2_097_153), 413, "payload_too_large")


@pytest.mark.slow
def test_a_full_batch_is_stored_whole(space: Space) -> None:
    """10,000 lines, the most there may be, are all there afterwards, each with its version."""
    values = np.random.default_rng(1).integers(0, 2**32, (10_000, 4)).tolist()
    own = Space(space.http, M, signature={"num_perm": 4})
    signed = signature_to_json(A.signature(num_perm=4))
    lines: list[Line | bytes] = [
        {"model": f"m{i}", "signature": {**signed, "values": row}} for i, row in enumerate(values)
    ]
    assert {"created"} == {result["status"] for result in put(own, *lines)}
    assert (10_000, 10_000) == (own.show()["models"], own.show()["version"])
    found = own.neighbors("m0", k=5, method="exact")
    assert (9_999, 5) == (found["candidates"], len(found["items"]))


def test_neighbours_see_a_batch_at_once(space: Space) -> None:
    """Models that a batch brought, replaced or failed to bring are found as they now are."""
    put(space, *({"model": name, "support": text(s)} for name, s in (("a", A), ("b", B))))
    assert 0.0 == space.neighbors("a")["items"][0]["similarity"]
    put(space, {"model": "b", "support": text(A)}, {"model": "c", "support": "!"})
    assert [("b", 1.0)] == [(n["model"], n["similarity"]) for n in space.neighbors("a")["items"]]


@pytest.mark.slow
def test_a_refused_line_leaves_no_blob(start: Start) -> None:
    """After replacing, repeating and refusing there are as many blobs as supports to keep, beside
    those that are released.
    """
    running = start("--keep-revisions=1")
    with checked(httpx.Client(base_url=running.url)) as http:
        space = Space(http)
        supports = itertools.cycle([text(A), text(B)])
        lines: list[Line | bytes] = [
            {"model": f"m{i % 5}", "support": next(supports)} for i in range(20)
        ]
        put(space, *lines, {"model": "x", "support": text(huge())})
        put(space, *lines)
        assert 5 == space.show()["supports"]
        with closing(Database(running.database_url, timeout=5)) as database:
            kept = blob_keys(running.blobs) - released_keys(database)
            assert named_keys(database) == kept
        assert 5 == len(kept)


def test_a_batch_that_fails_leaves_no_blob(app_space: AppSpace) -> None:
    """Each of nine prepared supports is deleted, also those of names that stand in it thrice."""
    folder = app_space.services[Settings].blob_dir
    before, random = blob_files(folder), np.random.default_rng(8)
    space = app_space.space
    supports = [random_support(random, space.num_parameters, 50) for _ in range(9)]
    app_space.drop()
    entries = [BatchEntry("abc"[i % 3], support) for i, support in enumerate(supports)]
    with app_space.database.reading() as session, pytest.raises(SpaceNotFound):
        app_space.services[BatchService].put(session, space, entries)
    assert before == blob_files(folder)


def test_a_batch_takes_as_many_statements_as_a_line(app_space: AppSpace) -> None:
    """New models are looked up, locked, inserted and announced together, however many there are."""
    counts, random = [], np.random.default_rng(9)
    for size in (2, 100):
        supports = [random_support(random, app_space.space.num_parameters, 50) for _ in range(size)]
        entries = [BatchEntry(f"{size}/{i}", support) for i, support in enumerate(supports)]
        with statements(app_space.database) as seen, app_space.database.reading() as session:
            app_space.services[BatchService].put(session, app_space.space, entries)
        counts.append(len(seen))
    assert counts[0] == counts[1]


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """The statements that all sessions of a database execute meanwhile."""
    seen: list[str] = []
    with database.reading() as session:
        engine = session.get_bind().engine

    def hear(*given: Any) -> None:
        seen.append(given[2])

    event.listen(engine, "before_cursor_execute", hear)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", hear)


@pytest.mark.slow
def test_a_batch_needs_the_scope_to_write(start: Start) -> None:
    """A key that may only read stores nothing."""
    running = start("--auth=required")
    headers = {
        "Authorization": f"Bearer {new_key(running, '--scope', 'read')}",
        "Content-Type": JSONL,
    }
    answer = httpx.post(f"{running.url}/v1/spaces/s/batch", content=b"{}", headers=headers)
    assert_problem(answer, 403, "forbidden")


@pytest.mark.slow
def test_the_example_of_the_document_works(http: httpx.Client) -> None:
    """The OpenAPI document's example body is answered as its example answer says."""
    operation = ok(http.get("/openapi.json"))["paths"]["/v1/spaces/{space}/batch"]["post"]
    example = operation["requestBody"]["content"][JSONL]["example"]
    space = Space(http, M, signature={"num_perm": 4})
    results = [json.loads(line) for line in post(space, example.encode()).text.splitlines()]
    documented = operation["responses"]["200"]["content"][JSONL]["example"]
    assert [json.loads(line) for line in documented.splitlines()] == results
