"""A server and clients that average in shards, over a carrier that is a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from modelkin.errors import InvalidInput
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Round
from modelkin.integrations.federation.shards import vectors
from modelkin.integrations.federation.shards.client import ShardClient
from modelkin.integrations.federation.shards.client_state import MemoryState
from modelkin.integrations.federation.shards.leader import RoundLeader
from modelkin.integrations.federation.shards.members import ShardMembers
from modelkin.integrations.federation.shards.messages import (
    ShardMessage,
    opened,
    party_of,
    round_values,
)
from tests.sdk.integrations.flower.shards.sharded_federation import (
    NUM_VALUES,
    SHAPES,
    exact,
    examples,
    grid_of,
    model,
    run,
    sharded,
    update,
    vector,
)

NODES = range(1, 7)


class Clients:
    """Clients by node, each with the state that it keeps in memory.

    Args:
        conceal: whether sums are concealed.
        settings: of the plan.
    """

    def __init__(self, *, conceal: bool = True, **settings: Any) -> None:
        plan = Plan(num_parameters=NUM_VALUES + 1, shards=3, conceal=conceal, **settings)
        self.members = ShardMembers(plan)
        self.states = {node: MemoryState() for node in NODES}
        self.client = ShardClient(conceal=conceal)
        self.lost: set[tuple[int, str]] = set()
        for node in NODES:
            self.join(node)

    def join(self, node: int) -> None:
        values = self.client.join(str(node), self.states[node]).values
        self.members.join(node, *party_of(str(node), values))

    def carry(self, messages: Mapping[int, ShardMessage]) -> dict[int, ShardMessage | str]:
        found: dict[int, ShardMessage | str] = {}
        for node, message in messages.items():
            if (node, message.values["step"]) in self.lost:
                continue
            try:
                found[node] = self.client.answer(message, str(node), self.states[node])
            except InvalidInput as error:
                found[node] = self.client.refusal(error, self.states[node])
        return found

    def average(self, number: int, before: Mapping[str, Any]) -> tuple[Any, RoundLeader]:
        """The model after a round, and its leader."""
        roster, unique = self.members.begin(NODES)
        leader = RoundLeader(self.members, roster, unique, self.carry, lambda: NODES)
        for node in NODES:
            asked = leader.asked(node, {"step": "train"})
            try:
                seat = self.client.seat(asked, str(node), self.states[node])
                seat.check_new()
                step = update(node, number)
                new = {n: np.asarray(old + step.get(n, 1), old.dtype) for n, old in before.items()}
                answer = seat.trained(vectors.difference(new, before), examples(node))
            except InvalidInput as error:
                answer = self.client.refusal(error, self.states[node])
            try:
                found = leader.read_training(leader.open(node, answer), examples(node))
                leader.trained[leader.place(node)] = found
            except InvalidInput as error:
                leader.refused[leader.place(node)] = str(error)
        ((_, done),) = leader.lead_groups({}, ())
        assert done.update is not None
        return vectors.add_update(before, done.update), leader


def begun() -> dict[str, Any]:
    return {name: array.numpy() for name, array in model().items()}


def flat(arrays: Mapping[str, Any]) -> Any:
    return np.concatenate([arrays[name].ravel() for name in SHAPES])


@pytest.mark.parametrize("conceal", [True, False])
def test_the_average_is_exact_and_that_of_flower(conceal: bool) -> None:
    """Two rounds; of float64 but for the rounding, and Flower's within 1e-7."""
    clients, found = Clients(conceal=conceal), begun()
    for number in (1, 2):
        found, _ = clients.average(number, found)
    np.testing.assert_allclose(flat(found), exact(NODES, 2), rtol=1e-7, atol=2e-7)
    flower = run(grid_of(NODES), sharded(conceal=conceal), rounds=2)
    np.testing.assert_allclose(flat(found), vector(flower.arrays), rtol=1e-7, atol=1e-7)
    assert found["steps"] == 9


def test_shifts_last_in_memory() -> None:
    """Receipts move them at members and aggregators alike, round after round."""
    clients, found = Clients(conceal=False, one_in=2, masks="own"), begun()
    for number in (1, 2, 3):
        found, leader = clients.average(number, found)
        assert not leader.refused
    assert np.isfinite(flat(found)).all()


def test_a_client_that_lost_its_state_joins_again() -> None:
    """It is left out with the reason, and the others' average is exact."""
    clients = Clients()
    clients.members.begin(NODES)
    clients.states[4] = MemoryState()
    found, leader = clients.average(1, begun())
    assert {4: "this client has no key of the roster"} == leader.by_node(leader.refused)
    assert not clients.members.has(4)
    clients.join(4)
    found, leader = clients.average(2, found)
    assert not leader.refused


def test_a_client_that_vanishes_after_its_training_is_left_out() -> None:
    """The others send again; their average is exact."""
    clients = Clients()
    clients.lost.add((2, "send"))
    found, _ = clients.average(1, begun())
    others = [node for node in NODES if node != 2]
    np.testing.assert_allclose(flat(found), exact(others), rtol=1e-7, atol=2e-7)


def test_a_damaged_round_is_refused() -> None:
    """Whatever is asked about it."""
    clients = Clients()
    roster, number = clients.members.begin(NODES)
    leader = RoundLeader(clients.members, roster, number, clients.carry, lambda: NODES)
    for step in ("combine", "release", "send", "sing"):
        values = leader.asked(1, {"step": step, "round": "{"})
        answer = clients.carry({1: ShardMessage(values)})[1]
        with pytest.raises(InvalidInput, match="the round is damaged"):
            opened(answer)


def test_models_as_vectors() -> None:
    """Another layout is named, and whole numbers are rounded."""
    before = begun()
    with pytest.raises(InvalidInput, match="another layout"):
        vectors.difference({"w": before["w"]}, before)
    with pytest.raises(InvalidInput, match="shape"):
        vectors.difference({**before, "b": before["w"]}, before)
    step = np.full(vectors.num_values(before), 0.6, np.float32)
    assert 8 == vectors.add_update(before, step)["steps"]
    record = ArrayRecord({name: Array(values) for name, values in before.items()})
    np.testing.assert_array_equal(vector(record), flat(before))


def test_an_update_leaves_for_no_round_that_did_not_train_it() -> None:
    """After a training that failed there is nothing to send: the last update had its round."""
    clients = Clients()
    clients.average(1, begun())
    roster, number = clients.members.begin(NODES)
    leader = RoundLeader(clients.members, roster, number, clients.carry, lambda: NODES)
    train = leader.asked(2, {"step": "train"})
    clients.client.seat(train, "2", clients.states[2]).check_new()  # and then its app fails
    current = Round(number, {leader.place(node): examples(node) for node in NODES}, peak=1.0)
    asked = ShardMessage(leader.asked(2, {"step": "send", **round_values(current)}))
    with pytest.raises(InvalidInput, match="nothing was trained in this round"):
        clients.client.answer(asked, "2", clients.states[2])
