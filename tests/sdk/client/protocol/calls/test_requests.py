"""What the client sends: request lines, headers and bodies, as they leave."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import httpx
import pytest

from modelkin.client import Client
from modelkin.core.layout import Layout
from modelkin.core.support import Support
from modelkin.errors import InvalidInput, InvalidName, InvalidParameter
from modelkin.types.spaces import SignatureSpec
from tests.support.blocking_client import Connect

SUPPORT = Support.from_indices([2, 5, 7], 100)


@pytest.mark.parametrize(
    ("name", "tail"),
    [
        ("org/client-7", "org/client-7"),
        ("a b", "a%20b"),
        ("x@y+z:w", "x%40y%2Bz%3Aw"),
        ("模型", "%E6%A8%A1%E5%9E%8B"),
        ("cafe\u0301", "caf%C3%A9"),
        ("a/..b/...", "a/..b/..."),
        ("~", None),
    ],
)
def test_model_names_are_path_tails(
    name: str, tail: str | None, wire: Any, model_json: dict[str, Any]
) -> None:
    """A model name is normalised and percent-encoded segment by segment, its slashes kept."""
    client = wire.client(httpx.Response(200, json=model_json))
    if tail is None:
        with pytest.raises(InvalidName):
            client.models.get("digits", name)
        return
    client.models.get("digits", name)
    assert f"/v1/spaces/digits/models/{tail}" == wire.target


@pytest.mark.parametrize("name", ["a/../b", "..", "a?b", "a#b", "50%", "%2e%2e", "a//b", "\ud800"])
@pytest.mark.parametrize("operation", ["models.get", "supports.get", "models.delete", "neighbors"])
def test_wrong_names_are_never_sent(name: str, operation: str, wire: Any) -> None:
    """What a URL would collapse, cut or decode differently is refused before one is built."""
    client = wire.client(httpx.Response(500))
    with pytest.raises(InvalidName):
        attrgetter(operation)(client)("digits", name)
    assert [] == wire.requests


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.spaces.get("../admin"),
        lambda client: client.models.list("Digits"),
        lambda client: client.models.list("digits", tags="one"),
        lambda client: client.overlap("digits", "a", ".."),
        lambda client: client.similarity("digits", "ab"),
        lambda client: client.similarity("digits", ["a", ""]),
        lambda client: client.neighbors("digits", [2, 5, 7]),
        lambda client: client.put_support("digits", "a", [2, 5, 7]),
        lambda client: client.put_signature("digits", "a", SUPPORT),
        lambda client: client.put_support("digits", "a", SUPPORT, tags=["a\n"]),
        lambda client: client.put_support("digits", "a", SUPPORT, if_match='"1"\r\nX: y'),
        lambda c: c.put_support("digits", "a", SUPPORT, if_match='"1"', create_only=True),
        lambda client: client.models.update("digits", "a", attributes={"x": float("nan")}),
        lambda client: client.models.update("digits", "a", attributes={"x": object()}),
        lambda client: client.ensure_space("digits"),
    ],
)
def test_wrong_arguments_are_never_sent(call: Callable[[Client], object], wire: Any) -> None:
    """Arguments no service would take are errors at the call, even where pages come lazily."""
    client = wire.client(httpx.Response(500))
    with pytest.raises(InvalidInput):
        call(client)
    assert [] == wire.requests


def test_a_query_keeps_its_letters(wire: Any, neighbors_json: dict[str, Any]) -> None:
    """Names and tags in a query are encoded so that + and & and spaces arrive as themselves."""
    client = wire.client(httpx.Response(200, json=neighbors_json))
    client.neighbors("digits", "a+b c/d", k=3, min_similarity=0.25, tags=["z", "ö 1"])
    assert (
        "/v1/spaces/digits/neighbors?model=a%2Bb%20c%2Fd&k=3&method=auto&tag=z"
        "&tag=%C3%B6%201&min_similarity=0.25"
    ) == wire.target
    assert ["z", "ö 1"] == wire.requests[0].url.params.get_list("tag")


def test_a_prefix_of_the_service_is_kept(wire: Any, model_json: dict[str, Any]) -> None:
    """A service behind a path is asked under that path."""
    wire.answers = [httpx.Response(200, json=model_json)]
    wire.connect("http://kin.test/api/", transport=httpx.MockTransport(wire)).models.get(
        "digits", "a"
    )
    assert "/api/v1/spaces/digits/models/a" == wire.target


def test_a_support_is_put_in_the_native_format(wire: Any, model_json: dict[str, Any]) -> None:
    """An upload is the support's own bytes under their media type."""
    client = wire.client(httpx.Response(201, json=model_json))
    client.put_support("digits", "org/a", SUPPORT, tags=["b", "a"], if_match='"7"')
    (request,) = wire.requests
    assert ("PUT", "/v1/spaces/digits/supports/org/a?tag=a&tag=b") == (request.method, wire.target)
    assert "application/vnd.modelkin.support" == request.headers["content-type"]
    assert '"7"' == request.headers["if-match"]
    assert SUPPORT.to_bytes() == request.content


@pytest.mark.parametrize(("tags", "query"), [(None, ""), ([], "?tag="), (["a"], "?tag=a")])
def test_no_tags_differ_from_unchanged_tags(
    tags: list[str] | None, query: str, wire: Any, model_json: dict[str, Any]
) -> None:
    """None says nothing of tags, an empty list says that there shall be none."""
    client = wire.client(httpx.Response(200, json=model_json))
    client.put_support("digits", "a", SUPPORT, tags=tags)
    assert f"/v1/spaces/digits/supports/a{query}" == wire.target


def test_a_signature_is_put_in_the_native_format(wire: Any, model_json: dict[str, Any]) -> None:
    """A signature alone goes to its own collection in its own format."""
    client = wire.client(httpx.Response(201, json=model_json | {"kind": "signature"}))
    signature = SUPPORT.signature(num_perm=16)
    client.put_signature("digits", "a", signature)
    assert "/v1/spaces/digits/signatures/a" == wire.target
    assert "application/vnd.modelkin.signature" == wire.requests[0].headers["content-type"]
    assert signature.to_bytes() == wire.requests[0].content


@pytest.mark.parametrize("question", ["neighbors", "donors"])
@pytest.mark.parametrize("kind", ["support", "signature"])
def test_what_is_not_stored_is_posted(
    question: str,
    kind: str,
    wire: Any,
    neighbors_json: dict[str, Any],
    donors_json: dict[str, Any],
) -> None:
    """Questions of a support or signature carry it in the body and name no model."""
    value = SUPPORT if kind == "support" else SUPPORT.signature(num_perm=16)
    answer = neighbors_json if question == "neighbors" else donors_json
    client = wire.client(httpx.Response(200, json=answer | {"model": None, "target": None}))
    getattr(client, question)("digits", value, k=2)
    (request,) = wire.requests
    assert ("POST", f"/v1/spaces/digits/{question}") == (request.method, request.url.path)
    assert f"application/vnd.modelkin.{kind}" == request.headers["content-type"]
    assert value.to_bytes() == request.content
    assert not {"model", "target"} & set(request.url.params)


def test_ensure_space_sends_the_layout(wire: Any, space_json: dict[str, Any]) -> None:
    """A space is made from its layout, whose size is M."""
    layout = Layout.of([("w", (6, 10)), ("b", (40,))])
    client = wire.client(httpx.Response(201, json=space_json))
    client.ensure_space("digits", layout=layout, signature=SignatureSpec(num_perm=128))
    assert {
        "name": "digits",
        "num_parameters": 100,
        "layout": [{"name": "w", "shape": [6, 10]}, {"name": "b", "shape": [40]}],
        "signature": {"scheme": "affine32", "num_perm": 128, "seed": 1},
    } == json.loads(wire.requests[0].content)


def test_a_layout_and_another_size_contradict(connect: Connect) -> None:
    """num_parameters beside a layout of another size is refused."""
    layout = Layout.of([("w", (6, 10))])
    with pytest.raises(InvalidParameter, match="num_parameters is 61, the layout has 60"):
        connect().ensure_space("digits", layout=layout, num_parameters=61)


@pytest.mark.parametrize(
    ("changes", "body"),
    [
        ({}, {}),
        ({"tags": ["b", "a"]}, {"tags": ["a", "b"]}),
        ({"attributes": {"n": 1}, "source": None}, {"attributes": {"n": 1}, "source": None}),
        ({"base_model": "org/base"}, {"base_model": "org/base"}),
    ],
)
def test_an_update_says_only_what_changes(
    changes: dict[str, Any], body: dict[str, Any], wire: Any, model_json: dict[str, Any]
) -> None:
    """What is left out is not sent, and None clears."""
    wire.client(httpx.Response(200, json=model_json)).models.update("digits", "a", **changes)
    assert ("PATCH", body) == (wire.requests[0].method, json.loads(wire.requests[0].content))


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        (lambda client: client.spaces.delete("digits"), "/v1/spaces/digits"),
        (lambda client: client.models.delete("digits", "a/b"), "/v1/spaces/digits/models/a/b"),
    ],
)
def test_deletions(operation: Callable[[Client], None], path: str, wire: Any) -> None:
    """A deletion sends no body and returns nothing."""
    operation(wire.client(httpx.Response(204)))
    assert ("DELETE", path, b"") == (wire.requests[0].method, wire.target, wire.requests[0].content)


def test_a_layout_of_another_type_is_named(wire: Any) -> None:
    """Pairs of names and shapes are refused before anything is sent; the error says what to do."""
    client = wire.client(httpx.Response(500))
    with pytest.raises(InvalidParameter, match=r"Layout\.of") as raised:
        client.ensure_space("digits", layout=[("w", (2, 2))])
    assert "layout" == raised.value.field
    assert [] == wire.requests
