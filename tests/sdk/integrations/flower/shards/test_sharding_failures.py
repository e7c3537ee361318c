"""What is bad, lost or false in a round of shards: named, and without effect on the others."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from modelkin.errors import InvalidParameter
from modelkin.integrations.flower import RoundReport, ShardMod
from tests.sdk.integrations.flower.federation import LocalGrid
from tests.sdk.integrations.flower.shards.sharded_federation import (
    RecordingGrid,
    app,
    averaging,
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
RECORD, CELLS = "modelkin-shards", "modelkin-shard-cells"


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR)


def damage(data: bytes, at: int = -20) -> bytes:
    """Bytes with one bit changed."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def changing_cells(change: Callable[[list[bytes]], list[bytes]]) -> Callable[..., Message]:
    """Changes the cells that node 3 sends, on their way."""

    def tamper(message: Message, answer: Message) -> Message:
        sent = answer.content.array_records if answer.has_content() else {}
        if message.metadata.dst_node_id == 3 and CELLS in sent:
            record = sent[CELLS]
            changed = change([array.data for array in record.values()])
            names = list(record)[: len(changed)]
            record.clear()
            for name, data in zip(names, changed, strict=True):
                record[name] = Array("uint8", (len(data),), "cell", data)
        return answer

    return tamper


@pytest.mark.parametrize("conceal", [False, True])
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lambda new: {"w": new["w"]}, "another layout"),
        (lambda new: {**new, "w": new["w"].T}, "'w' has shape"),
        (lambda new: {**new, "b": new["b"] > 0}, "'b' is of bool"),
        (lambda new: {**new, "b": np.array(["x"] * 31)}, "'b' is of <U1"),
        (lambda new: {**new, "b": new["b"] * np.nan}, "is nan"),
        (lambda new: {}, "0 records of arrays"),
        (lambda new: {**new, "metrics": {"num-examples": 0, "loss": 1.0}}, "examples are 0"),
        (lambda new: {**new, "metrics": {"num-examples": 2.5, "loss": 1.0}}, "examples are 2.5"),
        (lambda new: {**new, "metrics": {"num-examples": 2**53 + 2, "loss": 1.0}}, "examples are"),
        (lambda new: {**new, "metrics": {"loss": 1.0}}, "examples are None"),
        (lambda new: {**new, "metrics": {"num-examples": 9, "gain": 1.0}}, "gain, loss"),
        (
            lambda new: {**new, "metrics": {"num-examples": 9, "loss": [1.0]}},
            "is a list of 1",
        ),
        (lambda new: 1 // 0, "its app failed"),
    ],
)
def test_bad_replies_are_named_and_the_rest_is_exact(
    conceal: bool, bad: Callable[[dict[str, Any]], dict[str, Any]], why: str
) -> None:
    """A client whose reply cannot be averaged does not count, and the log and report say why."""

    def train(node: int, server_round: int, new: dict[str, Any]) -> dict[str, Any]:
        return bad(new) if node == 3 else new

    reports: list[RoundReport] = []
    result = run(grid_of(NODES, train), sharded(reports, conceal=conceal))
    assert OTHERS == reports[0].members
    assert [3] == list(reports[0].refused)
    assert why in reports[0].refused[3]
    np.testing.assert_allclose(vector(result.arrays), exact(OTHERS), atol=1e-6)
    losses = result.train_metrics_clientapp[1]["loss"]
    assert isinstance(losses, float)
    assert losses == pytest.approx(np.average([n / 4 for n in OTHERS], weights=_weights()))


def _weights() -> list[int]:
    return [10 + 7 * node for node in OTHERS]


@pytest.mark.parametrize("conceal", [False, True])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda cells: [damage(cells[0]), *cells[1:]], "CRC"),
        (lambda cells: [cells[0][:-9], *cells[1:]], "bytes"),
        (lambda cells: [cells[0][:40], *cells[1:]], "header"),
        (lambda cells: [cells[1], cells[0], *cells[2:]], "another shard"),
        (lambda cells: cells[:-1], "one cell for each shard and holder"),
        (lambda cells: [b"", *cells[1:]], "header"),
    ],
)
def test_bad_cells_are_named_and_the_rest_is_exact(
    conceal: bool, change: Callable[[list[bytes]], list[bytes]], why: str
) -> None:
    """A client with one bad cell counts in no shard; the second attempt is exact without it."""
    grid, reports = grid_of(NODES), list[RoundReport]()
    grid.tamper = changing_cells(change)
    found = run(grid, sharded(reports, conceal=conceal)).arrays
    assert (OTHERS, [3], {}) == (reports[0].members, list(reports[0].refused), reports[0].kept)
    assert why in reports[0].refused[3]
    np.testing.assert_allclose(vector(found), exact(OTHERS), atol=1e-6)


@pytest.mark.parametrize("conceal", [False, True])
def test_clients_that_send_arrays_as_well_are_named(conceal: bool) -> None:
    """A client that sends its model beside its cells does not count."""

    def tamper(message: Message, answer: Message) -> Message:
        if step_of(message) == "train" and message.metadata.dst_node_id == 3:
            answer.content["arrays"] = ArrayRecord(dict(model()))
        return answer

    grid, reports = grid_of(NODES), list[RoundReport]()
    grid.tamper = tamper
    run(grid, sharded(reports, conceal=conceal))
    assert (OTHERS, {3: "it sent its arrays in the clear"}) == (
        reports[0].members,
        dict(reports[0].refused),
    )


@pytest.mark.parametrize("conceal", [False, True])
def test_cells_of_another_round_are_refused(conceal: bool) -> None:
    """What was sent in an earlier round does not count in a later one."""
    kept: list[list[bytes]] = []

    def replay(cells: list[bytes]) -> list[bytes]:
        kept.append(cells)
        return kept[0]

    grid, reports = grid_of(NODES), list[RoundReport]()
    grid.tamper = changing_cells(replay)
    run(grid, sharded(reports, conceal=conceal), 2)
    assert tuple(NODES) == reports[0].members
    assert OTHERS == reports[1].members
    assert "another shard, member, round or attempt" in reports[1].refused[3]


def test_a_client_lost_before_it_sends_costs_a_second_attempt() -> None:
    """Concealed: who trained and then is lost does not count, under new masks without it."""
    grid, reports = grid_of(NODES), list[RoundReport]()
    grid.lose = lambda m: step_of(m) == "send" and m.metadata.dst_node_id == 3
    found = run(grid, sharded(reports)).arrays
    assert (OTHERS, 2) == (reports[0].members, reports[0].attempts)
    assert "did not answer in time" in reports[0].refused[3]
    np.testing.assert_allclose(vector(found), exact(OTHERS), atol=1e-6)


def test_there_is_no_third_attempt() -> None:
    """Concealed: a client lost in the second attempt ends the round, and nothing changes."""
    grid, reports = grid_of(NODES), list[RoundReport]()
    losses = {3: 0, 4: 1}
    seen: list[int] = []

    def lose(message: Message) -> bool:
        node = message.metadata.dst_node_id
        if step_of(message) != "send" or node not in losses:
            return False
        seen.append(node)
        return seen.count(node) > losses[node]

    grid.lose = lose
    result = run(grid, sharded(reports))
    assert ((), 2, {0, 1, 2}) == (reports[0].members, reports[0].attempts, set(reports[0].kept))
    assert not result.arrays
    assert 2 == max(seen.count(node) for node in losses)


@pytest.mark.parametrize("step", ["combine", "release"])
@pytest.mark.parametrize("conceal", [False, True])
def test_shards_of_lost_aggregators_keep_their_values(conceal: bool, step: str) -> None:
    """An aggregator gives no result: its shard keeps its values, and the others are exact."""
    grid, reports = grid_of(NODES), list[RoundReport]()
    combining: list[int] = []

    def lose(message: Message) -> bool:
        if step_of(message) != step:
            return False
        combining.append(message.metadata.dst_node_id)
        return message.metadata.dst_node_id == combining[0]

    grid.lose = lose
    found, before = vector(run(grid, sharded(reports, conceal=conceal)).arrays), vector(model())
    (report,) = reports
    assert (tuple(NODES), 1, 1) == (report.members, len(report.kept), len(report.lost))
    assert "did not answer in time" in next(iter(report.kept.values()))
    stayed = found == before
    assert abs(stayed.sum() - before.size / 3) < 3
    np.testing.assert_allclose(found[~stayed], exact(NODES)[~stayed], atol=1e-6)


def test_kept_shards_stay_put_under_momentum() -> None:
    """An optimizer of the server does not move a shard whose aggregator is lost."""
    from flwr.serverapp.strategy import FedAvgM

    grid, reports = grid_of(NODES), list[RoundReport]()
    strategy = sharded(reports, averaging(FedAvgM, server_momentum=0.9))
    first = vector(run(grid, strategy, 1).arrays)
    holders = {m.metadata.dst_node_id for m in grid.sent if step_of(m) == "combine"}
    grid.lose = lambda m: step_of(m) == "combine" and m.metadata.dst_node_id == min(holders)
    result = run(grid, strategy, 1)
    assert 1 == len(reports[1].kept)
    assert abs((vector(result.arrays) == vector(model())).sum() - first.size / 3) < 3


def test_aggregators_lost_for_good_are_replaced() -> None:
    """After three rounds without its aggregator a shard has another one, in a new epoch."""
    grid, reports = grid_of(NODES), list[RoundReport]()
    strategy = sharded(reports, averaging(min_available_nodes=3))
    run(grid, strategy)
    gone = min(m.metadata.dst_node_id for m in grid.sent if step_of(m) == "combine")
    grid.away = {gone}
    run(grid, strategy, 4)
    assert [0, 1, 1, 0, 0] == [len(report.kept) for report in reports]
    assert reports[2].digest != reports[3].digest
    left = tuple(node for node in NODES if node != gone)
    assert [left] * 4 == [report.members for report in reports[1:]]


def test_a_federation_goes_on_with_fewer_nodes_than_aggregators() -> None:
    """One of three nodes, all aggregators, is lost for good: its shard keeps its values."""
    grid, reports = grid_of((1, 2, 3), min_members=2), list[RoundReport]()
    strategy = sharded(reports, averaging(min_available_nodes=2), min_members=2)
    run(grid, strategy)
    grid.away = {2}
    found = vector(run(grid, strategy, 5).arrays)
    assert [(1, 2, 3), *[(1, 3)] * 5] == [report.members for report in reports]
    assert [0, *[1] * 5] == [len(report.kept) for report in reports]
    stayed = found == vector(model())
    assert abs(stayed.sum() - stayed.size / 3) < 3
    np.testing.assert_allclose(found[~stayed], exact((1, 3), 5)[~stayed], atol=1e-6)


def falsified(answer: Message) -> Message:
    """The answer of an aggregator that changes one value."""
    arrays = answer.content.array_records["modelkin-shard-values"]
    for name, array in list(arrays.items()):
        values = array.numpy().copy()
        values[0] += np.float32(1e-3)
        arrays[name] = Array(values)
    return answer


def test_replicas_show_a_falsified_shard() -> None:
    """An aggregator that changes one value is found out by the other, and the shard is kept."""
    grid, reports = grid_of(NODES), list[RoundReport]()
    liars: list[int] = []

    def lie(message: Message, answer: Message) -> Message:
        if step_of(message) == "release":
            liars.append(message.metadata.dst_node_id)
            return falsified(answer) if message.metadata.dst_node_id == liars[0] else answer
        return answer

    grid.tamper = lie
    found, before = vector(run(grid, sharded(reports, replicas=2)).arrays), vector(model())
    assert 2 == len(reports[0].kept)
    for why in reports[0].kept.values():
        assert f"{liars[0]}" in why
        assert "different values" in why
    moved = found != before
    assert abs(moved.sum() - before.size / 3) < 3
    np.testing.assert_allclose(found[moved], exact(NODES)[moved], atol=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        lambda values: values[:-1],
        lambda values: values * np.float32(np.nan),
        lambda values: values.astype(np.float64),
    ],
)
def test_bad_results_keep_their_shard(bad: Callable[[Any], Any]) -> None:
    """Results of another length, type, or not finite change nothing."""
    grid, reports = grid_of(NODES), list[RoundReport]()

    def lie(message: Message, answer: Message) -> Message:
        if step_of(message) == "release":
            arrays = answer.content.array_records["modelkin-shard-values"]
            for name, array in list(arrays.items()):
                arrays[name] = Array(bad(array.numpy()))
        return answer

    grid.tamper = lie
    assert not run(grid, sharded(reports)).arrays
    assert ({0, 1, 2}, ()) == (set(reports[0].kept), reports[0].members)


def test_masks_that_do_not_cancel_change_nothing() -> None:
    """A client that masks for another round than the rest: no sum counts, the report says whose."""
    grid, reports = grid_of(NODES), list[RoundReport]()

    def mislead(message: Message) -> bool:
        if step_of(message) == "send" and message.metadata.dst_node_id == 3:
            record = message.content.config_records[RECORD]
            record["round"] = re.sub('"peak": [^,]*', '"peak": 4.0', str(record["round"]))
        return False

    grid.lose = mislead
    assert not run(grid, sharded(reports)).arrays
    assert ((), {0, 1, 2}) == (reports[0].members, set(reports[0].kept))
    for why in reports[0].kept.values():
        assert "the masks do not cancel: a cell of 1, 2, 3, 4, 5, 6" in why


@pytest.mark.parametrize("conceal", [False, True])
def test_too_few_members_change_nothing(conceal: bool) -> None:
    """Below min_members nothing is averaged, and the model stays as it is."""
    reports: list[RoundReport] = []
    result = run(grid_of((1, 2)), sharded(reports, aggregators=1, conceal=conceal))
    assert not result.arrays
    assert () == reports[0].members
    assert "members take part, 3 at least are averaged" in reports[0].kept[0]


def test_apps_without_the_mod_are_named() -> None:
    """A client that has no ShardMod is left out, and the others average without it."""
    apps = {n: app([ShardMod()] if n != 3 else []) for n in NODES}
    reports: list[RoundReport] = []
    found = run(RecordingGrid(apps), sharded(reports)).arrays
    assert OTHERS == reports[0].members
    assert [3] == list(reports[0].refused)
    np.testing.assert_allclose(vector(found), exact(OTHERS), atol=1e-6)


def failing(steps: Mapping[int, str]) -> Callable[[Message, Message], Message]:
    """Nodes whose apps fail in a step, as engines report it: with a whole traceback."""
    trace = "Traceback (most recent call last):\n  File 'app.py'\nValueError: the disk is gone\n"

    def tamper(message: Message, answer: Message) -> Message:
        fails = step_of(message) == steps.get(message.metadata.dst_node_id)
        return Message(Error(code=0, reason=trace), reply_to=message) if fails else answer

    return tamper


def test_of_a_failed_app_the_cause_alone_is_told() -> None:
    """In the reasons of a node that could not join, and of one that could not train."""
    grid, reports = grid_of(range(1, 6)), list[RoundReport]()
    grid.tamper = failing({4: "train", 5: "join"})
    run(grid, sharded(reports))
    why = "its app failed: ValueError: the disk is gone"
    assert {4: why, 5: why} == reports[0].refused
    assert (1, 2, 3) == reports[0].members


def silent(grid: RecordingGrid) -> None:
    grid.lose = lambda message: True


def broken(grid: RecordingGrid) -> None:
    grid.lose = lambda message: message.metadata.dst_node_id != 2
    grid.tamper = failing(dict.fromkeys(NODES, "join"))


def refusing(grid: RecordingGrid) -> None:
    refused = RecordDict({RECORD: ConfigRecord({"refused": "its keys are of another group"})})
    grid.tamper = lambda message, _: Message(refused, reply_to=message)


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (silent, "1: it did not answer in time (patience is 0.2 s); a node that is only slow"),
        (broken, "2: its app failed: ValueError: the disk is gone; is ShardMod the first mod of"),
        (refusing, "1: its keys are of another group"),
    ],
)
def test_a_federation_that_no_node_joins_ends_with_advice(
    happens: Callable[[RecordingGrid], None], error: str
) -> None:
    """It fits the reason: the order of mods is none of a node that is slow, or refuses."""
    grid = grid_of(NODES)
    happens(grid)
    with pytest.raises(InvalidParameter, match=f"node {re.escape(error)}") as found:
        run(grid, sharded())
    assert ("ShardMod" in error) == ("ShardMod" in str(found.value))


def test_a_federation_without_the_mod_ends_at_once() -> None:
    """Where no client has ShardMod the error says so."""
    grid = RecordingGrid({node: app([]) for node in NODES})
    with pytest.raises(InvalidParameter, match=r"node 1: its app failed.*; is ShardMod the first"):
        run(grid, sharded())


def test_a_client_that_lost_its_key_joins_again() -> None:
    """A restarted node misses one round, joins with a new key, and counts from then on."""
    grid, reports = grid_of(NODES), list[RoundReport]()
    strategy = sharded(reports)
    run(grid, strategy)
    grid.state(3).clear()
    run(grid, strategy, 2)
    assert [tuple(NODES), OTHERS, tuple(NODES)] == [report.members for report in reports]
    assert "no key of the roster" in reports[1].refused[3]


def test_arrays_stay_with_the_client_of_another_server() -> None:
    """A server with a plain strategy gets no arrays of clients with ShardMod."""
    grid = grid_of(NODES)
    sent = Message(
        RecordDict({"arrays": ArrayRecord(dict(model())), "config": ConfigRecord()}),
        dst_node_id=1,
        message_type="train",
    )
    LocalGrid.send_and_receive(grid, [])
    (answer,) = grid.send_and_receive([sent])
    assert not answer.content.array_records
    assert "no arrays in the clear" in str(answer.content.config_records[RECORD]["refused"])


def resent(grid: RecordingGrid, sent: Message, **changes: Any) -> Message:
    """What a client answers to an earlier message with changes."""
    content = RecordDict(dict(sent.content))
    content[RECORD] = ConfigRecord({**sent.content.config_records[RECORD], **changes})
    if step_of(sent) == "train":
        content["arrays"] = ArrayRecord(dict(model()))
    node = sent.metadata.dst_node_id
    (answer,) = grid.send_and_receive([Message(content, dst_node_id=node, message_type="train")])
    return answer


def refusal(answer: Message) -> str:
    """Why a client refuses a message; "None" if it does not."""
    return str(answer.content.config_records[RECORD].get("refused"))


def replayed(grid: RecordingGrid, sent: Message, **changes: Any) -> str:
    """Why a client refuses an earlier message with changes."""
    return refusal(resent(grid, sent, **changes))


@pytest.mark.parametrize("conceal", [False, True])
def test_no_two_averages_of_a_round_differ_by_one_member(conceal: bool) -> None:
    """An aggregator that refuses an honest client does not make the others send two averages.

    The difference of two would show the client's values to the server.
    """
    grid, reports = grid_of(NODES), list[RoundReport]()
    liars: list[int] = []

    def lie(message: Message, answer: Message) -> Message:
        if step_of(message) == "combine" and not liars:
            liars.append(message.metadata.dst_node_id)
            record = answer.content.config_records[RECORD]
            verdicts = json.loads(str(record["verdicts"]))
            verdicts[0]["refused"] = [[2, "a lie"]]
            record["verdicts"] = json.dumps(verdicts)
        return answer

    grid.tamper = lie
    found = vector(run(grid, sharded(reports, conceal=conceal)).arrays)
    assert (OTHERS, {3: "a lie"}) == (reports[0].members, dict(reports[0].refused))
    np.testing.assert_allclose(found, exact(OTHERS), atol=1e-6)
    sent = [
        name
        for answer in grid.answers
        for name in answer.content.array_records.get("modelkin-shard-values", ())
    ]
    assert ["0/0", "1/0", "2/0"] == sorted(sent)


def test_aggregators_send_a_client_in_one_average_of_a_round() -> None:
    """A server that asks again for fewer members, or for an earlier round, gets no result."""
    grid = grid_of(NODES)
    run(grid, sharded(conceal=False), 2)
    asked = next(m for m in reversed(grid.sent) if step_of(m) == "combine")
    current = json.loads(str(asked.content.config_records[RECORD]["round"]))
    fewer = {**current, "weights": current["weights"][1:]}
    for release in (False, True):
        again = resent(grid, asked, round=json.dumps(fewer), release=release)
        assert release is ("sent for other members" in refusal(again))
        assert (
            "modelkin-shard-values" not in again.content.array_records
            or not (again.content.array_records["modelkin-shard-values"])
        )
    released = next(m for m in reversed(grid.sent) if step_of(m) == "release")
    assert "sent for other members" in refusal(resent(grid, released, round=json.dumps(fewer)))
    assert "None" == refusal(resent(grid, asked, release=True)), "the same again is the same"
    first = next(m for m in grid.sent if step_of(m) == "combine")
    assert "sent for other members" in refusal(resent(grid, first, release=True))


@pytest.mark.parametrize("conceal", [False, True])
def test_a_server_cannot_choose_the_weights(conceal: bool) -> None:
    """A server that gives one client nearly all the weight gets no average, in either mode.

    Such an average would be that client's values.
    """
    grid, reports = grid_of(NODES), list[RoundReport]()

    def reweigh(message: Message) -> bool:
        if step_of(message) in {"send", "combine", "release"}:
            record = message.content.config_records[RECORD]
            current = json.loads(str(record["round"]))
            current["weights"] = [[at, w if at == 2 else 1] for at, w in current["weights"]]
            record["round"] = json.dumps(current)
        return False

    grid.lose = reweigh
    assert not run(grid, sharded(reports, conceal=conceal)).arrays
    assert [1, 2, 4, 5, 6] == list(reports[0].refused)
    assert all("the round has other examples of" in why for why in reports[0].refused.values())


def test_a_round_is_answered_once() -> None:
    """Clients refuse a number that was used, other members, other examples, and other plans."""
    grid = grid_of(NODES)
    run(grid, sharded())
    last = {step_of(message): message for message in grid.sent}
    record = last["send"].content.config_records[RECORD]
    used, roster = str(record["round"]), str(record["roster"])
    assert "not after the last" in replayed(grid, last["train"])
    others, own = used.replace("[0, 17]", "[0, 18]"), used.replace("[5, 52]", "[5, 51]")
    assert "answered for other members" in replayed(grid, last["send"], round=others)
    assert "other examples of this client" in replayed(grid, last["send"], round=own)
    third = used.replace('"attempt": 0', '"attempt": 2')
    assert "no third attempt" in replayed(grid, last["send"], round=third)
    weaker = roster.replace('"min_members":3', '"min_members":1')
    assert "plan changed" in replayed(grid, last["send"], roster=weaker)
    assert "there is no step" in replayed(grid, last["send"], step="show")
    assert "is damaged" in replayed(grid, last["combine"], round="{}")
    assert "is not in the roster" in replayed(
        grid, last["send"], roster=roster.replace('"6"', '"7"')
    )


def shifts(grid: RecordingGrid, node: int, role: str) -> dict[str, Any]:
    """The shifts of a client's state, by shard and piece."""
    kept = grid.state(node).array_records.get(f"modelkin-{role}", ArrayRecord())
    return {n.rpartition("/")[0]: a.numpy() for n, a in kept.items() if n.endswith("values")}


@pytest.mark.slow
def test_shifts_agree_after_losses_of_all_kinds() -> None:
    """Own masks: the aggregators' shifts are the weighted sum of the clients', in every shard."""
    grid, reports = grid_of(NODES), list[RoundReport]()
    strategy = sharded(reports, conceal=False, one_in=4, masks="own")
    rng = np.random.default_rng(5)

    def lost(message: Message) -> bool:
        return len(reports) < 12 and step_of(message) != "join" and rng.random() < 0.08

    grid.lose = grid.lose_answer = lost
    for _ in range(14):
        run(grid, strategy)
    assert any(report.kept for report in reports)
    assert any(report.refused for report in reports)
    members = {node: shifts(grid, node, "member") for node in NODES}
    total, found = sum(10 + 7 * node for node in NODES), 0
    for node in NODES:
        for name, values in shifts(grid, node, "aggregator").items():
            expected = sum(members[n][name] * ((10 + 7 * n) / total) for n in NODES)
            np.testing.assert_allclose(values, expected, atol=1e-6)
            found += int(np.abs(values).max() > 1e-4)
    assert 3 == found, "every shard has moved"
