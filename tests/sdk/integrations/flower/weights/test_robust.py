"""``robust``: attackers leave the means of Flower's strategies, and all others' mean is exact."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.serverapp.strategy import FedAvg, FedMedian, Result, Strategy

from modelkin.errors import InvalidParameter
from modelkin.integrations.flower import (
    AdapterStrategy,
    ClusteredStrategy,
    KinRobust,
    LearngeneStrategy,
    RoundClusters,
    ShardedStrategy,
    SupportMod,
)
from tests.sdk.integrations.flower.federation import LocalGrid, app, mlp

EVEN, ODD = (2, 4, 6, 8, 10, 12), (1, 3, 5, 7, 9, 11)
LIMITS = KinRobust(share=0.5)
"""A tenth of so small a network would be too few values to judge anyone by."""

Spoil = Callable[[Any, Any], Any]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.WARNING)


class Remembering(ClusteredStrategy):
    """The strategy, with the result and the clusters of its rounds."""

    result: Result
    rounds: list[RoundClusters]


def turned(start: Any, trained: Any) -> Any:
    """An update in the wrong direction."""
    return start - (trained - start)


def long(start: Any, trained: Any) -> Any:
    """An update ten times as long."""
    return start + 10 * (trained - start)


def run(
    nodes: Collection[int],
    bad: Collection[int] = (),
    spoil: Spoil = turned,
    *,
    inner: Strategy | None = None,
    rounds: int = 1,
    support: bool = True,
    claims: dict[int, int] | None = None,
    **how: Any,
) -> Remembering:
    """Some rounds in which bad clients spoil their updates."""
    received: dict[int, ArrayRecord] = {}

    def spoils(message: Message, context: Context, call: Any) -> Message:
        received[context.node_id] = message.content.array_records["arrays"]
        reply: Message = call(message, context)
        if context.node_id in bad and "arrays" in reply.content:
            arrays: Any = reply.content["arrays"]
            for name, start in received[context.node_id].items():
                arrays[name] = Array(spoil(start.numpy(), arrays[name].numpy()))
        if claims and context.node_id in claims and "arrays" in reply.content:
            metrics: Any = reply.content["metrics"]
            metrics["num-examples"] = claims[context.node_id]
        return reply

    mod = SupportMod() if support else None
    grid = LocalGrid({node: app(mod, spoils) for node in nodes})
    found = list[RoundClusters]()
    strategy = Remembering(
        inner or FedAvg(fraction_evaluate=0.0),
        on_clusters=found.append,
        **{"robust": LIMITS, **how},
    )
    initial = ArrayRecord(mlp().state_dict())
    strategy.result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=rounds)
    strategy.rounds = found
    return strategy


def vector(arrays: ArrayRecord) -> Any:
    """All values of a model."""
    return np.concatenate([each.numpy().reshape(-1) for each in arrays.values()])


def test_an_attacker_is_in_no_mean_and_the_others_are_exact() -> None:
    """Its cluster's mean, and FedAvg's, are to the bit those of a federation without it."""
    nodes = [*EVEN, *ODD]
    found = run(nodes, bad=[4, 7], per_cluster=True)
    without = run([node for node in nodes if node not in (4, 7)], per_cluster=True, robust=False)
    assert {4, 7} == set(found.rounds[0].weighted_down)
    assert (0.0, 0.0) == (found.rounds[0].weights[4], found.rounds[0].weights[7])
    for node in (2, 1):
        one, other = found.cluster_of(node), without.cluster_of(node)
        assert one is not None
        assert other is not None
        np.testing.assert_array_equal(
            vector(found.cluster_arrays[one]), vector(without.cluster_arrays[other])
        )
    np.testing.assert_array_equal(vector(found.result.arrays), vector(without.result.arrays))


@pytest.mark.parametrize("inner", [FedAvg, FedMedian])
def test_without_models_of_clusters_it_stands_before_any_strategy(inner: Any) -> None:
    """The wrapped strategy gets the replies of those that count, and averages as it does."""
    found = run(EVEN, bad=[6], inner=inner(fraction_evaluate=0.0))
    others = [node for node in EVEN if node != 6]
    alone = run(others, inner=inner(fraction_evaluate=0.0), robust=False)
    np.testing.assert_allclose(vector(found.result.arrays), vector(alone.result.arrays), atol=1e-7)
    assert "tossed signs give 0" in found.rounds[0].weighted_down[6]


def test_two_groups_that_contradict_each_other_are_both_kept() -> None:
    """With clusters by supports, honest groups of other labels lose nobody, also in one model."""
    found = run([*EVEN, *ODD], rounds=2)
    assert [{}, {}] == [each.weighted_down for each in found.rounds]
    assert 2 == len(found.rounds[0].members)


def test_a_long_update_counts_less(caplog: pytest.LogCaptureFixture) -> None:
    """FedAvg weighs it as if it were twice as long as the median, and the log has the figure."""
    found = run(EVEN, bad=[8], spoil=long)
    honest, start = run(EVEN, robust=False), vector(ArrayRecord(mlp().state_dict()))
    share = found.rounds[0].weights[8]
    assert 0.02 < share < 0.06
    assert "times as long as the median of its cluster, more than 2" in caplog.text
    moved = vector(found.result.arrays) - start
    assert np.linalg.norm(moved) < 1.5 * np.linalg.norm(vector(honest.result.arrays) - start)


def test_a_claim_of_too_many_examples_counts_as_five_times_the_median() -> None:
    """The liar of 2^53 has the weight of five, in FedAvg's mean as in its cluster's."""
    liar, five = run(EVEN, claims={8: 2**53}), run(EVEN, claims={8: 150}, robust=False)
    assert {8} == set(liar.rounds[0].weighted_down)
    assert "more than 5: it counts as that" in liar.rounds[0].weighted_down[8]
    np.testing.assert_allclose(vector(five.result.arrays), vector(liar.result.arrays), atol=1e-7)
    own = run(EVEN, claims={8: 2**53}, per_cluster=True)
    assert 0.5 == pytest.approx(own.rounds[0].weights[8])


def test_clients_without_supports_are_judged_among_all() -> None:
    """An app without SupportMod has no clusters; attackers are still left out."""
    found = run(EVEN, bad=[6], support=False)
    alone = run([node for node in EVEN if node != 6], support=False, robust=False)
    np.testing.assert_allclose(vector(found.result.arrays), vector(alone.result.arrays), atol=1e-7)


def test_a_verdict_outlasts_rounds_without_agreement() -> None:
    """An attacker is out in all rounds, those of the cluster's own model among them."""
    found = run(EVEN, bad=[2], per_cluster=True, rounds=4)
    assert [{2}] * 4 == [set(each.weighted_down) for each in found.rounds]


def test_a_model_of_another_layout_than_most_is_left_out_as_before() -> None:
    """Its reason is the layout's, and the attacker beside it is left out for its own."""

    def odd(start: Any, trained: Any) -> Any:
        return trained[:1] if trained.ndim == 1 and trained.size == 24 else turned(start, trained)

    found = run(EVEN, bad=[2], spoil=odd, per_cluster=True)
    assert "shape" in found.rounds[0].weighted_down[2]


@pytest.mark.parametrize(
    ("strategy", "how", "why"),
    [
        (
            ShardedStrategy(FedAvg(), aggregators=2),
            {},
            "a ShardedStrategy: .* nobody sees a client's update",
        ),
        (LearngeneStrategy(FedAvg(), depth=1), {}, "a LearngeneStrategy"),
        (
            LearngeneStrategy(ShardedStrategy(FedAvg(), aggregators=2), depth=1),
            {},
            "a ShardedStrategy: .* nobody sees",
        ),
        (FedAvg(), {"per_cluster": True, "both": True}, "both: .* the mixture"),
        (FedAvg(), {"robust": "yes"}, "robust must be True, False or a KinRobust"),
    ],
)
def test_what_the_server_cannot_compare_is_refused(
    strategy: Strategy, how: dict[str, Any], why: str
) -> None:
    """Before the first message, with the reason."""
    with pytest.raises(InvalidParameter, match=why):
        ClusteredStrategy(strategy, **{"robust": True, **how})


def test_adapters_of_other_ranks_are_refused() -> None:
    """Their values are not those of one layout."""
    with pytest.raises(InvalidParameter, match="an AdapterStrategy"):
        ClusteredStrategy(
            AdapterStrategy({"peft_type": "LORA", "r": 2, "lora_alpha": 2}), robust=True
        )
