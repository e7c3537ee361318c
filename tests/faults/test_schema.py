"""Requests that schemathesis draws: each answer is one that the OpenAPI document declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from app.server.strict_h11 import MAX_HEAD_BYTES
from tests.faults.cases import OPERATIONS, Cases, name_of, require_declared, sender
from tests.faults.tenants import Tenants, fill, put_models, require_allowed, two_tenants
from tests.support.fixtures import Figure
from tests.support.repetitions import repetitions

if TYPE_CHECKING:
    from schemathesis import Response

    from tests.faults.cases import Case

SEED = 1906
CALLERS = ("own key", "no key", "another's key")


class Callers:
    """Who sends each case: a tenant about its own data, and no tenant and this one about another's.

    Args:
        tenants: of one service.
    """

    def __init__(self, tenants: Tenants) -> None:
        server, asker, foreign = tenants
        self._asker = asker
        models = {name: ["own-m0", "own-m1", "both"] for name in ("model", "members", "target")}
        models |= {"a": ["own-m0"], "b": ["own-m1"], "merge": ["own"], "cluster": ["all"]}
        models |= {"url": ["http://93.184.216.34/"]}
        # No case names its own key: the tenant goes on with it.
        self._own = {**fill(asker, "mine", "own"), **models, "owner": ["asker"], "prefix": ["gone"]}
        self._foreign = {**foreign, **models, "owner": ["victim"]}
        self._keyed = sender(server.url, asker.headers["Authorization"])
        self._keyless = sender(server.url, None)

    def answers(self, cases: Cases, each: int) -> Iterator[tuple[str, Case, Response]]:
        """Send each case thrice: by the callers in their order."""
        for case in cases.drawn(each):
            cases.name(case, self._own)
            yield CALLERS[0], case, self._with_key(case)
            cases.name(case, self._foreign)
            yield CALLERS[1], case, self._keyless(case)
            yield CALLERS[2], case, self._with_key(case)

    def _with_key(self, case: Case) -> Response:
        answer = self._keyed(case)
        if name_of(case) == "delete_space" and answer.status_code == 204:
            put_models(self._asker, "mine", "own")  # later cases have something to find
        return answer


@pytest.mark.slow
def test_answers_to_any_caller_are_declared(tmp_path: Path, figure: Figure) -> None:
    """Each has a status, a type of content and a body of the document. None is a 5xx but the 507 of
    a quota, none without a key is a success, and none shows another tenant's data.
    """
    each = -(-repetitions(100_000, few=1) // (OPERATIONS * len(CALLERS)))
    answered: Counter[int] = Counter()
    operations: set[str] = set()
    with two_tenants(tmp_path) as tenants:
        for caller, case, answer in Callers(tenants).answers(Cases(SEED), each):
            operation = name_of(case)
            shown = f"seed {SEED}, {caller}: {operation} {case!r}: {answer.content[:500]!r}"
            answered[answer.status_code] += 1
            operations.add(operation)
            require_allowed(operation, answer, keyless=caller == CALLERS[1], shown=shown)
            if head_bytes(answer) > MAX_HEAD_BYTES:  # refused before any operation is known
                assert (400, "text/plain") == kind_of(answer)
            else:
                require_declared(case, answer)
    most = ", ".join(f"{many:,} {status}" for status, many in answered.most_common(6))
    figure(
        f"{answered.total():,} requests of schemathesis to {len(operations)} operations, by three "
        f"callers: {most}, {answered[507]:,} a 507 of a quota, none undeclared, seed {SEED}"
    )


def head_bytes(answer: Response) -> int:
    """The size of the head of the request, about: its line, and a line for each field."""
    request = answer.request
    fields = sum(len(name) + len(value) + 4 for name, value in request.headers.items())
    return len(f"{request.method} {request.path_url} HTTP/1.1\r\n") + fields


def kind_of(answer: Response) -> tuple[int, str]:
    """The status, and the type of content."""
    (kind,) = answer.headers["content-type"]
    return answer.status_code, kind.partition(";")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (418, "application/problem+json", {}),
        (200, "text/html", {"status": "ok", "version": "1"}),
        (200, "application/json", {"status": "away", "version": "1"}),
    ],
)
def test_an_answer_that_is_not_declared_is_found(status: int, kind: str, body: object) -> None:
    """Whether it is the status, the type of content or the body."""
    from schemathesis.core.failures import FailureGroup

    request = httpx.Request("GET", "http://127.0.0.1/livez")
    case = Cases(SEED).one("livez")
    right = httpx.Response(200, json={"status": "ok", "version": "1"}, request=request)
    wrong = httpx.Response(status, json=body, headers={"Content-Type": kind}, request=request)
    for answer in (right, wrong):
        answer.elapsed = timedelta(0)
    require_declared(case, right)
    with pytest.raises(FailureGroup):
        require_declared(case, wrong)
