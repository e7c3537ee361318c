"""A federation of Flower without rounds: clients of all speeds behind a Grid with its own clock."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Result

from modelkin.errors import InvalidParameter
from modelkin.federation.buffer import ModelBuffer, Update
from modelkin.integrations.flower import BufferedStep, BufferedStrategy, SupportMod
from tests.sdk.integrations.flower.delayed_federation import DelayedGrid
from tests.sdk.integrations.flower.federation import LocalGrid, app, mlp, received, reply

ODD, EVEN = (1, 3, 5), (2, 4, 6)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.WARNING)


def start(grid: DelayedGrid, rounds: int, **how: Any) -> tuple[Result, list[BufferedStep], Any]:
    """The result, all steps, and the strategy; it looks twice a second."""
    steps = list[BufferedStep]()
    timeout = how.pop("timeout", 1000.0)
    how.setdefault("rate", 1.0)
    strategy = BufferedStrategy(poll=0.5, on_step=steps.append, **how)
    arrays = ArrayRecord(mlp().state_dict())
    result = strategy.start(grid, arrays, num_rounds=rounds, timeout=timeout)
    return result, steps, strategy


def clients(*nodes: int) -> dict[int, ClientApp]:
    return {node: app(None) for node in nodes}


def values(arrays: ArrayRecord) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in arrays.items()}


def same(one: ArrayRecord, other: ArrayRecord) -> bool:
    left, right = values(one), values(other)
    return left.keys() == right.keys() and all(np.array_equal(left[n], right[n]) for n in left)


def bad_app(make: Any) -> ClientApp:
    """A client whose answer is what a function makes of the message."""
    found = ClientApp()

    @found.train()
    def train(message: Message, context: Context) -> Message:
        answer: Message = make(message)
        return answer

    return found


def test_without_slow_clients_steps_are_rounds_of_fedavg(monkeypatch: pytest.MonkeyPatch) -> None:
    """All in one buffer, none stale: FedAvg's models, to rounding."""
    result, steps, _ = start(DelayedGrid(monkeypatch, clients(*ODD)), 3, size=3)
    plain = FedAvg(fraction_evaluate=0.0).start(
        LocalGrid(clients(*ODD)), ArrayRecord(mlp().state_dict()), num_rounds=3
    )
    for name, wanted in values(plain.arrays).items():
        assert np.allclose(wanted, values(result.arrays)[name], atol=1e-6)
    assert [(1, 2, 3), [{1: 0, 3: 0, 5: 0}] * 3] == [
        tuple(step.number for step in steps), [step.staleness for step in steps]
    ]  # fmt: skip
    assert same(result.arrays, steps[-1].arrays)


def test_nobody_waits_for_a_slow_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine steps of the quick ones are taken in the ten seconds of the slow one, which counts."""
    grid = DelayedGrid(monkeypatch, clients(1, 2, 3, 4), {4: 10.0})
    _, steps, _ = start(grid, 11, size=3)
    assert [{1: 0, 2: 0, 3: 0}] * 9 == [step.staleness for step in steps[:9]]
    late = next(step for step in steps if 4 in step.staleness)
    assert late.staleness[4] == late.number - 1 >= 9
    assert late.seconds <= 12
    assert not any(step.left_out for step in steps)


def test_steps_are_those_of_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of clients of three speeds is ModelBuffer's, fed with what was sent and answered."""
    seconds = {1: 1.0, 2: 1.5, 3: 2.5, 4: 1.0, 5: 7.0}
    grid = DelayedGrid(monkeypatch, clients(*seconds), seconds)
    result, steps, _ = start(grid, 12, size=2, rate=0.7)
    model = ModelBuffer(
        values(ArrayRecord(mlp().state_dict())), size=2, max_staleness=100, rate=0.7
    )
    models = [model.model]
    for number, step in enumerate(steps):
        for node, staleness in step.staleness.items():
            lent = models[number - staleness]
            answer = trained(node, lent)
            model.add(str(node), Update(number - staleness, lent, answer, 30))
        model.step()
        models.append(model.model)
    assert any(max(step.staleness.values()) > 2 for step in steps)
    for name, wanted in model.model.items():
        assert np.array_equal(wanted, values(result.arrays)[name])


def trained(node: int, model: Any) -> dict[str, np.ndarray]:
    """What a client makes of a model."""
    grid = LocalGrid(clients(node))
    record = ArrayRecord(dict(zip(model, ArrayRecord(list(model.values())).values(), strict=True)))
    message = Message(RecordDict({"arrays": record}), dst_node_id=node, message_type="train")
    (answer,) = grid.send_and_receive([message])
    arrays = answer.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    return values(arrays)


def test_a_client_that_vanishes_is_forgotten_and_is_new_when_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log and the step say why; others go on, and a node of another id begins at once."""
    grid = DelayedGrid(monkeypatch, clients(1, 2, 3, 9), {3: None}, leaves={3: 4.0}, joins={9: 8.0})
    _, steps, _ = start(grid, 12, size=2, patience=5.0)
    reasons = {node: why for step in steps for node, why in step.left_out.items()}
    assert {3: "it did not answer for 5 s: it is new if it comes back"} == reasons
    assert not any(3 in step.staleness for step in steps)
    joined = next(step for step in steps if 9 in step.staleness)
    assert joined.staleness[9] <= 1  # it began with the newest model


def test_a_step_is_taken_without_the_clients_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where fewer than a step's clients are left, those that are left make it."""
    grid = DelayedGrid(monkeypatch, clients(1, 2, 3), leaves={3: 2.2, 2: 2.2})
    _, steps, _ = start(grid, 6, size=3, patience=4.0)
    assert [3, 3] == [len(step.staleness) for step in steps[:2]]
    assert [{1: 0}] * 3 == [step.staleness for step in steps[-3:]]
    lost = {node: why for step in steps for node, why in step.left_out.items()}
    assert {2, 3} == set(lost)


def test_staleness_beyond_the_bound_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow client's update does not count, and the model is as if it had never come."""
    seconds = {1: 1.0, 2: 1.0, 3: 9.0}
    result, steps, _ = start(
        DelayedGrid(monkeypatch, clients(1, 2, 3), seconds), 12, size=2, max_staleness=3
    )
    alone, _, _ = start(DelayedGrid(monkeypatch, clients(1, 2)), 12, size=2)
    reasons = [step.left_out[3] for step in steps if step.left_out]
    assert len(reasons) == 1
    assert reasons[0].endswith("steps since, 3 at most count")
    assert same(alone.arrays, result.arrays)


def answers(message: Message, **records: Any) -> Message:
    return Message(RecordDict(records), reply_to=message)


def _without_a_layer(message: Message) -> Message:
    arrays = ArrayRecord(dict(list(received(message).state_dict().items())[:-1]))
    return answers(message, arrays=arrays, metrics=MetricRecord({"num-examples": 3}))


def _not_finite(message: Message) -> Message:
    model = received(message)
    model.state_dict()["0.bias"][2] = float("nan")
    return reply(message, model, {"num-examples": 3})


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_without_a_layer, "its arrays are of another layout: the model has '2.bias'"),
        (_not_finite, "its array '0.bias' has a value that is NaN or infinite"),
        (lambda m: reply(m, received(m), {"num-examples": -5}), "its examples are -5"),
        (lambda m: reply(m, received(m), {"num-examples": 2.5}), "its examples are 2.5"),
        (lambda m: reply(m, received(m), {"examples": 3}), "its examples are None"),
        (lambda m: reply(m, None, {"num-examples": 3}), "has 0 records of arrays"),
        (lambda m: answers(m, arrays=ArrayRecord(mlp().state_dict())), "one record of metrics"),
        (lambda _: 1 / 0, "its app failed"),
    ],
)
def test_a_bad_answer_is_left_out(monkeypatch: pytest.MonkeyPatch, make: Any, why: str) -> None:
    """It is named with its reason, its client is asked again, and the others' model is exact."""
    grid = DelayedGrid(monkeypatch, {**clients(1, 2), 3: bad_app(make)})
    result, steps, _ = start(grid, 4, size=2)
    alone, _, _ = start(DelayedGrid(monkeypatch, clients(1, 2)), 4, size=2)
    assert same(alone.arrays, result.arrays)
    assert why in steps[0].left_out[3]
    assert len(grid.sent_to(3)) >= 3


def test_a_traceback_is_told_by_its_last_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An engine sends a whole traceback, which the log has where one asks for it."""
    caplog.set_level(logging.DEBUG, "modelkin.integrations")
    text = (
        "<class 'RayError'>:<'Traceback:\n  File app.py, line 1\n"
        "\x1b[36mValueError:\x1b[0m the disk is gone\n'>"
    )

    def fails(message: Message) -> Message:
        raise RuntimeError(text)

    grid = DelayedGrid(monkeypatch, {**clients(1, 2), 3: bad_app(fails)})
    _, steps, _ = start(grid, 1, size=2)
    assert {3: "its app failed: ValueError: the disk is gone"} == dict(steps[0].left_out)
    assert "the app of node 3 failed: <class 'RayError'>:<'Traceback:" in caplog.text


def test_a_client_under_two_names_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same update of another node is named, and the step is that of those that differ."""

    def copies(message: Message) -> Message:
        other = Message(message.content, dst_node_id=2, message_type="train")
        (own,) = LocalGrid(clients(2)).send_and_receive([other])
        return Message(own.content, reply_to=message)

    grid = DelayedGrid(monkeypatch, {**clients(1, 2), 3: bad_app(copies)})
    result, steps, _ = start(grid, 2, size=3)
    alone, _, _ = start(DelayedGrid(monkeypatch, clients(1, 2)), 2, size=2)
    assert same(alone.arrays, result.arrays)
    assert ["its arrays are those of '2' to the bit: they count once"] * 2 == [
        step.left_out[3] for step in steps
    ]


def claims(number: int) -> Any:
    """A mod of a client that claims so many examples."""

    def mod(message: Message, context: Context, call: Any) -> Message:
        answer: Message = call(message, context)
        metrics: Any = answer.content["metrics"]
        metrics["num-examples"] = number
        return answer

    return mod


@pytest.mark.parametrize("weights", ["examples", "equal"])
def test_with_equal_weights_no_claim_counts(monkeypatch: pytest.MonkeyPatch, weights: str) -> None:
    """By examples a client that claims 2^53 owns each step; else it counts as any other."""
    plain, _, _ = start(DelayedGrid(monkeypatch, clients(*ODD)), 1, size=3)
    liar = {**clients(*ODD), 3: app(None, claims(2**53))}
    found, _, _ = start(DelayedGrid(monkeypatch, liar), 1, size=3, weights=weights)
    alone, _, _ = start(DelayedGrid(monkeypatch, clients(3)), 1, size=1)
    owner = plain if weights == "equal" else alone
    for name, wanted in values(owner.arrays).items():
        assert np.allclose(wanted, values(found.arrays)[name], atol=1e-6)


def test_metrics_of_another_form_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step has the mean of its clients' metrics; a list among numbers is left out."""

    def telling(value: Any) -> ClientApp:
        told = {"num-examples": 10, "loss": value}
        return bad_app(lambda message: reply(message, received(message), told))

    apps = {1: telling(1.0), 2: telling(3.0), 3: telling([1.0, 2.0])}
    result, _, _ = start(DelayedGrid(monkeypatch, apps), 2, size=3)
    assert {1: 2.0, 2: 2.0} == {n: m["loss"] for n, m in result.train_metrics_clientapp.items()}


def test_where_no_answer_counts_all_are_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After the patience; a client that was out of order only for a while takes part then."""
    broken = [True, True]

    def answer(message: Message) -> Message:
        if broken:
            raise RuntimeError(f"{broken.pop()}")
        return reply(message, received(message), {"num-examples": 3})

    apps = {1: bad_app(answer), 2: bad_app(answer)}
    _, steps, _ = start(DelayedGrid(monkeypatch, apps), 1, size=2, patience=5.0)
    assert [{1: 0, 2: 0}] == [step.staleness for step in steps]
    assert "no answer counted for 5 s" in caplog.text


def test_a_message_that_is_not_sent_is_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's Grid gives no id, or None, for a message that it could not send."""

    class Losing(DelayedGrid):
        lost: ClassVar[list[list[None]]] = [[], [None]]

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            if self.lost:
                return self.lost.pop()  # type: ignore[return-value]  # as Flower's does
            return super().push_messages(messages)

    _, steps, _ = start(Losing(monkeypatch, clients(1, 2)), 2, size=2)
    assert [{1: 0, 2: 0}] * 2 == [step.staleness for step in steps]


def test_a_run_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no client answers, the run ends with the first weights."""
    grid = DelayedGrid(monkeypatch, clients(1), {1: None})
    result, steps, _ = start(grid, 5, timeout=20.0)
    assert [] == steps
    assert same(ArrayRecord(mlp().state_dict()), result.arrays)


def test_the_server_evaluates_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first weights are number 0."""
    steps, seen = list[BufferedStep](), dict[int, ArrayRecord]()

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        seen[number] = arrays
        return MetricRecord({"number": number})

    result = BufferedStrategy(size=2, poll=0.5, on_step=steps.append).start(
        DelayedGrid(monkeypatch, clients(1, 2)),
        ArrayRecord(mlp().state_dict()),
        num_rounds=2,
        evaluate_fn=evaluate,
    )
    assert [0, 1, 2] == list(result.evaluate_metrics_serverapp)
    assert all(same(step.arrays, seen[step.number]) for step in steps)


def test_each_cluster_has_a_model_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six clients name classes in two ways, and one is slow: it trains its cluster's model."""
    apps = {node: app(SupportMod()) for node in (*ODD, *EVEN)}
    grid = DelayedGrid(monkeypatch, apps, {6: 8.0})
    _, steps, strategy = start(grid, 24, size=2, per_cluster=True)
    assert {ODD, EVEN} == set(strategy.clusters.members.values())
    odd, even = (
        next(c for c, nodes in strategy.clusters.members.items() if nodes == group)
        for group in (ODD, EVEN)
    )
    assert {odd, even} == set(strategy.cluster_arrays)
    for group, number in ((ODD, odd), (EVEN, even)):
        for node in group:
            assert accuracy(strategy.cluster_arrays[number], node) > 0.9
        other = strategy.cluster_arrays[even if number == odd else odd]
        assert accuracy(other, group[0]) < 0.3
    last = [step for step in steps if 6 in step.staleness]
    assert {even} == {step.cluster for step in last}


def accuracy(arrays: ArrayRecord, node: int) -> float:
    """What a client's app says of a model."""
    grid = LocalGrid({node: app(None)})
    message = Message(RecordDict({"arrays": arrays}), dst_node_id=node, message_type="evaluate")
    (answer,) = grid.send_and_receive([message])
    (metrics,) = answer.content.metric_records.values()
    return float(metrics["accuracy"])  # type: ignore[arg-type]


def test_a_late_client_gets_the_first_weights_and_then_its_clusters_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its support can be compared so; its first training, too stale, moves no model."""
    apps = {node: app(SupportMod()) for node in (*ODD, *EVEN)}
    grid = DelayedGrid(monkeypatch, apps, joins={6: 10.0})
    _, steps, strategy = start(grid, 30, size=2, per_cluster=True, max_staleness=4)
    first, second, *_ = (values(sent["arrays"]) for sent in grid.sent_to(6))
    assert np.array_equal(first["0.weight"], mlp().state_dict()["0.weight"].numpy())
    even = next(c for c, nodes in strategy.clusters.members.items() if nodes == EVEN)
    models = [values(step.arrays)["0.weight"] for step in steps if step.cluster == even]
    assert any(np.array_equal(second["0.weight"], model) for model in models)
    reasons = [step.left_out[6] for step in steps if 6 in step.left_out]
    assert len(reasons) == 1
    assert "steps since, 4 at most count" in reasons[0]
    assert any(6 in step.staleness for step in steps)


def test_clients_without_a_support_share_a_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One without SupportMod is in no cluster, and trains a model of its kind."""
    apps = {node: app(SupportMod() if node < 7 else None) for node in (*ODD, *EVEN, 7)}
    _, steps, strategy = start(DelayedGrid(monkeypatch, apps), 16, size=2, per_cluster=True)
    assert {ODD, EVEN} == set(strategy.clusters.members.values())
    assert {(7,)} == {tuple(step.staleness) for step in steps if step.cluster is None}
    assert "after 0 steps: client 7 is in no cluster: it sent no support" in caplog.text
    assert "does its app have SupportMod, and call hand_over?" in caplog.text


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"size": 0}, "size"),
        ({"max_staleness": -1}, "max_staleness"),
        ({"rate": -1.0}, "rate"),
        ({"patience": 0.0}, "patience"),
        ({"poll": float("inf")}, "poll"),
        ({"k_max": 2.0}, "k_max"),
        ({"k_max": 20}, "k_max"),
        ({"per_cluster": "yes"}, "per_cluster"),
        ({"on_step": "yes"}, "on_step"),
        ({"n_clusters": 2}, "n_clusters"),
        ({"distance_threshold": 0.5}, "distance_threshold"),
        ({"separation": 0.2}, "separation"),
    ],
)
def test_arguments_have_ranges(how: dict[str, Any], field: str) -> None:
    """What cannot be right is refused before a message is sent."""
    with pytest.raises(InvalidParameter) as refused:
        BufferedStrategy(**how)
    assert field == refused.value.field


def test_a_rate_above_one_has_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It is allowed, and seldom meant."""
    BufferedStrategy(rate=1)
    assert "rate" not in caplog.text
    BufferedStrategy(rate=3)
    assert "rate=3 moves a model beyond the mean of its updates" in caplog.text
