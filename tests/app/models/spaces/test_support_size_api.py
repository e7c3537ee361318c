"""The sizes that a space asks of its supports, and how its clients come to one K, over HTTP."""

from __future__ import annotations

import json
import statistics
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import Support
from modelkin.wire import PATCH, encode_patch
from modelkin.wire.json import signature_to_json
from tests.support.http_space import SUPPORT, Space, assert_problem, ok

M = 1_000
REPORTS = st.lists(
    st.tuples(st.sampled_from(["a", "b/c", "d", "e", "f", None]), st.integers(1, M)), max_size=9
)


def report(space: Space, k_star: Any, client: str | None = None) -> httpx.Response:
    """POST a K*."""
    body = {"k_star": k_star} | ({} if client is None else {"client": client})
    return space.http.post(space.path("support-size"), json=body)


def current(space: Space) -> dict[str, Any]:
    """The K of the space."""
    return ok(space.http.get(space.path("support-size")))


def agreed(http: httpx.Client) -> Space:
    """A space whose clients agree on K."""
    return Space(http, M, support_size={"policy": "agreed"})


def test_an_agreed_K_has_a_floor(http: httpx.Client) -> None:
    """Where few entries reach the coverage, K is a thousandth of the parameters, rounded up."""
    space = Space(http, 10_001, support_size={"policy": "agreed"})
    assert 11 == ok(report(space, 3, "a"))["k"]
    assert 12 == ok(report(space, 12, "a"))["k"]


@pytest.mark.slow
@settings(max_examples=12)
@given(reports=REPORTS)
def test_the_agreed_K_is_the_lower_median(
    http: httpx.Client, reports: list[tuple[str | None, int]]
) -> None:
    """Each client counts once, with its last report; those without a name count as one."""
    space = agreed(http)
    reported: dict[str | None, int] = {}
    for client, k_star in reports:
        reported[client] = k_star
        expected = {
            "policy": "agreed",
            "k": statistics.median_low(reported.values()),
            "reports": len(reported),
        }
        assert expected == ok(report(space, k_star, client))
        assert expected == current(space)


def test_before_the_first_report_there_is_no_K(http: httpx.Client) -> None:
    """Without a report the answer is null."""
    assert {"policy": "agreed", "k": None, "reports": 0} == current(agreed(http))


def test_an_agreed_K_refuses_nothing(http: httpx.Client) -> None:
    """A support of another size is stored as it is: only its client could cut it rightly."""
    space = agreed(http)
    ok(report(space, 10, "a"))
    assert 25 == space.put("b", Support.from_indices(range(25), M))["support_size"]


@pytest.mark.parametrize(
    "stated",
    [{"num_parameters": M + 1}, {"importance": "weight"}, {"layout": f"sha256:{'0' * 64}"}],
)
def test_what_the_space_would_not_store_does_not_count(
    http: httpx.Client, stated: dict[str, Any]
) -> None:
    """A report that states another M, kind or layout is a 409, and moves no K."""
    layout = [{"name": "w", "shape": [M]}]
    space = Space(
        http, M, support_size={"policy": "agreed"}, importance={"kind": "fisher"}, layout=layout
    )
    ok(report(space, 10, "a"))
    before = current(space)
    body = {"k_star": 2, "client": "b"} | stated
    assert_problem(http.post(space.path("support-size"), json=body), 409, "space_mismatch")
    assert before == current(space)
    fits = {"num_parameters": M, "importance": "fisher"}
    ok(http.post(space.path("support-size"), json={"k_star": 2, "client": "b"} | fits))
    assert 2 == current(space)["reports"]


def test_a_report_changes_no_model(http: httpx.Client) -> None:
    """The version of the space, which indexes follow, moves with models alone."""
    space = agreed(http)
    before = space.show()
    ok(report(space, 10, "a"))
    assert before == space.show()


@pytest.mark.parametrize("asked", [{"k": 20}, {"fraction": 0.02}, {"fraction": 0.0209}])
def test_a_fixed_K_refuses_what_is_larger(http: httpx.Client, asked: dict[str, Any]) -> None:
    """K itself and fewer are stored, as a support or as a signature; one more is a 409."""
    space = Space(http, M, support_size={"policy": "fixed", **asked})
    assert {"policy": "fixed", "k": 20} == space.show()["support_size"]
    for k in (1, 20):
        space.put(f"s{k}", Support.from_indices(range(k), M))
        space.put_signature(f"a{k}", Support.from_indices(range(k), M).signature())
    larger = Support.from_indices(range(21), M)
    before = space.show()
    signed = space.http.put(
        space.path("signatures", "x"),
        content=larger.signature().to_bytes(),
        headers={"Content-Type": "application/vnd.modelkin.signature"},
    )
    for answer in (space.put_bytes("x", larger.to_bytes(), SUPPORT), signed):
        assert "fixes K at 20" in assert_problem(answer, 409, "space_mismatch")
    assert before == space.show()


def test_a_fixed_K_holds_for_batches(http: httpx.Client) -> None:
    """A line that is too large is refused by itself."""
    space = Space(http, M, support_size={"policy": "fixed", "k": 2})
    lines = [
        {
            "model": f"m{k}",
            "signature": signature_to_json(Support.from_indices(range(k), M).signature()),
        }
        for k in (2, 3)
    ]
    answer = http.post(
        space.path("batch"),
        content="\n".join(map(json.dumps, lines)),
        headers={"Content-Type": "application/jsonl"},
    )
    stored, refused = (json.loads(line) for line in answer.text.splitlines())
    assert ("created", "space_mismatch") == (stored["status"], refused["error"]["code"])


def test_a_fixed_K_holds_for_patches(http: httpx.Client) -> None:
    """A support may be changed by a patch up to K, and not grow beyond it."""
    space = Space(http, M, support_size={"policy": "fixed", "k": 3})
    before = Support.from_indices([1, 2, 3], M)
    space.put("a", before)
    for indices, status in (([2, 3, 4], 200), ([2, 3, 4, 5], 409)):
        answer = http.patch(
            space.path("supports", "a"),
            content=encode_patch(before, after := Support.from_indices(indices, M)),
            headers={"Content-Type": PATCH, "If-Match": space.etag("a")},
        )
        assert status == answer.status_code
        before = after
    assert_problem(answer, 409, "space_mismatch")
    assert 3 == space.model("a")["support_size"]


def test_reports_do_not_change_a_fixed_K(http: httpx.Client) -> None:
    """Any report is answered with the fixed K."""
    space = Space(http, M, support_size={"policy": "fixed", "k": 20})
    expected = {"policy": "fixed", "k": 20, "reports": 0}
    assert expected == ok(report(space, 500, "a")) == current(space)


def test_a_free_space_answers_each_client_its_own_K(space: Space) -> None:
    """Spaces are free by default: a report is answered with the client's own K*."""
    assert {"policy": "free", "k": None} == space.show()["support_size"]
    assert {"policy": "free", "k": 77, "reports": 0} == ok(report(space, 77, "a"))
    assert {"policy": "free", "k": None, "reports": 0} == current(space)


@pytest.mark.parametrize(
    ("made", "asked", "status"),
    [
        ({"policy": "agreed"}, {"policy": "agreed"}, 200),
        ({"policy": "free"}, None, 200),
        (None, {"policy": "free"}, 200),
        ({"policy": "fixed", "k": 20}, {"policy": "fixed", "fraction": 0.02}, 200),
        ({"policy": "fixed", "k": 20}, {"policy": "fixed", "k": 21}, 409),
        ({"policy": "agreed"}, None, 409),
        (None, {"policy": "agreed"}, 409),
    ],
)
def test_a_space_is_the_same_only_with_its_policy(
    http: httpx.Client, made: Any, asked: Any, status: int
) -> None:
    """A body that asks for another policy, or another K, is of another space."""
    first = {} if made is None else {"support_size": made}
    space = Space(http, M, **first)
    body = {"name": space.name, "num_parameters": M}
    answer = http.post("/v1/spaces", json=body | ({} if asked is None else {"support_size": asked}))
    assert status == answer.status_code
    if status == 409:
        assert "support_size" in assert_problem(answer, 409, "space_exists")


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"policy": "fixed"}, "support_size.k"),
        ({"policy": "fixed", "k": 5, "fraction": 0.1}, "support_size.k"),
        ({"policy": "fixed", "k": 0}, "support_size.k"),
        ({"policy": "fixed", "k": M + 1}, "support_size.k"),
        ({"policy": "fixed", "k": True}, "support_size.k"),
        ({"policy": "fixed", "fraction": 0.0}, "support_size.fraction"),
        ({"policy": "fixed", "fraction": 1.5}, "support_size.fraction"),
        ({"policy": "agreed", "k": 5}, "support_size.k"),
        ({"policy": "free", "fraction": 0.5}, "support_size.fraction"),
        ({"policy": "median"}, "support_size.policy"),
        ({"k": 5}, "support_size.policy"),
        ({"policy": "free", "size": 5}, "support_size.size"),
        ("agreed", "support_size"),
    ],
)
def test_what_is_no_policy_is_refused(http: httpx.Client, asked: Any, field: str) -> None:
    """A policy without its K, with a K it has no use for, or with one out of range."""
    body = {"name": "no-such-policy", "num_parameters": M, "support_size": asked}
    assert_problem(http.post("/v1/spaces", json=body), 422, "invalid_parameter", field)
    assert_problem(http.get("/v1/spaces/no-such-policy"), 404, "space_not_found")


@pytest.mark.parametrize("k_star", [0, -1, M + 1, 2**63, 1.0, True, "5", None])
def test_a_K_out_of_range_is_refused(http: httpx.Client, k_star: Any) -> None:
    """K* is 1 to M, for any policy, and a refused one is not stored."""
    for space in (agreed(http), Space(http, M)):
        before = current(space)
        assert_problem(report(space, k_star, "a"), 422, "invalid_parameter", "k_star")
        assert before == current(space)


def test_a_wrong_name_of_a_client_is_refused(http: httpx.Client) -> None:
    """A client is named as models are; a name has one spelling."""
    space = agreed(http)
    assert_problem(report(space, 5, "a/../b"), 422, "invalid_name", "client")
    ok(report(space, 5, "é"))
    assert {"policy": "agreed", "k": 9, "reports": 1} == ok(report(space, 9, "e\u0301"))


def test_an_unknown_space_is_a_404(http: httpx.Client) -> None:
    """An unknown space neither has a K nor takes reports."""
    assert_problem(http.get("/v1/spaces/nowhere/support-size"), 404, "space_not_found")
    answer = http.post("/v1/spaces/nowhere/support-size", json={"k_star": 5})
    assert_problem(answer, 404, "space_not_found")


def test_reports_at_once_all_count(http: httpx.Client) -> None:
    """Forty concurrent reports all count, and their median is right."""
    space = agreed(http)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda k: report(space, k, f"c{k % 40}"), range(1, 81)))
    assert {200} == {answer.status_code for answer in answers}
    assert 40 == current(space)["reports"]


def test_an_agreement_ends_with_its_space(http: httpx.Client) -> None:
    """A recreated space has no report of the one before."""
    space = agreed(http)
    ok(report(space, 30, "a"))
    http.delete(f"/v1/spaces/{space.name}")
    body = {"name": space.name, "num_parameters": M, "support_size": {"policy": "agreed"}}
    ok(http.post("/v1/spaces", json=body))
    assert {"policy": "agreed", "k": None, "reports": 0} == current(space)
