"""Supports and spaces for tests, and the brute force that answers are compared with."""

from __future__ import annotations

import itertools
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Self
from urllib.parse import quote

import httpx
import numpy as np

import modelkin
from modelkin import Support

SUPPORT = "application/vnd.modelkin.support"
ROARING = "application/vnd.roaring"
RAW = "application/octet-stream"
JSON = "application/json"
JSONL = "application/jsonl"
SIGNATURE = "application/vnd.modelkin.signature"

_names = (f"space-{number}" for number in itertools.count())


def random_support(rng: np.random.Generator, m: int, k: int) -> Support:
    """K of M indices, drawn uniformly."""
    return Support.from_indices(np.sort(rng.choice(m, k, replace=False)), m)


def related(rng: np.random.Generator, base: Support, share: float) -> Support:
    """A support as large as ``base`` that keeps ``share`` of it; the rest are other indices."""
    kept = rng.choice(base.indices, int(base.k * share), replace=False)
    others = np.setdiff1d(np.arange(base.num_parameters), base.indices, assume_unique=True)
    new = rng.choice(others, base.k - kept.size, replace=False)
    return Support.from_indices(np.sort(np.concatenate([kept, new])), base.num_parameters)


def family(seed: int, m: int, k: int, n: int) -> dict[str, Support]:
    """``n`` supports named m000, m001, ...: a base, and others at different distances from it."""
    rng = np.random.default_rng(seed)
    base = random_support(rng, m, k)
    shares = rng.uniform(0.0, 0.95, n - 1)
    return {"m000": base} | {
        f"m{i:03d}": related(rng, base, share) for i, share in enumerate(shares, start=1)
    }


def true_similarity(a: Support, b: Support) -> float:
    """S of two supports, computed with numpy's sets."""
    shared = np.intersect1d(a.indices, b.indices, assume_unique=True).size
    return 2 * shared / (a.indices.size + b.indices.size)


def true_neighbors(
    query: Support, others: Mapping[str, Support], k: int = 10, least: float = 0.0
) -> list[tuple[str, float]]:
    """Names and S of the best ``k``, best first, ties by name."""
    scored = ((name, true_similarity(query, other)) for name, other in others.items())
    ranked = sorted((-s, name) for name, s in scored if s >= least)
    return [(name, -s) for s, name in ranked[:k]]


class Space:
    """One space of the service under test, used over plain HTTP.

    Args:
        http: a client whose base URL is the service.
        m: the number of its parameters.
        body: more fields of the request that creates it.
    """

    def __init__(self, http: httpx.Client, m: int = 10_000, **body: Any) -> None:
        self.http = http
        self.m = m
        self.name = next(_names)
        created = http.post("/v1/spaces", json={"name": self.name, "num_parameters": m, **body})
        assert created.status_code == 201, created.text

    @classmethod
    def existing(cls, http: httpx.Client, name: str, m: int) -> Self:
        """A space that is there already."""
        space = cls.__new__(cls)
        space.http, space.m, space.name = http, m, name
        return space

    def path(self, kind: str, model: str | None = None) -> str:
        """``/v1/spaces/{space}/{kind}``, with ``/{model}`` if a model is given."""
        tail = "" if model is None else "/" + quote(model, safe="/")
        return f"/v1/spaces/{self.name}/{kind}{tail}"

    def put(self, model: str, support: Support, tags: Iterable[str] = ()) -> dict[str, Any]:
        """Store a support and return the model from the answer."""
        return ok(self.put_bytes(model, support.to_bytes(), SUPPORT, tag=list(tags)))

    def put_bytes(self, model: str, data: bytes, media_type: str, **params: Any) -> httpx.Response:
        """Send bytes as a support and return the answer."""
        headers = {"Content-Type": media_type}
        url = self.path("supports", model)
        return self.http.put(url, content=data, headers=headers, params=params)

    def put_all(
        self, supports: Mapping[str, Support], fields: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Store several supports in one request, which takes a fraction of one for each; or none.

        Args:
            fields: more fields of some models, such as tags.
        """
        if not supports:
            return
        more = fields or {}
        body = "".join(
            json.dumps(
                {
                    "model": name,
                    "support": b64encode(support.to_bytes()).decode(),
                    **more.get(name, {}),
                }
            )
            + "\n"
            for name, support in supports.items()
        )
        answer = self.http.post(self.path("batch"), content=body, headers={"Content-Type": JSONL})
        assert answer.status_code == 200, answer.text
        results = [json.loads(line) for line in answer.text.splitlines()]
        assert all(result["status"] != "failed" for result in results), results

    def put_signature(self, model: str, signature: modelkin.Signature) -> dict[str, Any]:
        """Store a signature without a support; return the model from the answer."""
        headers = {"Content-Type": SIGNATURE}
        url = self.path("signatures", model)
        return ok(self.http.put(url, content=signature.to_bytes(), headers=headers))

    def model(self, model: str) -> dict[str, Any]:
        """One model, as the service shows it."""
        return ok(self.http.get(self.path("models", model)))

    def etag(self, model: str) -> str:
        """The entity tag of a model."""
        return self.http.get(self.path("models", model)).headers["ETag"]

    def show(self) -> dict[str, Any]:
        """The space itself."""
        return ok(self.http.get(f"/v1/spaces/{self.name}"))

    def neighbors(self, model: str, **params: Any) -> dict[str, Any]:
        """The neighbours of a stored model."""
        return ok(self.http.get(self.path("neighbors"), params={"model": model, **params}))

    def find(
        self, data: bytes, media_type: str = SUPPORT, what: str = "neighbors", **params: Any
    ) -> dict[str, Any]:
        """The neighbours or donors of the support or signature in the body."""
        headers = {"Content-Type": media_type}
        return ok(self.http.post(self.path(what), content=data, headers=headers, params=params))


def ok(answer: httpx.Response) -> dict[str, Any]:
    """The JSON of a successful answer; any other status fails the test."""
    assert answer.status_code in {200, 201}, f"{answer.status_code}: {answer.text}"
    body: dict[str, Any] = answer.json()
    return body


def ranking(answer: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The names and similarities of neighbours or donors in an answer."""
    return [(item["model"], item["similarity"]) for item in answer["items"]]


def assert_problem(answer: httpx.Response, status: int, code: str, field: str = "") -> str:
    """Check that ``answer`` is this complete problem document and names ``field`` if given."""
    assert (status, code) == (answer.status_code, answer.json().get("code")), answer.text
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"] == problem["request_id"]
    assert status == problem["status"]
    assert problem["type"].endswith(code)
    assert problem["title"]
    if field:
        assert field in [error["field"] for error in problem["errors"]]
        assert all(error["message"] for error in problem["errors"])
    detail: str = problem["detail"]
    assert detail
    return detail
