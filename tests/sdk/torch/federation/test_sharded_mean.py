"""The sharded mean of four real processes: exact, concealed, and unmoved by a rank that dies."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as processes
from torch import Tensor

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.roster import Roster
from modelkin.federation.shards.shifts import gamma
from modelkin.torch import ShardedMean
from modelkin.torch.federation.ranks import MAX_MESSAGE
from tests.sdk.torch.federation import sharded_world
from tests.sdk.torch.federation.sharded_world import LOST, SIZES, WEIGHTS, WORLD, update_of

pytestmark = pytest.mark.slow

Findings = dict[str, list[dict[Any, Any]]]
Floats = np.ndarray[tuple[int], np.dtype[np.float32]]

RANKS = range(WORLD)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """The findings of each case by rank; of the last one, the rank that was killed has none."""
    folder = tmp_path_factory.mktemp("world")
    started = processes.get_context("spawn").Process(
        target=sharded_world.run_ranks, args=(str(folder),)
    )
    started.start()
    started.join(150)
    codes = json.loads((folder / sharded_world.EXIT_CODES).read_text())
    assert codes == [-9 if rank == LOST else 0 for rank in RANKS]

    def read(case: str) -> list[dict[Any, Any]]:
        files = [Path(folder, f"{case}-{rank}") for rank in RANKS]
        return [pickle.loads(file.read_bytes()) if file.exists() else {} for file in files]

    names = [case.__name__ for case in (*sharded_world.CASES, sharded_world.killed)]
    return {name: read(name) for name in names}


def weighted(cells: Mapping[int, Floats]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The mean in float64, in ascending ranks."""
    size = len(next(iter(cells.values())))
    summed = np.zeros(size)
    for rank in sorted(cells):
        summed += cells[rank].astype(np.float64) * WEIGHTS[rank]
    return summed / float(sum(float(WEIGHTS[rank]) for rank in sorted(cells)))


def mean_of(size: int, number: int = 0, ranks: Any = RANKS) -> Floats:
    return weighted({r: update_of(r, size, number).numpy() for r in ranks}).astype(np.float32)


def same(found: Tensor, expected: Floats) -> bool:
    return found.numpy().tobytes() == expected.tobytes()


@pytest.mark.long
def test_all_ranks_have_the_bits_of_the_float64_mean(world: Findings) -> None:
    """For any number of aggregators and of pieces, rounded once."""
    for rank in RANKS:
        found = dict(world["exact"][rank])
        found.pop("attached")
        assert len(found) == len(SIZES) * WORLD * 2
        for (size, *_), result in found.items():
            assert same(result, mean_of(size))


def test_a_strided_update_that_requires_gradients_is_read(world: Findings) -> None:
    """Its mean is a plain tensor, the same on every rank."""
    results = [world["exact"][rank]["attached"] for rank in RANKS]
    assert all(torch.equal(result, results[0]) for result in results)
    expected = sum(update_of(rank, SIZES[1]).double() for rank in RANKS) / WORLD
    assert torch.equal(results[0], torch.as_tensor(expected).float())
    assert not results[0].requires_grad


def test_a_plain_aggregator_sees_its_shard_and_nothing_else(world: Findings) -> None:
    """Of each rank a quarter of the values, so that r aggregators have r / A of them."""
    roster = Roster.from_json(world["seen"][0]["False"]["roster"])
    places: list[np.ndarray[Any, Any]] = []
    for rank in RANKS:
        (shard,) = roster.shards_of(rank)
        indices = roster.partition.indices(shard)
        places.append(indices)
        received = world["seen"][rank]["False"]["received"]
        assert len(received) == WORLD
        for sender, values in enumerate(received):
            assert same(values, update_of(sender, 4000).numpy()[indices])
    assert sorted(np.concatenate(places).tolist()) == list(range(4000))


def test_a_concealed_aggregator_sees_noise(world: Findings) -> None:
    """Uniform bits, without correlation to the values of their sender."""
    roster = Roster.from_json(world["seen"][0]["True"]["roster"])
    for rank in RANKS:
        (shard,) = roster.shards_of(rank)
        indices = roster.partition.indices(shard)
        for sender, words in enumerate(world["seen"][rank]["True"]["received"]):
            noise = words.numpy()[: len(indices)].astype(np.float64)
            values = update_of(sender, 4000).numpy()[indices]
            assert abs(np.corrcoef(noise, values)[0, 1]) < 5 / np.sqrt(len(indices))
            counts = np.histogram(noise, bins=16, range=(-(2.0**31), 2.0**31))[0]
            expected = len(noise) / 16
            assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-square, 15: p = 1e-4


def test_a_concealed_mean_is_the_plain_one_but_for_rounding(world: Findings) -> None:
    """Half a unit a rank; the same bits on every rank."""
    results = [world["seen"][rank]["True"]["result"] for rank in RANKS]
    assert all(torch.equal(result, results[0]) for result in results)
    peak = max(float(update_of(rank, 4000).abs().max()) for rank in RANKS)
    unit = 2.0 ** np.ceil(np.log2(peak)) * 2.0**-30
    error = np.abs(results[0].numpy().astype(np.float64) - mean_of(4000)).max()
    assert error <= WORLD * unit / 2 + 2.0**-24 * peak


def test_a_concealed_mean_may_be_thinned(world: Findings) -> None:
    """Four times the mean at one in four places, zeros elsewhere."""
    result = world["seen"][0]["one in 4"].numpy()
    kept = result != 0
    assert kept.sum() == pytest.approx(1000, abs=4)
    assert np.allclose(result[kept], 4 * mean_of(4000)[kept], atol=1e-7, rtol=1e-6)


def test_one_mask_keeps_the_same_values_of_all_ranks(world: Findings) -> None:
    """The bits of four times the values, averaged; other places in the next round."""
    roster = Roster.from_json(world["one_mask"][0]["roster"])
    places = []
    for number in range(2):
        kept = kept_places(roster, number + 1, 0)
        expected = np.zeros(1003, np.float32)
        cells = {r: update_of(r, 1003, number).numpy()[kept] * np.float32(4) for r in RANKS}
        expected[kept] = weighted(cells).astype(np.float32)
        assert all(same(world["one_mask"][rank]["results"][number], expected) for rank in RANKS)
        places.append(set(kept.tolist()))
    assert len(places[0]) == pytest.approx(250, abs=6)
    assert places[0] != places[1]


def test_own_masks_move_shifts_as_the_formulas_say(world: Findings) -> None:
    """Four rounds, with a checkpoint after two: the same results, and s = sum of W_k s_k."""
    roster = Roster.from_json(world["own_masks"][0]["roster"])
    step, total = gamma(3.0), float(sum(WEIGHTS))
    shifts, shift = np.zeros((WORLD, 1003), np.float32), np.zeros(1003, np.float32)
    for number in range(4):
        summed = np.zeros(1003)
        for rank in RANKS:
            kept = kept_places(roster, number + 1, rank)
            update = update_of(rank, 1003, number).numpy()
            cell = (update[kept] - shifts[rank][kept]) * np.float32(4)
            summed[kept] += cell.astype(np.float64) * WEIGHTS[rank]
            shifts[rank][kept] += np.float32(step) * cell
        estimate = (summed / total + shift).astype(np.float32)
        shift += (step * (summed / total)).astype(np.float32)
        for rank in RANKS:
            assert same(world["own_masks"][rank]["results"][number], estimate)
        assert np.abs(shift - weighted(dict(enumerate(shifts)))).max() < 1e-6
        check_states(world, roster, number, shifts, shift)


def test_inference_mode_does_not_matter(world: Findings) -> None:
    """Shifts that are made in it are moved outside of it."""
    for rank in RANKS:
        results = world["in_inference_mode"][rank]["results"]
        assert not any(result.is_inference() for result in results)
        assert torch.equal(results[2], world["in_inference_mode"][0]["results"][2])


def kept_places(roster: Roster, number: int, place: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The coordinates of all values that a rank sends."""
    found = []
    for shard in range(roster.plan.shards):
        indices = roster.partition.indices(shard)
        for piece in range(roster.plan.pieces):
            first = piece * roster.plan.piece_blocks
            at = roster.thinning(shard, piece, number, place).positions
            found.append(indices[first + at])
    return np.sort(np.concatenate(found))


def check_states(world: Findings, roster: Roster, number: int, shifts: Any, shift: Any) -> None:
    """The states of all ranks are these shifts."""
    for rank in RANKS:
        state = world["own_masks"][rank]["states"][number]
        assert state["round"] == number + 1
        assert {shard for shard, _ in state["held"]} == set(roster.shards_of(rank))
        for name, expected in (("sent", shifts[rank]), ("held", shift)):
            for (shard, piece), values in state[name].items():
                first = piece * roster.plan.piece_blocks
                indices = roster.partition.indices(shard)[first : first + len(values)]
                assert same(values, expected[indices])


def test_a_state_of_other_arguments_is_refused(world: Findings) -> None:
    """The error names it."""
    kind, field, _ = world["own_masks"][0]["other state"]
    assert (kind, field) == ("InvalidParameter", "state")


def test_masks_hide_one_update_alone(world: Findings) -> None:
    """A concealed round that is rolled back goes on in a new object, whose keys are new."""
    for rank in RANKS:
        kind, field, says = world["rolled_back"][rank]["again"]
        assert (kind, field) == ("InvalidParameter", "state")
        assert "go on in a new ShardedMean" in says
        assert torch.equal(world["rolled_back"][rank]["first"], world["rolled_back"][rank]["new"])


def test_what_one_rank_gives_wrong_is_an_error_on_all(world: Findings) -> None:
    """With the field, the rank and the reason; the next call is right."""
    cases = set(world["wrong_updates"][0]) - {"result", "rounds"}
    assert len(cases) == 13
    for name in cases:
        fields = {world["wrong_updates"][rank][name][:2] for rank in RANKS}
        assert fields == {("InvalidParameter", "weight" if name.startswith("weight") else "update")}
        own, others = (world["wrong_updates"][rank][name][2] for rank in (1, 0))
        assert others == f"rank 1: {own[:MAX_MESSAGE]}"
    results = [world["wrong_updates"][rank]["result"] for rank in RANKS]
    expected = torch.stack([update_of(rank, 10) for rank in RANKS]).mean(0)
    assert all(torch.equal(result, results[0]) for result in results)
    assert torch.allclose(results[0], expected, atol=1e-6)


def test_ranks_in_different_rounds_are_an_error_on_all(world: Findings) -> None:
    """As after a checkpoint that only one of them loads."""
    for rank in RANKS:
        kind, field, message = world["wrong_updates"][rank]["rounds"]
        assert (kind, field) == ("InvalidParameter", "state")
        assert "[1, 2]" in message


def test_other_arguments_on_one_rank_are_an_error_on_all(world: Findings) -> None:
    """Both where they differ and where they cannot be; no rank waits."""
    fields = {
        "too many aggregators": "aggregators",
        "no aggregators": "aggregators",
        "no thinning": "one_in",
        "unknown masks": "masks",
        "conceal own masks": "masks",
        "conceal text": "conceal",
    }
    cases = set(world["wrong_plans"][0]) - {"lazy"}
    assert len(cases) == 12
    for name in cases:
        for rank in RANKS:
            kind, field, message = world["wrong_plans"][rank][name]
            assert (kind, field) == ("InvalidParameter", fields.get(name, name)), message
            assert rank == 1 or "rank 1" in message


def test_lazy_connections_of_gloo_are_refused(world: Findings) -> None:
    """With them gloo waits without end for a rank that is lost."""
    for rank in RANKS:
        kind, field, message = world["wrong_plans"][rank]["lazy"]
        assert (kind, field) == ("InvalidParameter", "group")
        assert "TORCH_GLOO_LAZY_INIT" in message


def test_masks_that_do_not_cancel_fail_the_round_on_all_ranks(world: Findings) -> None:
    """At once, and the object is not used again: no mask is added to two updates."""
    for rank in RANKS:
        found = world["false_masks"][rank]
        assert found["error"][0] == found["again"][0] == "MergeFailed"
        assert "do not cancel" in found["error"][2]
        assert found["seconds"] < 5


def test_groups_average_alone(world: Findings) -> None:
    """Two pairs at once; a pair conceals nothing, and a rank outside is refused."""
    for rank in RANKS:
        found = world["pairs"][rank]
        assert same(found["result"], mean_of(50, ranks=range(rank % 2, WORLD, 2)))
        assert torch.equal(found["alone"], update_of(rank, 50))
        assert found["conceal"][:2] == ("InvalidParameter", "conceal")
        assert found["outside"][:2] == ("InvalidParameter", "group")


def test_the_example_of_the_page_trains_one_model(world: Findings) -> None:
    """The same bits on every rank, and a loss below that of chance, 2.3."""
    averages = [world["page"][rank]["average"] for rank in RANKS]
    assert all(torch.equal(average, averages[0]) for average in averages)
    assert all(world["page"][rank]["loss"] < 1.3 for rank in RANKS)


def test_a_rank_that_does_not_answer_is_lost_after_the_timeout(world: Findings) -> None:
    """Of one second: all ranks know soon after, the late one when it calls."""
    for rank in RANKS:
        found = world["silent"][rank]
        assert found["error"][0] == "MergeFailed"
        if rank != LOST:
            assert found["seconds"] < 10


def test_a_killed_rank_moves_nothing_and_the_rest_goes_on(world: Findings) -> None:
    """SIGKILL mid-round: the others raise long before the timeout, their shifts stay, and a group
    of the three has the exact mean.
    """
    assert world["killed"][LOST] == {}
    for rank in set(RANKS) - {LOST}:
        found = world["killed"][rank]
        assert found["error"][0] == "MergeFailed"
        assert "make a new group" in found["error"][2]
        assert found["seconds"] < 10
        before, after = found["before"], found["after"]
        assert before["round"] == after["round"] == 2
        for name in ("sent", "held"):
            assert before[name].keys() == after[name].keys() != set()
            assert all(torch.equal(before[name][at], after[name][at]) for at in before[name])
        assert same(found["result"], mean_of(1003, 3, set(RANKS) - {LOST}))


def test_a_process_group_comes_first() -> None:
    """The error says what to call."""
    with pytest.raises(InvalidParameter, match="init_process_group") as raised:
        ShardedMean(10)
    assert raised.value.field == "group"
