"""Who sees what in a round of shards: all bytes through the Grid, and aggregators together."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from flwr.app import Message

from modelkin.federation.shards.fixed_point import FixedPoint
from modelkin.federation.shards.plan import CHECK_WORDS
from modelkin.federation.shards.roster import Roster
from modelkin.federation.sharing import sealing
from modelkin.integrations.flower import RoundReport, ShardMod
from modelkin.wire.cell import Kind, decode_cell
from tests.sdk.integrations.flower.shards.sharded_federation import (
    SHAPES,
    RecordingGrid,
    app,
    averaging,
    grid_of,
    run,
    sharded,
    step_of,
    update,
)

NODES = range(1, 7)
RECORD, CELLS = "modelkin-shards", "modelkin-shard-cells"
PLANTED = np.float32(0.0123456789)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR)


def planting(node: int, server_round: int, new: dict[str, Any]) -> dict[str, Any]:
    """A client whose model, and whose update of one array, is one value all over."""
    return {**new, "w": np.full((40, 25), PLANTED * node, np.float32)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"conceal": False},
        {"one_in": 4},
        {"conceal": False, "one_in": 4, "masks": "own"},
        {"conceal": False, "rule": "median"},
    ],
)
def test_no_value_of_a_client_goes_through_the_grid(settings: dict[str, Any]) -> None:
    """No bytes of a client's model or update are in what the server relays, in any mode."""
    grid = grid_of(NODES, planting)
    run(grid, sharded(**settings), 2)
    carried = b"".join(grid.carried)
    for node in NODES:
        pattern = (PLANTED * np.float32(node)).tobytes()
        assert pattern * 3 not in carried, f"three values of client {node} side by side"
    assert carried.count(PLANTED.tobytes()) < 3, "one value, by chance"


def test_the_search_finds_what_is_sent_in_the_clear() -> None:
    """The same search finds the values of the same clients under a plain strategy."""
    grid = RecordingGrid({node: app([], planting) for node in NODES})
    run(grid, averaging(), 1)
    carried = b"".join(grid.carried)
    assert all((PLANTED * np.float32(node)).tobytes() * 3 in carried for node in NODES)


class Colluders:
    """Some aggregators that open all cells sealed to them, with their own keys."""

    def __init__(self, grid: RecordingGrid, aggregators: int) -> None:
        asked = [message for message in grid.sent if step_of(message) == "combine"]
        asked = asked[:aggregators]
        self.cells = [
            [array.data for array in message.content.array_records[CELLS].values()]
            for message in asked
        ]
        self.asked = asked[0].content.config_records[RECORD]
        self.roster = Roster.from_json(json.loads(str(self.asked["roster"])))
        self.nodes = [message.metadata.dst_node_id for message in asked]
        self.keys = [grid.state(node).config_records[RECORD]["private-key"] for node in self.nodes]

    def opened(self) -> dict[int, dict[int, npt.NDArray[Any]]]:
        """What the cells hold, by member's place and by shard."""
        found: dict[int, dict[int, npt.NDArray[Any]]] = {}
        for cells, key in zip(self.cells, self.keys, strict=True):
            for data in cells:
                assert isinstance(key, bytes)
                header, payload = decode_cell(data)
                values = sealing.unseal(payload, key, sealing.binding(header.pack(), None))
                kind = "<u4" if header.kind is Kind.UINT32 else "<f4"
                found.setdefault(header.place, {})[header.shard] = np.frombuffer(values, kind)
        return found


def flat(node: int) -> npt.NDArray[np.float64]:
    """A client's update, in the order of the arrays."""
    return np.concatenate([*(update(node, 1)[name].ravel() for name in SHAPES), np.ones(1)])


@pytest.mark.parametrize("colluders", [1, 2])
def test_colluding_aggregators_hold_their_share_of_plain_updates(colluders: int) -> None:
    """Plain: r of A aggregators hold exactly r / A of each client's coordinates, and no more."""
    grid = grid_of(NODES)
    run(grid, sharded(aggregators=3, conceal=False))
    seen, carried = Colluders(grid, colluders), b"".join(grid.carried)
    for place, shards in seen.opened().items():
        held = np.concatenate([seen.roster.partition.indices(shard) for shard in shards])
        values = np.concatenate(list(shards.values()))
        assert len(set(held.tolist())) == pytest.approx(1033 * colluders / 3, abs=colluders)
        np.testing.assert_allclose(values, flat(place + 1)[held], atol=1e-6)
        for part in shards.values():
            assert part[:4].tobytes() not in carried, "what they open is sealed on its way"


@pytest.mark.parametrize("colluders", [1, 2])
def test_colluding_aggregators_hold_sums_alone_of_concealed_ones(colluders: int) -> None:
    """Concealed: an opened cell is noise, whatever its values; all cells of a shard are a sum."""
    grid = grid_of(NODES)
    run(grid, sharded(aggregators=3))
    seen = Colluders(grid, colluders)
    opened = seen.opened()
    peak = float(json.loads(str(seen.asked["round"]))["peak"])
    for place, shards in opened.items():
        for shard, words in shards.items():
            values = flat(place + 1)[seen.roster.partition.indices(shard)]
            noise = words[:-CHECK_WORDS].view(np.int32).astype(float)
            assert abs(np.corrcoef(noise, values)[0, 1]) < 5 / np.sqrt(values.size)
            assert np.abs(noise).mean() == pytest.approx(2**30, rel=0.15)
    for shard in next(iter(opened.values())):
        cells = [shards[shard] for shards in opened.values()]
        total = np.add.reduce(cells, dtype=np.uint32)
        assert FixedPoint(peak).decode(total, len(cells)) is not None
        without = np.add.reduce(cells[1:], dtype=np.uint32)
        assert FixedPoint(peak).decode(without, len(cells) - 1) is None


def grid_of_defaults(nodes: Iterable[int], **settings: Any) -> RecordingGrid:
    """A grid of clients that leave to the server what they must, and no more."""
    return RecordingGrid({node: app([ShardMod(**settings)]) for node in nodes})


def sent_by_clients(grid: RecordingGrid) -> set[str]:
    """The records of arrays in all answers."""
    return {name for answer in grid.answers for name in answer.content.array_records}


@pytest.mark.parametrize(
    ("nodes", "mod", "server", "why"),
    [
        (NODES, {}, {"min_members": 1}, "averages 1 members or more, and this client 3 or more"),
        (NODES, {}, {"min_members": 2}, "averages 2 members or more, and this client 3 or more"),
        (NODES, {}, {"conceal": False}, "has conceal=False"),
        (NODES, {"conceal": False, "min_members": 4}, {"conceal": False}, "this client 4 or more"),
        (range(1, 4), {"min_members": 4}, {"min_members": 4}, "the roster has 3 members"),
    ],
)
def test_clients_do_not_leave_to_the_server_how_few_are_averaged(
    nodes: Iterable[int], mod: dict[str, Any], server: dict[str, Any], why: str
) -> None:
    """A plan or a roster below a client's floor gets no cell, and the report says why."""
    grid, reports = grid_of_defaults(nodes, **mod), list[RoundReport]()
    assert not run(grid, sharded(reports, **server)).arrays
    assert list(nodes) == list(reports[0].refused)
    assert all(why in reason for reason in reports[0].refused.values())
    assert not sent_by_clients(grid)


@pytest.mark.parametrize(("step", "records"), [("send", set()), ("combine", {CELLS})])
def test_clients_refuse_rounds_of_fewer_than_they_average(step: str, records: set[str]) -> None:
    """A server that calls all but one client lost gets neither its cells nor their sum."""
    grid, reports = grid_of_defaults(NODES), list[RoundReport]()

    def alone(message: Message) -> bool:
        if step_of(message) == step:
            record = message.content.config_records[RECORD]
            current = json.loads(str(record["round"]))
            current["weights"] = current["weights"][:1]
            record["round"] = json.dumps(current)
        return False

    grid.lose = alone
    assert not run(grid, sharded(reports)).arrays
    found = [*reports[0].refused.values(), *reports[0].lost.values()]
    assert found
    assert all("the round has 1 members, and this client averages 3" in why for why in found)
    assert records == sent_by_clients(grid)


def test_a_refused_plan_does_not_bind_the_client() -> None:
    """After a plan that is refused a client averages under one that it accepts."""
    grid, reports = grid_of_defaults(NODES), list[RoundReport]()
    run(grid, sharded(min_members=1))
    run(grid, sharded(reports))
    assert (tuple(NODES), {}) == (reports[0].members, dict(reports[0].refused))


def test_clients_may_allow_less() -> None:
    """The arguments of the mod lower its floor."""
    grid, reports = grid_of_defaults((1, 2), min_members=2, conceal=False), list[RoundReport]()
    run(grid, sharded(reports, aggregators=1, min_members=2, conceal=False))
    assert (1, 2) == reports[0].members
