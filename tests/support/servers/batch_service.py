"""A fake service that answers batches only, in the test's own process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import httpx

from modelkin import Support
from tests.sdk.client.conftest import MODEL, SPACE

__all__ = ["A", "B", "M", "Service", "answered", "line", "pairs", "refusal"]

M = 100
A, B = (Support.from_indices([start, 50, 99], M) for start in (1, 2))
BATCH, ONE_SPACE = "/v1/spaces/digits/batch", "/v1/spaces/digits"
JSONL = "application/jsonl"


def pairs(n: int) -> list[tuple[str, Support]]:
    """``n`` items."""
    return [(f"m{i}", A) for i in range(n)]


def line(model: str, status: str = "created") -> dict[str, Any]:
    """One line of an answer."""
    error = {"error": {"code": "support_exists", "detail": "it has one"}}
    return {"model": model, "status": status, **(error if status == "failed" else {})}


class Service:
    """Answers batches and keeps the requests; all models but those in ``failing`` are created.

    Args:
        failing: names of models that are refused.
        path: of the batches.
    """

    def __init__(self, *failing: str, path: str = BATCH) -> None:
        self.failing = set(failing)
        self.path = path
        self.batches: list[list[dict[str, Any]]] = []
        self.others: list[tuple[str, str]] = []
        self.first: list[httpx.Response | Exception] = []
        self.pauses: list[float] = []
        self.space = dict(SPACE)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path != self.path:
            self.others.append((request.method, request.url.path))
            return self.other(request)
        assert (JSONL, "POST") == (request.headers["content-type"], request.method)
        lines = [json.loads(text) for text in request.content.splitlines()]
        self.batches.append(lines)
        if self.first:
            answer = self.first.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return answered(
            line(x["model"], "failed" if x["model"] in self.failing else "created") for x in lines
        )

    def other(self, request: httpx.Request) -> httpx.Response:
        """Answer a request that is not a batch."""
        if request.url.path == ONE_SPACE:
            return httpx.Response(200, json=self.space)
        if request.method == "GET":
            problem = {"code": "model_not_found", "detail": "there is no such model"}
            return httpx.Response(404, json=problem)
        return httpx.Response(201, json=MODEL)

    @property
    def names(self) -> list[list[str]]:
        """The models of each batch."""
        return [[line["model"] for line in batch] for batch in self.batches]


def answered(lines: Iterable[Any]) -> httpx.Response:
    """An answer with these lines."""
    content = b"".join(json.dumps(x).encode() + b"\n" for x in lines)
    return httpx.Response(200, content=content, headers={"Content-Type": JSONL})


def refusal(status: int, code: str) -> httpx.Response:
    """A problem document."""
    return httpx.Response(status, json={"code": code, "detail": "no"})
