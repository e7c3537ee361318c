"""Answers of one party that no parser expects: the run goes on, and the report names the party."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Message

from modelkin.integrations.flower import RoundReport
from tests.sdk.integrations.flower.shards.sharded_federation import (
    exact,
    grid_of,
    model,
    run,
    sharded,
    step_of,
    vector,
)

NODES = range(1, 7)
OTHERS = (1, 2, 4, 5, 6)
RECORD, VALUES = "modelkin-shards", "modelkin-shard-values"

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR)


def lying(step: str, liars: list[int], lie: Callable[[Message], object]) -> Callable[..., Message]:
    """Changes what the first node that answers to a step answers to it."""

    def tamper(message: Message, answer: Message) -> Message:
        if step_of(message) == step:
            liars.append(message.metadata.dst_node_id)
            if liars[-1] == liars[0]:
                lie(answer)
        return answer

    return tamper


def changing_verdict(change: Change) -> Callable[[Message], None]:
    """Changes an aggregator's first verdict."""

    def lie(answer: Message) -> None:
        record = answer.content.config_records[RECORD]
        verdicts = json.loads(str(record["verdicts"]))
        change(verdicts[0])
        record["verdicts"] = json.dumps(verdicts)

    return lie


def sending_bytes(data: bytes) -> Callable[[Message], None]:
    """Puts bytes into the place of an aggregator's values."""

    def lie(answer: Message) -> None:
        arrays = answer.content.array_records[VALUES]
        for name, array in list(arrays.items()):
            arrays[name] = Array(array.dtype, array.shape, array.stype, data)

    return lie


def stating(count: int) -> bytes:
    """The head of an array of so many values, and none of them."""
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_2_0(stream, header)
    return stream.getvalue()


@pytest.mark.parametrize("conceal", [False, True])
@pytest.mark.parametrize("step", ["combine", "release"])
def test_refusals_of_parties_outside_the_round_mean_nothing(conceal: bool, step: str) -> None:
    """An aggregator that refuses a place outside the roster changes nothing."""
    grid, reports = grid_of(NODES), list[RoundReport]()
    lie = changing_verdict(lambda verdict: verdict.update(refused=[[999, "x"], [-1, "y"]]))
    grid.tamper = lying(step, [], lie)
    found = vector(run(grid, sharded(reports, conceal=conceal)).arrays)
    assert (tuple(NODES), {}, {}, 1) == (
        reports[0].members,
        dict(reports[0].refused),
        dict(reports[0].kept),
        reports[0].attempts,
    )
    np.testing.assert_allclose(found, exact(NODES), atol=1e-6)


@pytest.mark.parametrize("conceal", [False, True])
@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (sending_bytes(b""), "no bytes"),
        (sending_bytes(b"PK\x03\x04 no archive"), "damaged"),
        (sending_bytes(stating(2**55)), "damaged"),
        (changing_verdict(lambda verdict: verdict.update(piece=[float("inf"), 0])), "infinity"),
        (
            changing_verdict(lambda verdict: verdict.update(refused=[[float("inf"), "x"]])),
            "infinity",
        ),
    ],
    ids=["empty", "archive", "huge", "piece", "place"],
)
def test_answers_that_cannot_be_read_cost_their_shard_alone(
    conceal: bool, lie: Callable[[Message], None], why: str
) -> None:
    """The aggregator is named, its shard keeps its values, and all others are exact."""
    grid, reports, liars = grid_of(NODES), list[RoundReport](), list[int]()
    grid.tamper = lying("release", liars, lie)
    found, before = vector(run(grid, sharded(reports, conceal=conceal)).arrays), vector(model())
    (report,) = reports
    assert (tuple(NODES), [liars[0]], 1) == (report.members, list(report.lost), len(report.kept))
    assert why in report.lost[liars[0]]
    stayed = found == before
    assert abs(stayed.sum() - before.size / 3) < 3
    np.testing.assert_allclose(found[~stayed], exact(NODES)[~stayed], atol=1e-6)


def test_tags_that_are_not_bytes_cost_their_member_alone() -> None:
    """A client whose tags cannot be sent on does not count, and the others are exact."""
    grid, reports = grid_of(NODES), list[RoundReport]()

    def lie(message: Message, answer: Message) -> Message:
        if step_of(message) == "train" and message.metadata.dst_node_id == 3:
            record = answer.content.config_records[RECORD]
            count = len(list(record["tags"]))  # type: ignore[arg-type]  # a list
            answer.content[RECORD] = ConfigRecord({**record, "tags": ["x"] * count})
        return answer

    grid.tamper = lie
    found = vector(run(grid, sharded(reports, conceal=False)).arrays)
    assert (OTHERS, {3: "a tag is not bytes"}) == (reports[0].members, dict(reports[0].refused))
    np.testing.assert_allclose(found, exact(OTHERS), atol=1e-6)
