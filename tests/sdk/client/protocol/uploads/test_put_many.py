"""put_many of both clients: the items of each request, and their results."""

from __future__ import annotations

import base64
import io
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from modelkin import ApiError, BulkItem, BulkResult, ModelkinError, Support
from tests.support.servers.batch_service import A, B, Service, answered, line, pairs, refusal

SIGNED = A.signature(num_perm=4)
LARGE = Support.from_indices(np.arange(3_000_000), 2**32)
Open = Callable[[Service], Any]


def test_items_travel_in_batches(opened: Open) -> None:
    """Items go in order, ``batch_size`` a request, as the lines that the API takes."""
    service = Service()
    items = [
        BulkItem("org/a", A, ["y", "x"], {"n": 1}),
        ("b", SIGNED),
        BulkItem("c", A, []),
    ]
    summary = opened(service).put_many("digits", items, batch_size=2, concurrency=1)
    assert (3, 0, 3) == (summary.created, summary.failed, summary.total)
    [[first, second], [third]] = service.batches
    assert {"model", "support", "tags", "attributes"} == first.keys()
    assert (["x", "y"], {"n": 1}, []) == (first["tags"], first["attributes"], third["tags"])
    assert {"model": "b", "signature": modelkin.wire.signature_to_json(SIGNED)} == second


def test_a_request_is_of_a_few_megabytes(opened: Open) -> None:
    """However many lines it may have, a request has 4 MiB at most, and all lines are sent."""
    service = Service()
    items = [BulkItem(f"m{i}", A, attributes={"x": "y" * 400_000}) for i in range(25)]
    opened(service).put_many("digits", items, batch_size=10_000)
    assert [10, 10, 5] == sorted(map(len, service.names), reverse=True)
    assert sorted(item.model for item in items) == sorted(itertools.chain(*service.names))


@pytest.mark.parametrize(
    ("item", "then"),
    [
        (BulkItem("big", LARGE), []),
        (BulkItem("big", A, attributes={"x": "y" * 600_000}), ["PATCH"]),
    ],
)
def test_a_large_item_travels_alone(opened: Open, item: BulkItem, then: list[str]) -> None:
    """What makes too long a line, or decodes to too much, is put by itself, in its place."""
    service = Service()
    items = [("before", A), item, ("after", A)]
    summary = opened(service).put_many("digits", items, concurrency=1)
    assert [["before"], ["after"]] == service.names
    assert ["GET", "PUT", *then] == [method for method, _ in service.others]
    assert 3 == summary.created


def test_a_refused_large_item_fails_alone(opened: Open) -> None:
    """Its refusal is a result as that of a line is; an answer about the caller is raised."""
    service = Service()
    service.other = lambda request: refusal(409, "space_mismatch")  # type: ignore[method-assign]
    client = opened(service)
    summary = client.put_many("digits", [("big", LARGE), ("a", A)])
    assert (BulkResult("big", "failed", "space_mismatch", "no"),) == summary.failures
    assert 1 == summary.created
    service.other = lambda request: refusal(403, "forbidden")  # type: ignore[method-assign]
    with pytest.raises(ApiError, match="forbidden"):
        client.put_many("digits", [("big", LARGE)])


def test_items_are_taken_as_there_is_room(opened: Open) -> None:
    """Of endlessly many items only those under way are taken, and what stops it is raised."""
    service = Service()
    service.first = [*(answered([line(f"m{i}")]) for i in range(5)), refusal(403, "forbidden")]
    ahead: list[int] = []

    def items() -> Iterator[tuple[str, Support]]:
        for number in range(10**9):
            ahead.append(number - len(service.batches))
            yield f"m{number}", A

    with pytest.raises(ApiError, match="forbidden"):
        opened(service).put_many("digits", items(), batch_size=1, concurrency=1)
    assert max(ahead) <= 2
    assert 6 == len(service.batches)


def test_a_batch_is_tried_again(opened: Open) -> None:
    """Broken connections and a 503 are tried again with the same lines, and count once."""
    service = Service()
    service.first = [httpx.ReadError("reset"), refusal(503, "unavailable")]
    summary = opened(service).put_many("digits", pairs(3))
    assert (3, 3) == (summary.created, summary.total)
    assert [["m0", "m1", "m2"]] * 3 == service.names
    assert [0.25, 0.5] == service.pauses


def test_what_came_of_each_item_is_told(opened: Open) -> None:
    """``on_result`` gets every item, and the summary keeps the failures with their reason."""
    reports: list[BulkResult] = []
    summary = opened(Service("m1")).put_many("digits", pairs(3), on_result=reports.append)
    failed = BulkResult("m1", "failed", "support_exists", "it has one")
    assert [BulkResult("m0", "created"), failed, BulkResult("m2", "created")] == reports
    assert (2, 1, (failed,)) == (summary.created, summary.failed, summary.failures)


def test_failures_are_kept_in_bounds(opened: Open) -> None:
    """All failures are counted, the first thousand kept."""
    names = [f"m{i}" for i in range(1100)]
    summary = opened(Service(*names)).put_many("digits", pairs(1100), concurrency=1)
    assert (1100, 1000) == (summary.failed, len(summary.failures))
    assert names[:1000] == [failure.model for failure in summary.failures]


def test_what_no_service_takes_is_not_sent(opened: Open) -> None:
    """A wrong name, tag or attribute fails its item here, and the others go on."""
    service = Service()
    items = [
        ("../x", A),
        BulkItem("a", A, ["\n"]),
        BulkItem("b", A, attributes={"x": float("nan")}),
        ("good", A),
    ]
    summary = opened(service).put_many("digits", items)
    assert [["good"]] == service.names
    codes = [failure.code for failure in summary.failures]
    assert ["invalid_name", "invalid_name", "invalid_parameter"] == codes


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "batch_size of 0": ({"batch_size": 0}, "batch_size"),
    "batch_size of 10,001": ({"batch_size": 10_001}, "batch_size"),
    "concurrency": ({"concurrency": True}, "concurrency"),
    "progress": ({"progress": "yes"}, "progress"),
    "items": ({"items": [("a", A), "b"]}, "items"),
    "content": ({"items": [("a", [1, 2])]}, "content"),
    "space": ({"space": "No"}, "space"),
    "resume": ({"resume": "/nowhere/at/all"}, "resume"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_refused(opened: Open, wrong: str) -> None:
    """An argument that cannot be is an InvalidInput that names it."""
    options, field = WRONG[wrong]
    with pytest.raises(modelkin.InvalidInput) as caught:
        opened(Service()).put_many(**{"space": "digits", "items": [("a", A)]} | options)
    assert field == caught.value.field


ODD: dict[str, list[Any]] = {
    "too few": [line("a")],
    "an unknown status": [line("a"), line("b", "perhaps")],
    "a failure without a reason": [line("a"), {"model": "b", "status": "failed"}],
    "no object": [line("a"), 5],
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_answer_is_no_success(opened: Open, odd: str, tmp_path: Path) -> None:
    """An answer that does not fit the lines is an error, and nothing of it is noted."""
    service = Service()
    service.first = [answered(ODD[odd])]
    with pytest.raises(ModelkinError, match="upgrade modelkin"):
        opened(service).put_many("digits", [("a", A), ("b", A)], resume=tmp_path / "j")
    assert 1 == len((tmp_path / "j").read_text().splitlines())


def test_two_contents_of_a_model_are_not_under_way_at_once(opened: Open) -> None:
    """The second waits until the first has arrived, so that the last one stands."""
    service = Service()
    items = [("a", A), ("b", A), ("a", B), ("c", A)]
    opened(service).put_many("digits", items, batch_size=1, concurrency=4)
    supports = [batch[0]["support"] for batch in service.batches if batch[0]["model"] == "a"]
    assert [base64.b64encode(x.to_bytes()).decode() for x in (A, B)] == supports


def test_progress_counts_items(opened: Open) -> None:
    """A function gets the items done, and the items in all where that is known."""
    reports: list[tuple[int, int | None]] = []
    client = opened(Service())
    client.put_many("digits", pairs(5), batch_size=2, concurrency=1, progress=_into(reports))
    client.put_many("digits", iter(pairs(1)), progress=_into(reports))
    assert [(2, 5), (4, 5), (5, 5), (1, None)] == reports


def _into(reports: list[tuple[int, int | None]]) -> Callable[[int, int | None], None]:
    return lambda done, total: reports.append((done, total))


def test_a_terminal_shows_a_line(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal ``progress=True`` draws, with a share where there is one, and wipes it."""
    terminal = type("Terminal", (io.StringIO,), {"isatty": lambda self: True})()
    monkeypatch.setattr(sys, "stderr", terminal)
    client = opened(Service())
    client.put_many("digits", pairs(2), progress=True)
    client.put_many("digits", iter(pairs(2)), progress=True)
    shown = terminal.getvalue()
    assert "100% 2 models" in shown
    assert 2 == shown.count(" 2 models")
    assert shown.endswith("\r\x1b[K")
