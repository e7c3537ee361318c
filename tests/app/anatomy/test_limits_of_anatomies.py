"""Anatomies and relatives that the time or the memory of a service does not suffice for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.anatomy import service
from app.container import Container
from app.infra import deadlines
from app.infra.http.requests.memory_budget import Budgets, Reservation
from modelkin.core.fingerprints import comparison
from tests.app.anatomy.families import BODY, Family, derived, stranger
from tests.support.app.harness import open_app
from tests.support.backends import Backend
from tests.support.fixtures import on_one_database
from tests.support.http_space import assert_problem

QUESTIONS = ("anatomy", "relatives")


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory, backend: Backend) -> Iterator[Family]:
    """A service that has no time for any answer, with a base and two children."""
    folder = tmp_path_factory.mktemp("hurried")
    with open_app(folder, backend, query_timeout_seconds=1e-9) as app:
        family = Family(app)
        family.put("base", stranger(0))
        family.put("child", derived("fused"))
        family.put("copy", derived("renamed"))
        yield family


def ask(family: Family, what: str) -> list[Any]:
    """A question about a stored model, and one about a fingerprint that is not."""
    http = family.app.http
    given = derived("transposed").to_bytes()
    return [
        http.get(f"/v1/fingerprints/base/{what}"),
        http.post(f"/v1/{what}", content=given, headers=BODY),
    ]


def services_of(family: Family) -> Container:
    """The services of the application that answers, beside those of the harness."""
    application: Any = family.app.http.app
    found: Container = application.state.services
    return found


@on_one_database
@pytest.mark.parametrize("what", QUESTIONS)
def test_without_time_for_any_model_it_is_too_much(hurried: Family, what: str) -> None:
    """An empty answer would say that there are no kin. While the index is built, a 503 says so."""
    for _ in range(2):  # the first ones build the index
        answers = ask(hurried, what)
    for answer in answers:
        detail = assert_problem(answer, 503, "too_much")
        assert "MODELKIN_QUERY_TIMEOUT_SECONDS" in detail
        assert "/tensors" in detail
        assert "retry-after" not in answer.headers


@on_one_database
def test_an_index_that_is_being_built_is_awaited(tmp_path: Path, backend: Backend) -> None:
    """A question builds what it has time for, and the next one goes on from there."""
    with open_app(tmp_path, backend, query_timeout_seconds=1e-9) as app:
        family = Family(app)
        family.put("base", stranger(0))
        first, second = ask(family, "relatives")
        detail = assert_problem(first, 503, "unavailable")
        assert "is being built, and goes on from here at the next request" in detail
        assert 0 < int(first.headers["retry-after"])
        assert "too_much" == second.json()["code"]


@on_one_database
@pytest.mark.parametrize("what", QUESTIONS)
def test_what_was_compared_in_time_is_the_answer(
    hub: Family, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that it is truncated, and has no ETag: the next answer may name more."""
    over = list[bool]()

    def compare_one(*arguments: Any) -> comparison.Comparison:
        over.append(True)
        return comparison.compare(*arguments)

    monkeypatch.setattr(service, "compare", compare_one)
    monkeypatch.setattr(deadlines.Deadline, "passed", lambda _: bool(over))
    answer = hub.app.http.get(f"/v1/fingerprints/org/child/{what}")
    assert 200 == answer.status_code, answer.text
    found = answer.json()
    assert 1 == len(found["parents" if what == "anatomy" else "items"])
    assert found["truncated"]
    assert "etag" not in answer.headers
    monkeypatch.undo()
    assert "etag" in hub.app.http.get(f"/v1/fingerprints/org/child/{what}").headers


@on_one_database
@pytest.mark.parametrize("what", [*QUESTIONS, "tensors?with=org/child"])
def test_without_memory_a_question_is_refused_in_time(hub: Family, what: str) -> None:
    """The service says which setting there is; once there is memory, it answers."""
    budget = services_of(hub)[Budgets].answers
    other, patience = Reservation(budget, "another"), budget.timeout
    other.take(budget.limit)
    budget.timeout = 0.05
    try:
        answer: Any = hub.app.http.get(f"/v1/fingerprints/org/base/{what}")
        detail = assert_problem(answer, 503, "unavailable")
        assert "MODELKIN_MAX_INFLIGHT_BODY_BYTES" in detail
    finally:
        budget.timeout = patience
        other.release()
    assert 200 == hub.app.http.get(f"/v1/fingerprints/org/base/{what}").status_code
    assert 0 == budget.held
