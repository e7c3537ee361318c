"""Requests that cannot be right: names, parameters, JSON, media types, routes and headers."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from modelkin import Support
from tests.support.fixtures import on_one_database
from tests.support.http_space import JSON, SIGNATURE, SUPPORT, Space, assert_problem
from tests.support.servers.server_process import Server, raw_exchange

GOOD = Support.from_indices(range(0, 10_000, 7), 10_000).to_bytes()

# What stands in the path, percent-encoded as it is sent, and a word of the reason.
NAMES = {
    "NUL": ("a%00b", "U+0000"),
    "a newline": ("a%0Ab", "U+000A"),
    "a newline behind a stored name": ("stored%0A", "U+000A"),
    "a newline alone": ("%0A", "U+000A"),
    "a control character": ("a%7Fb", "U+007F"),
    "a C1 control": ("a%C2%85b", "U+0085"),
    "dots up": ("..", "'..'"),
    "dots up inside": ("a/../../b", "'..'"),
    "encoded dots": ("a/%2e%2e/b", "'..'"),
    "a dot": ("a/./b", "'.'"),
    "an empty segment": ("a//b", "empty"),
    "a slash behind": ("a/", "empty"),
    "a slash before": ("/a", "empty"),
    "nothing": ("", "empty"),
    "201 bytes": ("a" * 201, "201 bytes"),
    "201 bytes of UTF-8": ("%C3%A9" * 100 + "a", "201 bytes"),
    "60,000 bytes": ("a" * 60_000, "200 bytes"),
    "60,000 marks": ("%CC%81" * 9_000, "200 bytes"),
    "no UTF-8": ("%FF", "U+FFFD"),
    "half a surrogate": ("%ED%A0%80", "U+FFFD"),
    "a space before": ("%20a", "space"),
    "a space behind a segment": ("a%20/b", "space"),
    "a backslash": ("a%5Cb", "U+005C"),
    "a private character": ("%EE%80%80", "U+E000"),
    "a bidi override": ("a%E2%80%AEb", "U+202E"),
    "an emoji": ("%F0%9F%98%80", "U+1F600"),
}


def send(space: Space, method: str, tail: str, body: bytes = b"", kind: str = "") -> httpx.Response:
    """A request whose path goes out exactly as it is written here: clients tidy paths."""
    line = f"{method} /v1/spaces/{space.name}/{tail} HTTP/1.1"
    head = f"{line}\r\nHost: localhost\r\nConnection: close\r\n"
    if kind:
        head += f"Content-Type: {kind}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    answer = raw_exchange(str(space.http.base_url).rstrip("/"), head.encode() + body)
    top, _, content = answer.partition(b"\r\n\r\n")
    lines = top.decode("latin-1").split("\r\n")
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines[1:])]
    return httpx.Response(int(lines[0].split()[1]), headers=headers, content=content)


@on_one_database
@pytest.mark.parametrize("case", NAMES)
def test_a_wrong_model_name_is_refused(untouched: Space, case: str) -> None:
    """Every route with a model in its path names the model and what is wrong with it."""
    name, said = NAMES[case]
    for method, tail, body, kind in (
        ("PUT", "supports/", GOOD, SUPPORT),
        ("GET", "supports/", b"", ""),
        ("GET", "signatures/", b"", ""),
        ("GET", "models/", b"", ""),
        ("PATCH", "models/", b"{}", JSON),
        ("DELETE", "models/", b"", ""),
    ):
        answer = send(untouched, method, tail + name, body, kind)
        assert said in assert_problem(answer, 422, "invalid_name", "model")


@on_one_database
@pytest.mark.parametrize("case", [case for case in NAMES if case != "nothing"])
def test_a_wrong_name_in_a_query_is_refused(untouched: Space, case: str) -> None:
    """So does every parameter that names a model, under its own name."""
    name, said = NAMES[case]
    for tail, field in (
        (f"neighbors?model={name}", "model"),
        (f"donors?target={name}", "target"),
        (f"donors?target=stored&exclude={name}", "exclude[0]"),
        (f"lineage?model={name}", "model"),
        (f"overlap?a={name}&b=stored", "a"),
        (f"overlap?a=stored&b={name}", "b"),
    ):
        assert said in assert_problem(send(untouched, "GET", tail), 422, "invalid_name", field)


@on_one_database
@pytest.mark.parametrize("tag", ["%00", "a%0Ab", "%20a", "a" * 101, "%FF", "%2A"])
def test_a_wrong_tag_is_refused(untouched: Space, tag: str) -> None:
    """A tag is a name too: as a filter and as what is stored."""
    for method, tail, body, kind in (
        ("PUT", "supports/new", GOOD, SUPPORT),
        ("GET", "models", b"", ""),
        ("POST", "neighbors", GOOD, SUPPORT),
    ):
        answer = send(untouched, method, f"{tail}?tag=ok&tag={tag}", body, kind)
        assert_problem(answer, 422, "invalid_name", "tag[1]")


@on_one_database
def test_51_tags_are_too_many(untouched: Space) -> None:
    """A model has 50 tags at most."""
    tags = [f"t{i}" for i in range(51)]
    answer = untouched.put_bytes("new", GOOD, SUPPORT, tag=tags)
    assert "50" in assert_problem(answer, 422, "invalid_name", "tag")


SPACE_NAMES = ["UPPER", "-a", ".a", "a" * 101, "%00", "a%20b", "%C3%A9", "%FF", "a" * 50_000]


@on_one_database
@pytest.mark.parametrize("name", SPACE_NAMES)
def test_a_wrong_space_name_is_refused(http: httpx.Client, name: str) -> None:
    """What can be no space's name is a 422, in a path as well as in a body."""
    answer = http.get(f"/v1/spaces/{name}/models")
    assert_problem(answer, 422, "invalid_name", "space")
    body = {"name": httpx.URL(f"/{name}").path[1:], "num_parameters": 5}
    assert_problem(http.post("/v1/spaces", json=body), 422, "invalid_name", "name")


def test_an_unknown_space_is_a_404_everywhere(http: httpx.Client) -> None:
    """Each route of a space that is not there says so."""
    calls = [
        http.get("/v1/spaces/nowhere"),
        http.delete("/v1/spaces/nowhere"),
        http.get("/v1/spaces/nowhere/models"),
        http.get("/v1/spaces/nowhere/models/a"),
        http.patch("/v1/spaces/nowhere/models/a", json={}),
        http.delete("/v1/spaces/nowhere/models/a"),
        http.put("/v1/spaces/nowhere/supports/a", content=GOOD, headers={"Content-Type": SUPPORT}),
        http.get("/v1/spaces/nowhere/neighbors", params={"model": "a"}),
        http.post("/v1/spaces/nowhere/neighbors", content=GOOD, headers={"Content-Type": SUPPORT}),
        http.get("/v1/spaces/nowhere/overlap", params={"a": "a", "b": "b"}),
        http.post("/v1/spaces/nowhere/similarity", json={"models": ["a"]}),
        http.get("/v1/spaces/nowhere/donors", params={"target": "a"}),
        http.get("/v1/spaces/nowhere/graph"),
        http.get("/v1/spaces/nowhere/tensors"),
        http.get("/v1/spaces/nowhere/lineage", params={"model": "a"}),
        http.get("/v1/spaces/nowhere/support-size"),
    ]
    for answer in calls:
        assert "nowhere" in assert_problem(answer, 404, "space_not_found")


def test_an_unknown_model_is_a_404_everywhere(untouched: Space) -> None:
    """Each route that reads a model which is not there says so."""
    get, path = untouched.http.get, untouched.path
    for answer in (
        get(path("supports", "nobody")),
        get(path("signatures", "nobody")),
        get(path("models", "nobody")),
        untouched.http.patch(path("models", "nobody"), json={"tags": ["t"]}),
        untouched.http.delete(path("models", "nobody")),
        get(path("neighbors"), params={"model": "nobody"}),
        get(path("overlap"), params={"a": "stored", "b": "nobody"}),
        untouched.http.post(path("similarity"), json={"models": ["stored", "nobody"]}),
        get(path("donors"), params={"target": "nobody"}),
        get(path("lineage"), params={"model": "nobody"}),
    ):
        assert "nobody" in assert_problem(answer, 404, "model_not_found")


WRONG_K = ["0", "-1", "1001", "1000000000", "9" * 5000, "1.5", "x", "", "nan", "1e3", "0x1", "\0"]


@on_one_database
@pytest.mark.parametrize("k", WRONG_K)
@pytest.mark.parametrize("what", ["neighbors", "donors"])
def test_a_wrong_k_is_refused(untouched: Space, what: str, k: str) -> None:
    """k is an integer from 1 to 1,000, for stored models and for bodies."""
    params = {"model" if what == "neighbors" else "target": "stored", "k": k}
    asked = untouched.http.get(untouched.path(what), params=params)
    headers = {"Content-Type": SUPPORT}
    url = untouched.path(what)
    sent = untouched.http.post(url, content=GOOD, headers=headers, params={"k": k})
    for answer in (asked, sent):
        assert_problem(answer, 422, "invalid_parameter", "k")


@on_one_database
@pytest.mark.parametrize("least", ["nan", "NaN", "inf", "-inf", "2", "-1", "1.0001", "x", "", "\0"])
def test_a_wrong_min_similarity_is_refused(untouched: Space, least: str) -> None:
    """``min_similarity`` is a number from 0 to 1."""
    params = {"model": "stored", "min_similarity": least}
    answer = untouched.http.get(untouched.path("neighbors"), params=params)
    assert_problem(answer, 422, "invalid_parameter", "min_similarity")


@on_one_database
@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "1.5"])
def test_a_wrong_limit_is_refused(untouched: Space, limit: str) -> None:
    """A page has 1 to 1,000 items."""
    for url in ("/v1/spaces", untouched.path("models")):
        answer = untouched.http.get(url, params={"limit": limit})
        assert_problem(answer, 422, "invalid_parameter", "limit")


CURSORS = ["x", "!!", "%", "é", "\0", "", "AA", "gICA", "AGE", "=" * 9, "a" * 40_001, "7aCA", " "]


@on_one_database
@pytest.mark.parametrize("cursor", CURSORS)
def test_a_cursor_nobody_gave_out_is_refused(untouched: Space, cursor: str) -> None:
    """Garbage, base64 that is not UTF-8, and base64 of NUL are not cursors."""
    for url in ("/v1/spaces", untouched.path("models")):
        answer = untouched.http.get(url, params={"cursor": cursor})
        assert_problem(answer, 422, "invalid_parameter", "cursor")


@on_one_database
@pytest.mark.parametrize("method", ["lsh2", "EXACT", "", "\0", "scan " + "x" * 40_000])
def test_a_wrong_method_is_refused(untouched: Space, method: str) -> None:
    """An unknown method is a 422, whatever its length."""
    answer = untouched.http.get(
        untouched.path("neighbors"), params={"model": "stored", "method": method}
    )
    assert_problem(answer, 422, "invalid_parameter", "method")
    assert len(answer.content) < 4000


@on_one_database
@pytest.mark.parametrize(
    ("what", "field"), [("neighbors", "model"), ("donors", "target"), ("overlap", "a")]
)
def test_a_missing_parameter_is_named(untouched: Space, what: str, field: str) -> None:
    """A required parameter that is absent is a 422 that names it."""
    answer = untouched.http.get(untouched.path(what))
    assert_problem(answer, 422, "invalid_parameter", field)


# Bodies that are not JSON, for every route that takes JSON.
NO_JSON = {
    "nothing": b"",
    "a word": b"nonsense",
    "cut off": b'{"tags": ["a"',
    "and more": b"{} {}",
    "NaN": b'{"attributes": {"a": NaN}}',
    "infinity": b'{"attributes": {"a": -Infinity}}',
    "a lone surrogate": b'{"source": "\\ud800"}',
    "a lone surrogate as a name": b'{"\\udc00": 1}',
    "surrogate bytes": b'{"source": "\xed\xa0\x80"}',
    "no UTF-8": b'{"source": "\xff"}',
    "UTF-16": '{"source": "a"}'.encode("utf-16"),
    "a control character": b'{"source": "\x00"}',
    "a name twice": b'{"source": "a", "source": "b"}',
    "a name twice inside": b'{"attributes": {"a": {"b": 1, "b": 2}}}',
    "100,000 levels": b"[" * 100_000 + b"]" * 100_000,
    "100,000 objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a deep attribute": b'{"attributes": {"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}",
    "100,000 open brackets": b"[" * 100_000,
}


@on_one_database
@pytest.mark.parametrize("case", NO_JSON)
def test_what_is_no_JSON_is_refused(untouched: Space, case: str) -> None:
    """Every JSON route answers 422 to a body that JSON does not allow."""
    headers = {"Content-Type": JSON}
    for method, url in (
        ("POST", "/v1/spaces"),
        ("PATCH", untouched.path("models", "stored")),
        ("POST", untouched.path("similarity")),
    ):
        answer = untouched.http.request(method, url, content=NO_JSON[case], headers=headers)
        assert_problem(answer, 422, "invalid_parameter")


WRONG_SPACES: dict[str, tuple[Any, str]] = {
    "no object": ([], "body"),
    "no name": ({"num_parameters": 5}, "name"),
    "a number as a name": ({"name": 5, "num_parameters": 5}, "name"),
    "NUL in the name": ({"name": "a\0", "num_parameters": 5}, "name"),
    "no M": ({"name": "a"}, "num_parameters"),
    "M of 0": ({"name": "a", "num_parameters": 0}, "num_parameters"),
    "M negative": ({"name": "a", "num_parameters": -5}, "num_parameters"),
    "M of 2^63": ({"name": "a", "num_parameters": 2**63}, "num_parameters"),
    "M of 4,000 digits": ({"name": "a", "num_parameters": 10**4000}, "num_parameters"),
    "M as text": ({"name": "a", "num_parameters": "5"}, "num_parameters"),
    "M as a float": ({"name": "a", "num_parameters": 5.0}, "num_parameters"),
    "M as a bool": ({"name": "a", "num_parameters": True}, "num_parameters"),
    "an unknown field": ({"name": "a", "num_parameters": 5, "owner": "me"}, "owner"),
    "a layout of nothing": ({"name": "a", "layout": []}, "layout"),
    "a layout of text": ({"name": "a", "layout": "w"}, "layout"),
    "a shape of floats": ({"name": "a", "layout": [{"name": "w", "shape": [1.5]}]}, "layout[0]."),
    "a negative shape": ({"name": "a", "layout": [{"name": "w", "shape": [-1]}]}, "layout[0]."),
    "a tensor without a name": ({"name": "a", "layout": [{"shape": [1]}]}, "layout[0].name"),
    "two tensors of a name": (
        {"name": "a", "layout": [{"name": "w", "shape": [1]}, {"name": "w", "shape": [1]}]},
        "layout",
    ),
    "a layout of no parameters": ({"name": "a", "layout": [{"name": "w", "shape": [0]}]}, "layout"),
    "a layout beyond 64 bits": (
        {"name": "a", "layout": [{"name": "w", "shape": [2**62] * 16}]},
        "layout",
    ),
    "a layout of another M": (
        {"name": "a", "num_parameters": 5, "layout": [{"name": "w", "shape": [4]}]},
        "num_parameters",
    ),
    "an unknown scheme": (
        {"name": "a", "num_parameters": 5, "signature": {"scheme": "md5"}},
        "scheme",
    ),
    "a scheme of NUL": (
        {"name": "a", "num_parameters": 5, "signature": {"scheme": "\0"}},
        "scheme",
    ),
    "a scheme too narrow": (
        {"name": "a", "num_parameters": 2**32 + 1, "signature": {"scheme": "affine32"}},
        "scheme",
    ),
    "h of 0": ({"name": "a", "num_parameters": 5, "signature": {"num_perm": 0}}, "num_perm"),
    "h of a million": (
        {"name": "a", "num_parameters": 5, "signature": {"num_perm": 10**6}},
        "num_perm",
    ),
    "a seed of 2^32": ({"name": "a", "num_parameters": 5, "signature": {"seed": 2**32}}, "seed"),
}


@on_one_database
@pytest.mark.parametrize("case", WRONG_SPACES)
def test_a_wrong_space_is_refused(http: httpx.Client, case: str) -> None:
    """POST of a space that cannot be is a 422 that names the field, and makes none."""
    body, field = WRONG_SPACES[case]
    answer = http.post("/v1/spaces", json=body)
    assert 422 == answer.status_code, answer.text
    assert_problem(answer, 422, answer.json()["code"])
    assert any(field in error["field"] for error in answer.json()["errors"]), answer.text
    assert_problem(http.get("/v1/spaces/a"), 404, "space_not_found")


def deep(levels: int) -> Any:
    """A list in a list in a list ..."""
    nested: Any = 1
    for _ in range(levels):
        nested = [nested]
    return nested


WRONG_UPDATES: dict[str, tuple[Any, str]] = {
    "no object": (["tags"], "body"),
    "tags of text": ({"tags": "a"}, "tags"),
    "tags of numbers": ({"tags": [1]}, "tags[0]"),
    "a tag of NUL": ({"tags": ["a", "b\0"]}, "tags[1]"),
    "an empty tag": ({"tags": [""]}, "tags[0]"),
    "51 tags": ({"tags": [f"t{i}" for i in range(51)]}, "tags"),
    "a source of NUL": ({"source": "a\0b"}, "source"),
    "a source of 2,001": ({"source": "a" * 2001}, "source"),
    "a source of a number": ({"source": 5}, "source"),
    "a base model of NUL": ({"base_model": "a\0"}, "base_model"),
    "a base model above": ({"base_model": "../a"}, "base_model"),
    "attributes of a list": ({"attributes": []}, "attributes"),
    "201 attributes": ({"attributes": {str(i): i for i in range(201)}}, "attributes"),
    "attributes over 64 bits": ({"attributes": {"a": [2**64]}}, "attributes"),
    "attributes of 1,000 levels": ({"attributes": {"a": deep(900)}}, ""),
    "an unknown field": ({"name": "b"}, "name"),
    "the digest": ({"digest": "sha256:"}, "digest"),
}


@on_one_database
@pytest.mark.parametrize("case", WRONG_UPDATES)
def test_a_wrong_update_is_refused(untouched: Space, case: str) -> None:
    """PATCH with a field that cannot be is a 422 that names it, and changes nothing."""
    body, field = WRONG_UPDATES[case]
    answer = untouched.http.patch(untouched.path("models", "stored"), json=body)
    assert 422 == answer.status_code, answer.text
    assert_problem(answer, 422, answer.json()["code"], field)


@on_one_database
def test_a_number_beyond_a_double_is_refused(untouched: Space) -> None:
    """``1e400`` is JSON, yet no number that could ever be answered."""
    url = untouched.path("models", "stored")
    for number in (b"1e400", b"-1e400", b"[[1E999]]"):
        body = b'{"attributes": {"a": ' + number + b"}}"
        answer = untouched.http.patch(url, content=body, headers={"Content-Type": JSON})
        assert 422 == answer.status_code, answer.text


MISSPELT: dict[str, tuple[str, Any, str]] = {
    "of a body": ("clusterings", {"n_cluster": 3}, "n_cluster: unknown field; did you mean 'n_c"),
    "in an object": (
        "clustering-policy",
        {"parameters": {"linkag": "average"}},
        "parameters.linkag: unknown field; did you mean 'linkage'?",
    ),
    "in a list": (
        "",
        {"name": "a", "layout": [{"name": "w", "shap": [3], "shape": [3]}]},
        "layout[0].shap: unknown field; did you mean 'shape'?",
    ),
    "like no other": ("similarity", {"models": ["stored"], "k": 1}, "k: unknown field (known: m"),
}


@on_one_database
@pytest.mark.parametrize("case", MISSPELT)
def test_a_misspelt_field_names_the_known_one(untouched: Space, case: str) -> None:
    """At any depth of a body; where none is near, the message has those that there are."""
    tail, body, says = MISSPELT[case]
    method = "PUT" if tail.endswith("policy") else "POST"
    url = untouched.path(tail) if tail else "/v1/spaces"
    answer = untouched.http.request(method, url, json=body)
    assert says in assert_problem(answer, 422, "invalid_parameter")


WRONG_MATRICES: dict[str, tuple[Any, str]] = {
    "no models": ({}, "models"),
    "none": ({"models": []}, "models"),
    "a text": ({"models": "stored"}, "models"),
    "numbers": ({"models": [1]}, "models[0]"),
    "NUL": ({"models": ["stored", "a\0"]}, "models[1]"),
    "twice the same": ({"models": ["stored", "stored"]}, "models"),
    "1,001": ({"models": [str(i) for i in range(1001)]}, "models"),
    "and more": ({"models": ["stored"], "k": 1}, "k"),
}


@on_one_database
@pytest.mark.parametrize("case", WRONG_MATRICES)
def test_a_wrong_matrix_is_refused(untouched: Space, case: str) -> None:
    """A matrix of models that cannot be is a 422 that names which."""
    body, field = WRONG_MATRICES[case]
    answer = untouched.http.post(untouched.path("similarity"), json=body)
    assert 422 == answer.status_code, answer.text
    assert_problem(answer, 422, answer.json()["code"], field)


TYPES = ["", "text/plain", "image/png", "application/jsonx", "application/pickle", "x", ";", "\xe9"]


@on_one_database
@pytest.mark.parametrize("media_type", TYPES)
def test_a_wrong_media_type_is_a_415(untouched: Space, media_type: str) -> None:
    """Every route with a body names the types it takes."""
    headers = {b"Content-Type": media_type.encode("latin-1")} if media_type else {}
    for method, url in (
        ("PUT", untouched.path("supports", "new")),
        ("PUT", untouched.path("signatures", "new")),
        ("POST", untouched.path("neighbors")),
        ("POST", untouched.path("donors")),
        ("POST", untouched.path("similarity")),
        ("PATCH", untouched.path("models", "stored")),
        ("POST", "/v1/spaces"),
    ):
        answer = untouched.http.request(method, url, content=GOOD, headers=headers)
        assert "application/" in assert_problem(answer, 415, "unsupported_media_type")


@on_one_database
def test_a_support_is_no_signature(untouched: Space) -> None:
    """The routes do not take each other's media types."""
    url, headers = untouched.path("signatures", "new"), {"Content-Type": SUPPORT}
    answer = untouched.http.put(url, content=GOOD, headers=headers)
    assert_problem(answer, 415, "unsupported_media_type")
    answer = untouched.put_bytes("new", GOOD, SIGNATURE)
    assert_problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "accept", ["text/plain", "application/*;q=0", "nonsense", ";;;", "*/*;q=x"]
)
def test_an_Accept_of_nothing_on_offer_is_a_406(untouched: Space, accept: str) -> None:
    """The answer names what there is."""
    for kind in ("supports", "signatures"):
        url = untouched.path(kind, "stored")
        answer = untouched.http.get(url, headers={"Accept": accept})
        assert "application/vnd.modelkin" in assert_problem(answer, 406, "not_acceptable")


@on_one_database
@pytest.mark.parametrize(
    "path", ["/nothing", "/v1", "/v1/models", "/v1/spaces/a/b/c", "/%00", "/a%0Ab"]
)
def test_an_unknown_route_is_a_problem(http: httpx.Client, path: str) -> None:
    """A 404 of the router is a problem document like any other."""
    assert_problem(http.get(path), 404, "route_not_found")


@on_one_database
@pytest.mark.parametrize(
    ("method", "tail", "takes"),
    [
        ("PUT", "", "DELETE, GET"),
        ("DELETE", "/neighbors", "GET, POST"),
        ("POST", "/models/stored", "DELETE, GET, PATCH"),
        ("PATCH", "/signatures/stored", "GET, PUT"),
        ("BREW", "/models", "GET"),
    ],
)
def test_an_unknown_method_is_a_problem(
    untouched: Space, method: str, tail: str, takes: str
) -> None:
    """A 405 is a problem document too, and says which methods the path takes."""
    answer = untouched.http.request(method, f"/v1/spaces/{untouched.name}{tail}")
    said = assert_problem(answer, 405, "method_not_allowed")
    assert takes == answer.headers["Allow"]
    assert said.endswith(f": this path takes {takes}")


HOSTILE_IDS = ["", "a b", "é", "x" * 65, "a;b", "<script>", "../..", "a'--"]


@on_one_database
@pytest.mark.parametrize("given", HOSTILE_IDS)
def test_a_hostile_request_id_is_replaced(http: httpx.Client, given: str) -> None:
    """What could harm a log or a page never comes back."""
    answer = http.get("/livez", headers={b"X-Request-Id": given.encode("latin-1")})
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Request-Id"])


@on_one_database
def test_a_harmless_request_id_comes_back(http: httpx.Client) -> None:
    """A caller's own id is used in the header and in the problem document."""
    answer = http.get("/nothing", headers={"X-Request-Id": "trace-1.a_b"})
    assert "trace-1.a_b" == answer.headers["X-Request-Id"] == answer.json()["request_id"]


@pytest.mark.parametrize("given", ["x" * 5_000, '"unterminated', "W/", ",,,", "\xe9\xff", "* *"])
def test_a_hostile_If_Match_is_a_412(untouched: Space, given: str) -> None:
    """A condition that no model can meet is not met, whatever characters it has."""
    headers = {b"If-Match": given.encode("latin-1")}
    answer = untouched.http.delete(untouched.path("models", "stored"), headers=headers)
    assert_problem(answer, 412, "precondition_failed")


@on_one_database
def test_a_long_list_of_errors_is_cut(untouched: Space) -> None:
    """A body of many mistakes does not get an answer larger than itself."""
    for mistakes, field in ((200, "f0"), (80_000, "body")):
        body = {f"f{i}": 1 for i in range(mistakes)}
        answer = untouched.http.patch(untouched.path("models", "stored"), json=body)
        assert_problem(answer, 422, "invalid_parameter", field)
        assert len(answer.json()["errors"]) <= 100


def test_many_parameters_are_no_harm(server: Server, untouched: Space) -> None:
    """Thousands of parameters in one query are read or refused, never a 5xx."""
    answer = untouched.http.get(untouched.path("models") + "?" + "tag=a&" * 9_000)
    assert 200 == answer.status_code
    query = "&".join(f"tag={quote(f't{i}')}" for i in range(5_000))
    answer = untouched.http.get(untouched.path("models") + "?" + query)
    assert_problem(answer, 422, "invalid_name", "tag")
