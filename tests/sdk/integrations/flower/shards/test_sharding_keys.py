"""Public keys of nodes that join: the server leaves out the culprit, and nobody else for it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Message

from modelkin.integrations.flower import RoundReport
from tests.sdk.integrations.flower.shards.sharded_federation import (
    exact,
    grid_of,
    run,
    sharded,
    step_of,
    vector,
)
from tests.support.federations.low_order import LOW_ORDER_KEYS, same_secrets

NODES, CULPRIT = range(1, 7), 6
OTHERS = tuple(node for node in NODES if node != CULPRIT)
RECORD = "modelkin-shards"


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR)


Change = Callable[[int, bytes], object]
"""The key that a node joins with, from the node and its own key."""


def check(change: Change, why: str, *, conceal: bool = True) -> None:
    """One round in which keys are changed so: one node does not count, and the rest is exact."""

    def tamper(message: Message, answer: Message) -> Message:
        if step_of(message) == "join":
            record, node = answer.content.config_records[RECORD], message.metadata.dst_node_id
            own = record["public-key"]
            assert isinstance(own, bytes)
            record["public-key"] = change(node, own)  # type: ignore[assignment]  # any value
        return answer

    grid, reports = grid_of(NODES), list[RoundReport]()
    grid.tamper = tamper
    found = run(grid, sharded(reports, conceal=conceal)).arrays
    (report,) = reports
    assert (OTHERS, [CULPRIT]) == (report.members, list(report.refused))
    assert ({}, 1) == (report.kept, report.attempts)
    assert why in report.refused[CULPRIT]
    np.testing.assert_allclose(vector(found), exact(OTHERS), atol=1e-6)


@pytest.mark.parametrize("key", LOW_ORDER_KEYS, ids=bytes.hex)
def test_a_node_with_a_key_of_low_order_is_left_out(key: bytes) -> None:
    """Each of the 14 encodings: the report says which node, and why."""
    check(lambda node, own: key if node == CULPRIT else own, "of low order")


@pytest.mark.parametrize("twin", [lambda key: key, lambda key: same_secrets(key)[1]])
def test_a_node_with_another_nodes_key_is_left_out(twin: Callable[[bytes], bytes]) -> None:
    """The same key, or one with the same secrets: the node that joined first stays."""
    keys: dict[int, bytes] = {}

    def change(node: int, own: bytes) -> bytes:
        keys[node] = own
        return twin(keys[1]) if node == CULPRIT else own

    check(change, "same secrets as that of node 1")


@pytest.mark.parametrize("key", ["no bytes", bytes(31), 7])
def test_what_is_no_key_is_left_out(key: object) -> None:
    """Text, a number, and bytes of another length."""
    check(lambda node, own: key if node == CULPRIT else own, "its public key is not", conceal=False)
