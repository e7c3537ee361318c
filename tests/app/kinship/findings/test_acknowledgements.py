"""What was acknowledged: it holds for its finding, and for no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.http_space import Space, assert_problem, ok, random_support, related

M, K = 10_000, 500


@pytest.fixture
def audited(space: Space) -> Space:
    """A base, a model made from it that declares a stranger, and one that declares nothing."""
    rng = np.random.default_rng(11)
    base = random_support(rng, M, K)
    space.put_all({f"other-{n}": random_support(rng, M, K) for n in range(8)})
    space.put_all({"base": base} | {name: related(rng, base, 0.8) for name in ("liar", "silent")})
    declare(space, "liar", "other-3")
    return space


def declare(space: Space, name: str, base: str | None) -> None:
    ok(space.http.patch(space.path("models", name), json={"base_model": base}))


def page(space: Space, **params: Any) -> dict[str, Any]:
    return ok(space.http.get(space.path("lineages"), params=params))


def acknowledge(space: Space, model: str, **body: Any) -> Any:
    path = space.path("lineage/acknowledgement")
    return space.http.put(path, params={"model": model}, json=body)


def test_an_acknowledged_finding_is_listed_apart(audited: Space) -> None:
    """With its note, and counted; once withdrawn it is open again."""
    found = ok(acknowledge(audited, "liar", note="<b>known</b>"))
    assert ("mismatch", "other-3") == (found["verdict"], found["acknowledgement"]["base"])
    assert ["liar"] == [each["model"] for each in page(audited, acknowledged=True)["items"]]
    left = page(audited, acknowledged=False)
    assert "liar" not in [each["model"] for each in left["items"]]
    assert (1, 1) == tuple(left["totals"][name]["mismatch"] for name in ("found", "acknowledged"))
    path = audited.path("lineage/acknowledgement")
    for _ in range(2):
        answer = audited.http.delete(path, params={"model": "liar"})
        assert 204 == answer.status_code
    assert [] == page(audited, acknowledged=True)["items"]


def test_another_finding_is_open_again(audited: Space) -> None:
    """If the verdict names another base; and what was acknowledged still holds when it is back."""
    ok(acknowledge(audited, "liar"))
    declare(audited, "liar", "other-4")
    assert [] == page(audited, acknowledged=True)["items"]
    declare(audited, "liar", "other-3")
    assert ["liar"] == [each["model"] for each in page(audited, acknowledged=True)["items"]]


def test_what_is_no_finding_is_refused(audited: Space) -> None:
    """A stranger, a confirmed base, an unknown model, and a note of more than 500 characters."""
    declare(audited, "liar", "base")
    for name in ("other-1", "liar"):
        assert_problem(acknowledge(audited, name), 422, "invalid_parameter", "model")
    assert_problem(acknowledge(audited, "nobody"), 404, "model_not_found")
    assert_problem(acknowledge(audited, "silent", note="x" * 501), 422, "invalid_parameter")


def test_a_root_is_no_finding(audited: Space) -> None:
    """A base without a declaration is none once all that stands out near it declares a base."""
    assert "base" in [each["model"] for each in page(audited, verdict="undeclared")["items"]]
    declare(audited, "silent", "base")
    assert [] == page(audited, verdict="undeclared")["items"]
