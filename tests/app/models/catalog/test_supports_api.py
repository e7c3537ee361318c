"""PUT and GET of supports over HTTP."""

from __future__ import annotations

import unicodedata
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from pyroaring import BitMap

from modelkin import Support
from tests.support.http_space import (
    JSON,
    RAW,
    ROARING,
    SUPPORT,
    Space,
    assert_problem,
    ok,
    random_support,
)

M = 10_000


@pytest.fixture
def support() -> Support:
    return random_support(np.random.default_rng(7), M, 800)


@pytest.fixture
def other() -> Support:
    return random_support(np.random.default_rng(8), M, 900)


def encodings(support: Support) -> dict[str, bytes]:
    """One support in every media type, each written without the service."""
    dtype = "<u4" if support.num_parameters <= 2**32 else "<u8"
    return {
        SUPPORT: support.to_bytes(),
        ROARING: support.to_roaring(),
        RAW: support.indices.astype(dtype).tobytes(),
        JSON: b'{"indices":[' + ",".join(map(str, support.indices.tolist())).encode() + b"]}",
    }


def test_a_new_support_is_a_201_that_describes_the_model(space: Space, support: Support) -> None:
    """The first PUT answers 201 and the whole model resource."""
    answer = space.put_bytes("org/a", support.to_bytes(), SUPPORT, tag=["b", "a"])
    assert answer.status_code == 201
    expected = {
        "space": space.name,
        "model": "org/a",
        "kind": "support",
        "support_size": 800,
        "digest": support.digest,
        "revision": 1,
        "version": 1,
        "tags": ["a", "b"],
        "attributes": {},
        "source": None,
        "base_model": None,
        "verified": True,
    }
    assert expected == {key: answer.json()[key] for key in expected}


@pytest.mark.parametrize("media_type", [SUPPORT, ROARING, RAW, JSON])
def test_a_support_comes_back_in_every_media_type(
    space: Space, support: Support, media_type: str
) -> None:
    """For every format of the PUT, each format of the GET is byte-correct."""
    sent = encodings(support)
    ok(space.put_bytes("a", sent[media_type], media_type))
    for wanted, expected in sent.items():
        answer = space.http.get(space.path("supports", "a"), headers={"Accept": wanted})
        assert (wanted, expected) == (answer.headers["content-type"], answer.content)


def test_the_native_format_is_the_default(space: Space, support: Support) -> None:
    """Without a preference a support comes in the native format, which carries M and a digest."""
    space.put("a", support)
    answer = space.http.get(space.path("supports", "a"), headers={"Accept": "*/*"})
    assert (SUPPORT, support) == (
        answer.headers["content-type"],
        Support.from_bytes(answer.content),
    )


@pytest.mark.parametrize("media_type", [SUPPORT, ROARING, RAW, JSON])
def test_the_same_content_again_changes_nothing(
    space: Space, support: Support, media_type: str
) -> None:
    """A repeated PUT, in any format, is a 200 with the same model, version and ETag."""
    first = space.put_bytes("a", support.to_bytes(), SUPPORT, tag=["t"])
    again = space.put_bytes("a", encodings(support)[media_type], media_type)
    assert (200, first.json()) == (again.status_code, again.json())
    assert first.headers["ETag"] == again.headers["ETag"]
    assert space.show()["version"] == 1


def test_another_content_is_the_next_revision(
    space: Space, support: Support, other: Support
) -> None:
    """A changed support raises revision and version, and moves the ETag."""
    space.put("a", support)
    before = space.etag("a")
    answer = space.put_bytes("a", other.to_bytes(), SUPPORT)
    model = answer.json()
    assert (200, 2, 2) == (answer.status_code, model["revision"], model["version"])
    assert (other.digest, other.k) == (model["digest"], model["support_size"])
    assert before != answer.headers["ETag"]
    got = space.http.get(space.path("supports", "a")).content
    assert other == Support.from_bytes(got)


def test_the_ETag_of_every_answer_is_the_models(space: Space, support: Support) -> None:
    """PUT, GET of the support, of the signature and of the model carry the same ETag."""
    put = space.put_bytes("a", support.to_bytes(), SUPPORT)
    kinds = ("supports", "signatures", "models")
    tags = {space.http.get(space.path(kind, "a")).headers["ETag"] for kind in kinds}
    assert {put.headers["ETag"]} == tags


def test_without_tag_a_model_keeps_its_tags(space: Space, support: Support, other: Support) -> None:
    """A PUT without ``tag`` keeps the tags, whether the content changes or not."""
    space.put("a", support, tags=["x", "y"])
    same = ok(space.put_bytes("a", support.to_bytes(), SUPPORT))
    changed = ok(space.put_bytes("a", other.to_bytes(), SUPPORT))
    assert [["x", "y"], ["x", "y"]] == [same["tags"], changed["tags"]]


def test_tag_replaces_the_tags(space: Space, support: Support) -> None:
    """A PUT of the same content with other tags replaces them, as a new version of revision 1."""
    space.put("a", support, tags=["x", "y"])
    model = ok(space.put_bytes("a", support.to_bytes(), SUPPORT, tag=["z", "y", "z"]))
    assert (["y", "z"], 1, 2) == (model["tags"], model["revision"], model["version"])


def test_an_empty_tag_clears_the_tags(space: Space, support: Support) -> None:
    """``tag=`` without a value leaves a model without tags."""
    space.put("a", support, tags=["x"])
    assert [] == ok(space.put_bytes("a", support.to_bytes(), SUPPORT, tag=""))["tags"]


def test_a_stale_If_Match_is_a_412_that_stores_nothing(
    space: Space, support: Support, other: Support
) -> None:
    """A PUT on the condition of an older ETag is refused and the model stays as it is."""
    space.put("a", support)
    stale = space.etag("a")
    space.put("a", support, tags=["newer"])
    before = space.model("a")
    headers = {"Content-Type": SUPPORT, "If-Match": stale}
    url = space.path("supports", "a")
    answer = space.http.put(url, content=other.to_bytes(), headers=headers)
    assert stale in assert_problem(answer, 412, "precondition_failed")
    assert before == space.model("a")


@pytest.mark.parametrize("condition", ["current", "*", "listed"])
def test_a_current_If_Match_lets_the_PUT_through(
    space: Space, support: Support, other: Support, condition: str
) -> None:
    """The present ETag, alone or among others, and ``*`` match an existing model."""
    space.put("a", support)
    tag = space.etag("a")
    header = {"current": tag, "*": "*", "listed": f'"none", {tag}'}[condition]
    headers = {"Content-Type": SUPPORT, "If-Match": header}
    url = space.path("supports", "a")
    assert 200 == space.http.put(url, content=other.to_bytes(), headers=headers).status_code


def test_If_Match_of_a_missing_model_is_a_412(space: Space, support: Support) -> None:
    """``If-Match: *`` means "only if it exists", so it never makes a model."""
    headers = {"Content-Type": SUPPORT, "If-Match": "*"}
    url = space.path("supports", "a")
    answer = space.http.put(url, content=support.to_bytes(), headers=headers)
    assert_problem(answer, 412, "precondition_failed")
    assert 0 == space.show()["models"]


def test_a_support_turns_a_signature_into_a_full_model(space: Space, support: Support) -> None:
    """A model known by its signature gets its support: the next revision, verified, recounted."""
    first = space.put_signature("a", support.signature())
    assert ("signature", None, False) == (first["kind"], first["digest"], first["verified"])
    model = space.put("a", support)
    assert ("support", support.digest, True) == (model["kind"], model["digest"], model["verified"])
    assert 2 == model["revision"]
    counts = space.show()
    assert (1, 1, 0) == (counts["models"], counts["supports"], counts["signatures"])


NAMES = [
    "a",
    "org/model",
    "a/b/c/d",
    "with space/and another",
    "ünïcode/模型/نموذج",
    "हिन्दी",
    "plus+and@at:colon",
    "x.y_z-0/..dots..",
    "supports/models",
    "acme/model.",
    "...",
    "é" * 100,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_survives_the_path(space: Space, support: Support, name: str) -> None:
    """Every name the rules allow can be stored, listed, read and deleted."""
    assert name == space.put(name, support)["model"]
    got = space.http.get(space.path("supports", name))
    assert support == Support.from_bytes(got.content)
    assert [name] == [m["model"] for m in ok(space.http.get(space.path("models")))["items"]]
    assert 204 == space.http.delete(space.path("models", name)).status_code
    assert 404 == space.http.get(space.path("models", name)).status_code


def test_two_spellings_of_a_name_are_one_model(space: Space, support: Support) -> None:
    """A name in normal form D is the model of the same name in normal form C."""
    composed = "café/Å"
    decomposed = unicodedata.normalize("NFD", composed)
    assert composed != decomposed
    space.put(composed, support)
    again = space.put_bytes(decomposed, support.to_bytes(), SUPPORT)
    assert (200, composed) == (again.status_code, again.json()["model"])
    assert 1 == space.show()["models"]


@pytest.mark.parametrize("name", ["a%b", "a?b", "a#b", "a\\b", "a\u200bb", "a*b", "a,b"])
def test_a_character_outside_the_alphabet_is_named(
    space: Space, support: Support, name: str
) -> None:
    """Percent-encoded delimiters reach the service, which refuses them by code point."""
    url = f"/v1/spaces/{space.name}/supports/" + "".join(f"%{b:02x}" for b in name.encode())
    answer = space.http.put(url, content=support.to_bytes(), headers={"Content-Type": SUPPORT})
    detail = assert_problem(answer, 422, "invalid_name", "model")
    assert f"U+{ord(name[1]):04X}" in detail


@pytest.mark.parametrize("media_type", [SUPPORT, ROARING, RAW, JSON])
def test_a_64_bit_space_takes_indices_beyond_32_bits(http: httpx.Client, media_type: str) -> None:
    """With M of 8e9 every format carries 64-bit indices both ways."""
    space = Space(http, 8_000_000_000)
    rng = np.random.default_rng(3)
    support = random_support_64(rng, space.m, 500)
    sent = encodings(support)
    assert support.digest == ok(space.put_bytes("a", sent[media_type], media_type))["digest"]
    for wanted, expected in sent.items():
        answer = http.get(space.path("supports", "a"), headers={"Accept": wanted})
        assert (wanted, expected) == (wanted, answer.content)


def random_support_64(rng: np.random.Generator, m: int, k: int) -> Support:
    """K of M indices, for an M too large to shuffle."""
    return Support.from_indices(np.unique(rng.integers(0, m, k, dtype=np.uint64)), m)


def test_the_largest_and_the_smallest_support(space: Space) -> None:
    """One index, the last one, and all M of them are supports like any other."""
    last = Support.from_indices([M - 1], M)
    whole = Support.from_indices(np.arange(M), M)
    assert (1, M) == (space.put("l", last)["support_size"], space.put("w", whole)["support_size"])
    got = [Support.from_bytes(space.http.get(space.path("supports", n)).content) for n in "lw"]
    assert [last, whole] == got


def test_a_bitmap_written_by_pyroaring_alone_comes_back_the_same(space: Space) -> None:
    """Bytes that pyroaring wrote, run containers included, come back with the same indices."""
    bitmap = BitMap([*range(100, 4000), 5000, 9999])
    bitmap.run_optimize()
    ok(space.put_bytes("a", bitmap.serialize(), ROARING))
    answer = space.http.get(space.path("supports", "a"), headers={"Accept": ROARING})
    assert bitmap == BitMap.deserialize(answer.content)


def test_the_quality_of_Accept_decides(space: Space, support: Support) -> None:
    """Of several acceptable formats the one with the highest q is answered."""
    space.put("a", support)
    accept = f"{RAW};q=0.2, {JSON};q=0.9, */*;q=0.1"
    answer = space.http.get(space.path("supports", "a"), headers={"Accept": accept})
    assert JSON == answer.headers["content-type"]


def test_the_support_of_a_signature_is_a_409(space: Space, support: Support) -> None:
    """The error says that there are no indices, and what is stored instead."""
    space.put_signature("a", support.signature())
    answer = space.http.get(space.path("supports", "a"))
    assert "signature" in assert_problem(answer, 409, "support_missing")


def test_a_support_of_another_M_is_a_409(space: Space) -> None:
    """The native format carries M, and another M than the space's is a mismatch, not a support."""
    misfit = random_support(np.random.default_rng(1), M + 1, 100)
    answer = space.put_bytes("a", misfit.to_bytes(), SUPPORT)
    assert str(M + 1) in assert_problem(answer, 409, "space_mismatch")
    assert 0 == space.show()["models"]


def test_If_None_Match_stores_a_new_model_and_replaces_none(
    space: Space, support: Support, other: Support
) -> None:
    """``If-None-Match: *`` is for the first upload alone; a tag refuses that version alone."""
    url = space.path("supports", "a")
    new = {"Content-Type": SUPPORT, "If-None-Match": "*"}
    assert 201 == space.http.put(url, content=support.to_bytes(), headers=new).status_code
    before = space.model("a")
    for content in (support, other):
        answer = space.http.put(url, content=content.to_bytes(), headers=new)
        assert before["model"] in assert_problem(answer, 412, "precondition_failed")
    assert before == space.model("a")
    same = new | {"If-None-Match": space.etag("a")}
    answer = space.http.put(url, content=other.to_bytes(), headers=same)
    assert_problem(answer, 412, "precondition_failed")
    others = new | {"If-None-Match": '"none"', "If-Match": space.etag("a")}
    assert 200 == space.http.put(url, content=other.to_bytes(), headers=others).status_code


def test_of_concurrent_creations_one_stores(space: Space, support: Support, other: Support) -> None:
    """Of writers that all create one model, one is answered 201 and the others 412."""
    url, new = space.path("supports", "a"), {"Content-Type": SUPPORT, "If-None-Match": "*"}

    def create(content: Support) -> int:
        return space.http.put(url, content=content.to_bytes(), headers=new).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(create, [support, other] * 4))
    assert [201, *[412] * 7] == statuses
