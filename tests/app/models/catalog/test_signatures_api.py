"""Signatures over HTTP, and the promise that anyone may bring datasketch's own."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest
from datasketch import MinHash

import modelkin
from modelkin import Signature, Support
from tests.support.http_space import (
    JSON,
    SIGNATURE,
    Space,
    assert_problem,
    family,
    ok,
    random_support,
    ranking,
)

M, K = 10_000, 500


@pytest.fixture
def support() -> Support:
    return random_support(np.random.default_rng(1), M, K)


def datasketch_json(
    support: Support, h: int = 256, seed: int = 1, scheme: str = "affine32"
) -> bytes:
    """A signature made by datasketch's public API alone, as JSON."""
    minhash = MinHash(num_perm=h, seed=seed, scheme=scheme, hashfunc=lambda i: i)
    minhash.update_batch([int(i) for i in support.indices])
    fields: dict[str, Any] = {
        "scheme": scheme,
        "num_perm": h,
        "seed": seed,
        "support_size": support.k,
        "values": [int(value) for value in minhash.hashvalues],
    }
    return json.dumps(fields).encode()


def put(space: Space, model: str, body: bytes, kind: str = JSON, **headers: str) -> httpx.Response:
    """PUT of a signature."""
    url, headers = space.path("signatures", model), {"Content-Type": kind, **headers}
    return space.http.put(url, content=body, headers=headers)


def test_a_new_signature_is_a_201_that_describes_the_model(space: Space, support: Support) -> None:
    """A model known by its signature has a size but no digest, and is not verified."""
    answer = put(space, "org/a", datasketch_json(support))
    model = answer.json()
    assert (201, "signature", K, None, False, 1) == (
        answer.status_code,
        *(model[f] for f in ("kind", "support_size", "digest", "verified", "revision")),
    )


@pytest.mark.parametrize("method", ["exact", "scan"])
def test_a_signature_of_datasketch_finds_the_same_neighbors(
    http: httpx.Client, method: str
) -> None:
    """By body and stored, datasketch's signature and the SDK's find the very same."""
    space, models = Space(http, M), family(3, M, K, 60)
    space.put_all({name: models[name] for name in list(models)[1:]})
    query = models["m000"]
    ours = space.find(query.signature().to_bytes(), SIGNATURE, method=method)
    theirs = space.find(datasketch_json(query), JSON, method=method)
    assert ours == theirs
    assert 201 == put(space, "query", datasketch_json(query)).status_code
    stored = space.neighbors("query", method=method)
    assert ours["items"] == stored["items"]
    assert 10 == len(stored["items"])


@pytest.mark.parametrize("seed", [1, 42])
@pytest.mark.parametrize("h", [16, 256])
def test_the_signature_of_a_support_is_datasketchs(
    http: httpx.Client, support: Support, h: int, seed: int
) -> None:
    """The service computes the same signature as datasketch, value by value."""
    space = Space(http, M, signature={"num_perm": h, "seed": seed})
    space.put("a", support)
    answer = http.get(space.path("signatures", "a"), headers={"Accept": JSON})
    assert json.loads(datasketch_json(support, h, seed)) == answer.json()


def test_affine64_is_datasketchs_too(http: httpx.Client) -> None:
    """Beyond 2^32 parameters the service's values are datasketch's affine64."""
    space = Space(http, 8_000_000_000)
    indices = np.unique(np.random.default_rng(2).integers(0, space.m, 300, dtype=np.uint64))
    support = Support.from_indices(indices, space.m)
    space.put("a", support)
    answer = http.get(space.path("signatures", "a"), headers={"Accept": JSON})
    assert json.loads(datasketch_json(support, scheme="affine64")) == answer.json()
    assert 201 == put(space, "b", answer.content).status_code


def test_a_signature_comes_back_in_both_media_types(space: Space, support: Support) -> None:
    """JSON in, binary out, and the other way round; binary is the default."""
    signature = support.signature()
    put(space, "a", datasketch_json(support))
    put(space, "b", signature.to_bytes(), SIGNATURE)
    for model in "ab":
        url = space.path("signatures", model)
        binary = space.http.get(url)
        assert (SIGNATURE, signature.to_bytes()) == (binary.headers["content-type"], binary.content)
        answer_json = space.http.get(url, headers={"Accept": JSON}).json()
        assert json.loads(datasketch_json(support)) == answer_json


def test_the_same_signature_again_changes_nothing(space: Space, support: Support) -> None:
    """A repeated PUT is a 200 with the same version and ETag, in either format."""
    first = put(space, "a", datasketch_json(support))
    again = put(space, "a", support.signature().to_bytes(), SIGNATURE)
    assert (200, first.json()) == (again.status_code, again.json())
    assert first.headers["ETag"] == again.headers["ETag"]


def test_another_signature_is_the_next_revision(space: Space, support: Support) -> None:
    """A changed signature replaces the old one, for reads and for searches."""
    other = random_support(np.random.default_rng(5), M, K)
    put(space, "a", datasketch_json(support))
    answer = put(space, "a", datasketch_json(other))
    assert (200, 2) == (answer.status_code, answer.json()["revision"])
    assert other.signature().to_bytes() == space.http.get(space.path("signatures", "a")).content
    found = space.find(other.signature().to_bytes(), SIGNATURE)
    assert [("a", 1.0)] == ranking(found)


def test_another_size_alone_is_the_next_revision(space: Space, support: Support) -> None:
    """The same values of another K are another signature."""
    put(space, "a", datasketch_json(support))
    fields = json.loads(datasketch_json(support)) | {"support_size": K + 1}
    model = put(space, "a", json.dumps(fields).encode()).json()
    assert (2, K + 1) == (model["revision"], model["support_size"])


def test_a_signature_never_replaces_a_support(space: Space, support: Support) -> None:
    """For a model with a support, a signature alone is a 409, even the right one."""
    space.put("a", support)
    before = space.model("a")
    for body in (datasketch_json(support), datasketch_json(Support.from_indices([1], M))):
        assert_problem(put(space, "a", body), 409, "support_exists")
    assert before == space.model("a")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"h": 128}, "num_perm is 128"),
        ({"seed": 2}, "seed is 2"),
        ({"scheme": "affine64"}, "scheme is affine64"),
    ],
)
def test_a_signature_of_another_make_is_a_409(
    space: Space, support: Support, change: dict[str, Any], said: str
) -> None:
    """Scheme, h and seed have to be the space's, to store and to ask."""
    body = datasketch_json(support, **change)
    asked = space.http.post(space.path("neighbors"), content=body, headers={"Content-Type": JSON})
    for answer in (put(space, "a", body), asked):
        assert said in assert_problem(answer, 409, "space_mismatch")
    assert 0 == space.show()["models"]


def test_a_signature_of_another_M_is_a_409(space: Space) -> None:
    """The binary format carries M, and it has to be the space's."""
    misfit = random_support(np.random.default_rng(1), M + 1, 100).signature()
    answer = put(space, "a", misfit.to_bytes(), SIGNATURE)
    assert str(M + 1) in assert_problem(answer, 409, "space_mismatch")


def test_tags_and_If_Match_hold_for_signatures(space: Space, support: Support) -> None:
    """PUT of a signature takes tags and conditions as PUT of a support does."""
    url, headers = space.path("signatures", "a"), {"Content-Type": JSON}
    body = datasketch_json(support)
    model = ok(space.http.put(url, content=body, headers=headers, params={"tag": ["y", "x"]}))
    assert ["x", "y"] == model["tags"]
    answer = put(space, "a", datasketch_json(support), **{"If-Match": '"stale"'})
    assert_problem(answer, 412, "precondition_failed")
    assert 200 == put(space, "a", body, **{"If-Match": space.etag("a")}).status_code
    answer = put(space, "a", body, **{"If-None-Match": "*"})
    assert_problem(answer, 412, "precondition_failed")


def test_the_SDK_reads_what_datasketch_wrote(
    client: modelkin.Client, space: Space, support: Support
) -> None:
    """``get_signature`` gives the SDK's own object, which compares with the support's."""
    put(space, "a", datasketch_json(support))
    got = client.signatures.get(space.name, "a")
    assert (support.signature(), 1.0) == (got, got.jaccard(support.signature()))
    minhash = got.to_datasketch()
    again = Signature.from_datasketch(minhash, num_parameters=M, support_size=K)
    assert "signature" == client.put_signature(space.name, "b", again).kind
    assert ["b"] == [n.model for n in client.neighbors(space.name, "a")]
