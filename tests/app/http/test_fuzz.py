"""Requests drawn at random, within bounds and from a seed: whatever comes, never a 5xx.

``make soak`` draws a thousand for each test.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import Support
from modelkin.wire import PATCH, encode_patch
from tests.support.declared_problems import OPERATIONS
from tests.support.http_space import JSON, RAW, ROARING, SIGNATURE, SUPPORT, Space
from tests.support.repetitions import repetitions

GOOD = Support.from_indices(range(0, 10_000, 7), 10_000)
fuzz = settings(
    max_examples=repetitions(1000, few=30),
    derandomize=True,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
NAMES = TEXT | st.text("ab/. \0\n%é\u0301-_@+:", max_size=12)
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 2**32, 2**63, 2**64, 10**30])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of the fields, each as it should be or anything at all."""
    return st.fixed_dictionaries({}, optional={k: v | VALUES for k, v in fields.items()})


def check(answer: httpx.Response) -> None:
    """A success, or a 4xx problem document that says what is wrong."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        problem = answer.json()
        assert "application/problem+json" == answer.headers["content-type"]
        assert answer.status_code == problem["status"]
        assert problem["code"]
        assert problem["detail"]
        assert answer.headers["x-request-id"] == problem["request_id"]


def encoded(name: str) -> str:
    """Each byte of a name percent-encoded, so that no client tidies it."""
    return "".join(f"%{byte:02X}" for byte in name.encode())


@pytest.mark.slow
@fuzz
@given(name=NAMES, kind=st.sampled_from(["supports", "signatures", "models"]))
def test_any_model_name_is_stored_or_refused(space: Space, name: str, kind: str) -> None:
    """A name of any characters is a 2xx that can be read back and deleted, or a 4xx."""
    url = f"/v1/spaces/{space.name}/supports/{encoded(name)}"
    answer = space.http.put(url, content=GOOD.to_bytes(), headers={"Content-Type": SUPPORT})
    check(answer)
    check(space.http.get(f"/v1/spaces/{space.name}/{kind}/{encoded(name)}"))
    shown = space.http.get(f"/spaces/{space.name}/models/{encoded(name)}")
    assert (200 if answer.is_success else 404) == shown.status_code
    deleted = space.http.delete(f"/v1/spaces/{space.name}/models/{encoded(name)}")
    check(deleted)
    assert answer.is_success == deleted.is_success


ROUTES = ["neighbors", "donors", "graph", "lineage", "overlap", "models"]
TEXTS = ["stored", "scan", "exact", "knn_shapley", "cover", "5", "0.5"]


def query_of(route: str) -> st.SearchStrategy[tuple[str, list[tuple[str, str]]]]:
    """The route with parameters that it has, now and then with another one."""
    (operation,) = (o for o in OPERATIONS.values() if o.method == "GET" and o.path.endswith(route))
    known = [p["name"] for p in operation.described["parameters"] if p["in"] == "query"]
    values = NAMES | NUMBERS.map(str) | st.sampled_from(TEXTS)
    pairs = st.tuples(st.sampled_from([*2 * known, "other"]), values)
    return st.tuples(st.just(route), st.lists(pairs, max_size=6))


@pytest.mark.slow
@fuzz
@given(asked=st.sampled_from(ROUTES).flatmap(query_of))
def test_any_query_is_answered_or_refused(
    space: Space, asked: tuple[str, list[tuple[str, str]]]
) -> None:
    """Parameters of any kind, repeated, missing and unknown ones, are a 2xx or a 4xx."""
    route, query = asked
    space.put("stored", GOOD)
    text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query)
    check(space.http.get(f"{space.path(route)}?{text}"))


TENSORS = st.lists(some(name=TEXT, shape=st.lists(st.integers(0, 100), max_size=4)), max_size=4)
SPACES = some(
    name=st.text("ab", min_size=1, max_size=3),
    num_parameters=st.integers(1, 2**63 - 1),
    layout=TENSORS,
    support_size=some(
        policy=st.sampled_from(["free", "fixed", "agreed"]),
        k=st.integers(1, 100),
        fraction=st.floats(0, 1),
    ),
    signature=some(
        scheme=st.sampled_from(["affine32", "affine64"]),
        num_perm=st.integers(1, 4096),
        seed=st.integers(0, 2**32 - 1),
    ),
)


@pytest.mark.slow
@fuzz
@given(body=SPACES)
def test_any_space_is_made_or_refused(http: httpx.Client, body: dict[str, Any]) -> None:
    """A space of any fields is a 2xx, which can be shown and deleted, or a 4xx."""
    answer = http.post("/v1/spaces", content=text_of(body), headers={"Content-Type": JSON})
    check(answer)
    if answer.is_success:
        base = f"/v1/spaces/{answer.json()['name']}"
        assert answer.json() == http.get(base).json()
        assert 200 == http.get(base.removeprefix("/v1")).status_code
        assert 204 == http.delete(base).status_code


@pytest.mark.slow
@fuzz
@given(body=some(k_star=st.integers(1, 10_000), client=NAMES) | VALUES)
def test_any_size_is_agreed_on_or_refused(agreeing: Space, body: Any) -> None:
    """A K* of anything is a 2xx that is counted, or a 4xx that is not."""
    url, headers = agreeing.path("support-size"), {"Content-Type": JSON}
    before = agreeing.http.get(url).json()
    answer = agreeing.http.post(url, content=text_of(body), headers=headers)
    check(answer)
    after = agreeing.http.get(url).json()
    assert after == (answer.json() if answer.is_success else before)


@pytest.fixture
def agreeing(http: httpx.Client) -> Space:
    """A space whose clients agree on K."""
    return Space(http, support_size={"policy": "agreed"})


def text_of(value: Any) -> bytes:
    """The value as JSON, or as what a careless writer takes for it: NaN and the like."""
    return json.dumps(value).encode()


UPDATES = some(
    tags=st.lists(NAMES, max_size=4),
    attributes=st.dictionaries(TEXT, VALUES, max_size=4),
    source=TEXT,
    base_model=NAMES,
)


@pytest.mark.slow
@fuzz
@given(body=UPDATES | VALUES)
def test_any_update_is_made_or_refused(space: Space, body: Any) -> None:
    """A PATCH of anything is a 2xx that reads back as answered, or a 4xx that changed nothing."""
    before = space.put("stored", GOOD)
    url, headers = space.path("models", "stored"), {"Content-Type": JSON}
    answer = space.http.patch(url, content=text_of(body), headers=headers)
    check(answer)
    after = space.model("stored")
    assert after == (answer.json() if answer.is_success else before)
    assert 200 == space.http.get(f"/spaces/{space.name}/models/stored").status_code


PAYLOADS = st.one_of(
    st.binary(max_size=200),
    st.lists(st.integers(0, 12_000), max_size=30).map(
        lambda indices: b"".join(i.to_bytes(4, "little") for i in indices)
    ),
    some(indices=st.lists(st.integers(-2, 12_000), max_size=9).map(sorted)).map(text_of),
    some(
        scheme=st.sampled_from(["affine32", "affine64"]),
        num_perm=st.just(256) | st.integers(0, 300),
        seed=st.just(1),
        support_size=st.integers(0, 12_000),
        values=st.integers(0, 2**33).map(lambda value: [value] * 256),
    ).map(text_of),
    VALUES.map(text_of),
    st.tuples(
        st.sampled_from([GOOD.to_bytes(), GOOD.to_roaring(), GOOD.signature().to_bytes()]),
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
        st.integers(0, 60) | st.just(10**6),
    ).map(lambda parts: mangled(*parts)),
)


def mangled(data: bytes, changes: list[tuple[int, int]], length: int) -> bytes:
    """A good payload with some bytes replaced, and perhaps cut short."""
    damaged = bytearray(data)
    for at, value in changes:
        damaged[at % len(data)] = value
    return bytes(damaged[:length])


@fuzz
@given(
    body=PAYLOADS,
    media_type=st.sampled_from([SUPPORT, ROARING, RAW, JSON, SIGNATURE]),
    target=st.sampled_from(["supports", "signatures", "neighbors", "donors"]),
)
def test_any_payload_is_taken_or_refused(
    space: Space, body: bytes, media_type: str, target: str
) -> None:
    """Any bytes under any media type are a 2xx or a 4xx, and what was stored can be read back."""
    headers = {"Content-Type": media_type}
    if target in {"neighbors", "donors"}:
        check(space.http.post(space.path(target), content=body, headers=headers))
        return
    answer = space.http.put(space.path(target, "new"), content=body, headers=headers)
    check(answer)
    if answer.is_success:
        assert 200 == space.http.get(space.path(target, "new")).status_code
        assert answer.json() == space.model("new")
        assert 204 == space.http.delete(space.path("models", "new")).status_code


OTHER = Support.from_indices(range(0, 10_000, 6), 10_000)
INDICES = st.lists(st.integers(-2, 12_000), max_size=9).map(sorted)
PATCHES = st.one_of(
    PAYLOADS,
    some(added=INDICES, removed=INDICES, digest=st.just(GOOD.digest)).map(text_of),
    st.tuples(
        st.sampled_from([encode_patch(GOOD, OTHER), encode_patch(OTHER, GOOD)]),
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
        st.integers(0, 200) | st.just(10**6),
    ).map(lambda parts: mangled(*parts)),
)


@pytest.mark.slow
@fuzz
@given(body=PATCHES, media_type=st.sampled_from([PATCH, JSON]))
def test_any_patch_is_applied_or_refused(space: Space, body: bytes, media_type: str) -> None:
    """Any bytes as a patch are a 2xx with the model as it is now, or a 4xx that changes nothing."""
    before = space.put("patched", GOOD)
    url, headers = space.path("supports", "patched"), {"Content-Type": media_type, "If-Match": "*"}
    answer = space.http.patch(url, content=body, headers=headers)
    check(answer)
    after = space.model("patched")
    assert after == (answer.json() if answer.is_success else before)
    assert after["digest"] == Support.from_bytes(space.http.get(url).content).digest


HEADERS = st.dictionaries(
    st.sampled_from([b"Accept", b"If-Match", b"X-Request-Id", b"Content-Type", b"Authorization"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"))
    .map(str.strip)
    .map(lambda value: value.encode("latin-1")),
)


@pytest.mark.slow
@fuzz
@given(headers=HEADERS, method=st.sampled_from(["GET", "PUT", "PATCH", "DELETE", "POST"]))
def test_any_header_is_heeded_or_refused(
    space: Space, headers: dict[bytes, bytes], method: str
) -> None:
    """Headers of any text are a 2xx or a 4xx on every method."""
    for kind in ("supports", "models"):
        url = space.path(kind, "some")
        check(space.http.request(method, url, content=b"{}", headers=headers))
