"""Rounds of clusters without any engine: eight clients of two kinds, and those that do not fit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from modelkin import fit_subspace
from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.clustered_rounds import (
    ClusteredRounds,
    ClusterRules,
    Reply,
)
from modelkin.integrations.federation.data_clusters import Answers
from modelkin.integrations.federation.federation_state import FederationState
from modelkin.integrations.federation.kin_robust import KinRobust
from modelkin.integrations.federation.support_maker import SupportMaker

Model = dict[str, np.ndarray[Any, Any]]
NORTH, SOUTH = (1, 2, 3, 4), (5, 6, 7, 8)
EVERYONE = (*NORTH, *SOUTH)
EXAMPLES = {node: 10 + 7 * node for node in range(1, 12)}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds say who does not count, which here is on purpose."""
    caplog.set_level(logging.ERROR, "modelkin.integrations")


def initial() -> Model:
    """The model that a federation begins with."""
    rng = np.random.default_rng(0)
    return {
        "w": rng.normal(size=(20, 9)).astype(np.float32),
        "b": rng.normal(size=20).astype(np.float32),
    }


def kind_of(node: int) -> int:
    """The kind of a client's data: nodes above 8 are latecomers of either."""
    return int(node in SOUTH or node % 2 == 0) if node > 8 else int(node in SOUTH)


def trained(model: Mapping[str, np.ndarray[Any, Any]], node: int) -> Model:
    """A step towards what the client's kind has in common, and some of its own."""
    common, own = (np.random.default_rng(seed) for seed in (kind_of(node), 100 + node))
    return {
        name: (
            values + 0.3 * common.normal(size=values.shape) + 0.01 * own.normal(size=values.shape)
        ).astype(np.float32)
        for name, values in model.items()
    }


def support(node: int) -> dict[str, Any]:
    """What a client's script sends of an importance that its kind shares."""
    common, own = (np.random.default_rng(seed) for seed in (kind_of(node), 100 + node))
    importance = common.random(200) ** 4 + 0.05 * own.random(200)
    return SupportMaker().make(importance.astype(np.float32), None)[0].to_values()


def subspace(node: int) -> bytes:
    """What a client says of its data: points near a plane that its kind shares."""
    common, own = (np.random.default_rng(seed) for seed in (kind_of(node), 100 + node))
    points = own.normal(size=(60, 2)) @ common.normal(size=(2, 12))
    return fit_subspace(points + 0.05 * own.normal(size=points.shape)).to_bytes()


def describe(nodes: Sequence[int]) -> Answers:
    return {node: {"subspace": subspace(node)} for node in nodes}


def nobody(nodes: Sequence[int]) -> Answers:
    raise AssertionError("clusters by supports ask for nothing")


def name_of(node: int) -> str:
    return f"site-{node:02}"


class Federation:
    """Rounds of some clients, with what each got and sent."""

    def __init__(self, **rules: Any) -> None:
        self.rounds = ClusteredRounds(initial(), ClusterRules(**rules))
        self.got: list[dict[int, Mapping[str, np.ndarray[Any, Any]]]] = []
        self.sent: list[dict[int, Reply]] = []
        self.ask = describe if self.rounds.data is not None else nobody

    def run(
        self,
        nodes: Iterable[int],
        *,
        gone: Iterable[int] = (),
        instead: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> ClusteredRounds:
        """A round of these clients, some of which vanish or answer otherwise."""
        number, nodes = len(self.got) + 1, tuple(nodes)
        self.rounds.begin(number, {node: name_of(node) for node in nodes}, self.ask)
        self.got.append({node: self.rounds.model_for(node) for node in nodes})
        replies = {}
        for node in set(nodes) - set(gone):
            answer = {
                "arrays": trained(self.got[-1][node], node),
                "examples": EXAMPLES[node],
                "support": None if self.rounds.data is not None else support(node),
                "metrics": {"accuracy": node / 10},
            }
            replies[node] = Reply(**{**answer, **(instead or {}).get(node, {})})
        self.sent.append(replies)
        self.rounds.finish(number, replies)
        return self.rounds

    def cluster(self, node: int) -> int:
        found = self.rounds.history.cluster_of(node)
        assert found is not None
        return found

    def model(self, node: int) -> dict[str, bytes]:
        """The bytes of the model of a client's cluster."""
        model = self.rounds.cluster_arrays[self.cluster(node)]
        return {name: values.tobytes() for name, values in model.items()}

    def mean(self, nodes: Iterable[int]) -> Model:
        """What numpy makes of the last answers of some clients."""
        nodes = tuple(nodes)
        return {
            name: np.average(
                [self.sent[-1][node].arrays[name].astype(np.float64) for node in nodes],
                axis=0,
                weights=[EXAMPLES[node] for node in nodes],
            )
            for name in initial()
        }


def close(expected: Model, found: Mapping[str, np.ndarray[Any, Any]]) -> bool:
    """Whether all values agree within one rounding of float32."""
    return all(np.allclose(expected[n], found[n], rtol=1e-6, atol=1e-7) for n in expected)


def test_each_cluster_has_the_mean_of_its_clients() -> None:
    """By supports, in the first round; from the next one on its clients get it."""
    federation = Federation()
    rounds = federation.run(EVERYONE)
    assert rounds.clusters is not None
    assert {NORTH, SOUTH} == set(rounds.clusters.members.values())
    for group in (NORTH, SOUTH):
        cluster = federation.cluster(group[0])
        assert close(federation.mean(group), rounds.cluster_arrays[cluster])
        expected = np.average([n / 10 for n in group], weights=[EXAMPLES[n] for n in group])
        assert expected == pytest.approx(rounds.metrics[cluster]["accuracy"])
    assert close(federation.mean(EVERYONE), rounds.arrays)
    before = {node: federation.model(node) for node in EVERYONE}
    federation.run(EVERYONE)
    for node in EVERYONE:
        got = federation.got[1][node]
        assert before[node] == {name: values.tobytes() for name, values in got.items()}


def test_a_site_at_chance_from_its_cluster_is_in_no_mean() -> None:
    """The rounds judge by the model that each client was sent; the others' means are exact."""
    limits = KinRobust(share=0.5, min_members=4)
    federation, start = Federation(robust=limits), initial()
    turned = {name: 2 * start[name] - each for name, each in trained(start, 2).items()}
    rounds = federation.run(EVERYONE, instead={2: {"arrays": turned}})
    assert rounds.clusters is not None
    assert {2} == set(rounds.clusters.weighted_down)
    assert "tossed signs give 0" in rounds.clusters.weighted_down[2]
    cluster = federation.cluster(2)
    assert close(federation.mean([1, 3, 4]), rounds.cluster_arrays[cluster])
    assert close(federation.mean([1, 3, 4, *SOUTH]), rounds.arrays)
    federation.run(EVERYONE)
    assert {2} == set(rounds.clusters.weighted_down)


def test_a_claim_of_too_many_examples_counts_as_five_times_the_median() -> None:
    """An honest update of 2^53 examples would else be its cluster's model."""
    federation = Federation(robust=KinRobust(share=0.5, min_members=4))
    rounds = federation.run(EVERYONE, instead={2: {"examples": 2**53}})
    assert rounds.clusters is not None
    assert {2} == set(rounds.clusters.weighted_down)
    assert "the median of its cluster" in rounds.clusters.weighted_down[2]
    claims = {node: float(EXAMPLES[node]) for node in NORTH} | {2: 2.0**53}
    claims[2] = 5 * float(np.median([*claims.values()]))
    shares = {node: claim / sum(claims.values()) for node, claim in claims.items()}
    assert shares == pytest.approx({node: rounds.clusters.weights[node] for node in NORTH})
    for name, found in rounds.cluster_arrays[federation.cluster(2)].items():
        sent = [federation.sent[-1][node].arrays[name].astype(np.float64) for node in NORTH]
        expected = np.average(sent, axis=0, weights=[*shares.values()])
        np.testing.assert_allclose(expected, found, rtol=1e-6, atol=1e-7)


def test_a_latecomer_gets_the_first_weights_and_moves_no_model_then() -> None:
    """Its support is of these weights, and it is with its kin as soon as it has answered."""
    alone, late = Federation(), Federation()
    for federation, then in ((alone, NORTH), (late, (*NORTH, 9))):
        federation.run(EVERYONE)
        federation.run(then)
    assert late.cluster(1) == late.cluster(9)
    assert alone.model(1) == late.model(9)
    assert all(np.array_equal(initial()[n], late.got[1][9][n]) for n in initial())
    late.run((9,))
    assert alone.model(1) == {n: values.tobytes() for n, values in late.got[2][9].items()}


LIES: dict[str, dict[str, Any]] = {
    "another layout": {"arrays": {"w": np.zeros((20, 9), np.float32)}},
    "another shape": {"arrays": {**initial(), "b": np.zeros(21, np.float32)}},
    "one more array": {"arrays": {**initial(), "c": np.zeros(1, np.float32)}},
    "no array": {"arrays": {}},
    "texts": {"arrays": {**initial(), "b": np.array(["a"] * 20)}},
    "NaN": {"arrays": {**initial(), "b": np.full(20, np.nan, np.float32)}},
    "infinite in the model's type": {"arrays": {**initial(), "b": np.full(20, 1e300)}},
    "no word of examples": {"examples": None},
    "no examples": {"examples": 0},
    "fewer than none": {"examples": -4},
    "infinitely many": {"examples": float("inf")},
    "more than can be": {"examples": 2**60},
    "more than any float": {"examples": 10**400},
    "more than can be written": {"examples": 10**5000},
    "examples in words": {"examples": "many"},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_client_that_lies_is_left_out(lie: str) -> None:
    """With a reason, and the models of all others are those of a round without its answer."""
    federation, without = Federation(), Federation()
    federation.run(EVERYONE)
    without.run(EVERYONE)
    rounds = federation.run(EVERYONE, instead={2: LIES[lie]})
    without.run(EVERYONE, gone=(2,))
    assert rounds.clusters is not None
    assert 0.0 == rounds.clusters.weights[2]
    assert {2} == set(rounds.clusters.weighted_down)
    for node in EVERYONE:
        assert without.model(node) == federation.model(node)
    assert close(dict(without.rounds.arrays), rounds.arrays)


@pytest.mark.parametrize("odd", [10**400, float("nan"), float("inf")])
def test_a_metric_beyond_all_numbers_ends_no_round(odd: object) -> None:
    """It has no mean in its cluster; its client counts, and other metrics have theirs."""
    federation, plain = Federation(), Federation()
    plain.run(EVERYONE)
    answers = {node: {"metrics": {"accuracy": 0.5, "loss": 1.0}} for node in EVERYONE}
    rounds = federation.run(
        EVERYONE, instead={**answers, 2: {"metrics": {"accuracy": odd, "loss": 1.0}}}
    )
    assert {"loss": 1.0} == rounds.metrics[federation.cluster(2)] == rounds.metrics[None]
    assert {"accuracy": 0.5, "loss": 1.0} == rounds.metrics[federation.cluster(5)]
    assert plain.model(2) == federation.model(2)


@pytest.mark.parametrize(
    ("odd", "what"),
    [
        (True, "accuracy is of type bool, not a number"),
        ("0.5", "accuracy is of type str, not a number"),
        ([0.5], "accuracy is a list of 1, not a number"),
        (np.zeros(2), "accuracy is of type ndarray, not a number"),
        (None, "accuracy is of type NoneType, not a number"),
    ],
)
def test_a_client_whose_metric_is_no_number_is_left_out(odd: object, what: str) -> None:
    """As in Flower: the means of all others, of models and of metrics, are those without it."""
    federation, without = Federation(), Federation()
    without.run(EVERYONE, gone=(2,))
    rounds = federation.run(EVERYONE, instead={2: {"metrics": {"accuracy": odd}}})
    assert rounds.clusters is not None
    reason = f"its metrics differ from those of most: {what}"
    assert {2: reason} == rounds.clusters.weighted_down
    assert without.model(5) == federation.model(5)
    assert without.rounds.metrics[None] == rounds.metrics[None]
    assert close(dict(without.rounds.arrays), rounds.arrays)


@pytest.mark.parametrize("odd", [None, 3, ["accuracy"], {}, {"loss": 0.5}])
def test_clients_of_other_metrics_than_most_are_left_out(odd: object) -> None:
    """Three of eight, with the names in which they differ."""
    federation = Federation()
    rounds = federation.run(EVERYONE, instead={node: {"metrics": odd} for node in NORTH[:3]})
    assert rounds.clusters is not None
    assert set(NORTH[:3]) == rounds.clusters.weighted_down.keys()
    assert all("accuracy" in why for why in rounds.clusters.weighted_down.values())
    assert {"accuracy": 0.4} == pytest.approx(rounds.metrics[federation.cluster(4)])


def test_where_nobody_sends_a_metric_nobody_is_left_out() -> None:
    """Nor where all send texts, or names that are none: these have no mean."""
    for odd in (None, {}, {"note": "fine"}, {1: 2.0, None: 3.0}):
        federation = Federation()
        rounds = federation.run(EVERYONE, instead={node: {"metrics": odd} for node in EVERYONE})
        assert rounds.clusters is not None
        assert {} == rounds.clusters.weighted_down
        assert {} == rounds.metrics[None]


@pytest.mark.parametrize(
    "sent",
    [None, {}, {"kind": "support", "data": b"x", "k-star": 3}, {**support(2), "k-star": 10**6}],
)
def test_a_client_without_a_readable_support_is_in_no_cluster(sent: Any) -> None:
    """It gets the mean of all; the others' models are those of a federation without it."""
    federation, without = Federation(), Federation()
    rounds = federation.run(EVERYONE, instead={2: {"support": sent}})
    without.run([node for node in EVERYONE if node != 2])
    assert rounds.clusters is not None
    assert {2} == set(rounds.clusters.left_out)
    for node in (1, 3, 4, *SOUTH):
        assert without.model(node) == federation.model(node)
    federation.run(EVERYONE)
    assert close(federation.mean(EVERYONE), rounds.arrays)


def test_a_client_back_under_another_name_is_a_new_one() -> None:
    """It is placed anew, and what the others get is as if it had stayed away."""
    federation, without = Federation(), Federation()
    for each in (federation, without):
        each.run(EVERYONE)
    same = {"support": support(2)}
    federation.run([n for n in (*EVERYONE, 10) if n != 2], instead={10: same})
    without.run([n for n in EVERYONE if n != 2])
    assert federation.cluster(1) == federation.cluster(10)
    for node in (1, 3, 4, *SOUTH):
        assert without.model(node) == federation.model(node)


def test_a_cluster_of_few_answers_keeps_its_model() -> None:
    """With ``min_members``; the other cluster moves."""
    federation = Federation(min_members=3)
    federation.run(EVERYONE)
    before = {node: federation.model(node) for node in EVERYONE}
    federation.run(EVERYONE, gone=(1, 2))
    assert before[3] == federation.model(3)
    assert before[5] != federation.model(5)


def test_a_round_without_an_answer_moves_nothing() -> None:
    """All have vanished: models and clusters stay."""
    federation = Federation()
    federation.run(EVERYONE)
    before, common = federation.model(1), federation.rounds.arrays
    rounds = federation.run(EVERYONE, gone=EVERYONE)
    assert before == federation.model(1)
    assert common is rounds.arrays
    assert rounds.clusters is not None
    assert () == rounds.clusters.replied


def test_by_data_a_newcomer_gets_its_clusters_model_at_once() -> None:
    """Each client is asked once; the newcomer by its data counts in its first round."""
    federation, asked = Federation(by="data"), list[int]()

    def ask(nodes: Sequence[int]) -> Answers:
        asked.extend(nodes)
        return describe(nodes)

    federation.ask = ask
    federation.run(EVERYONE)
    assert federation.rounds.clusters is not None
    assert {NORTH, SOUTH} == set(federation.rounds.clusters.members.values())
    before = federation.model(5)
    federation.run((*EVERYONE, 10))
    assert [*EVERYONE, 10] == asked
    assert federation.cluster(5) == federation.cluster(10)
    assert before == {n: values.tobytes() for n, values in federation.got[1][10].items()}
    cluster = federation.cluster(5)
    assert close(federation.mean((*SOUTH, 10)), federation.rounds.cluster_arrays[cluster])


@pytest.mark.parametrize(
    "answer", ["it did not answer in time", {}, {"subspace": b"x"}, {"refused": "no disk"}]
)
def test_a_client_that_says_nothing_of_its_data_is_in_no_cluster(answer: Any) -> None:
    """With a reason; it trains the mean of all, and the others' clusters are theirs."""
    federation = Federation(by="data")
    federation.ask = lambda nodes: {**describe(nodes), 4: answer}
    rounds = federation.run(EVERYONE)
    assert rounds.clusters is not None
    assert {4} == set(rounds.clusters.left_out)
    assert {NORTH[:3], SOUTH} == set(rounds.clusters.members.values())
    assert close(federation.mean(NORTH[:3]), rounds.cluster_arrays[federation.cluster(1)])


@pytest.mark.parametrize("by", ["supports", "data"])
def test_another_run_continues_and_places_newcomers(by: str) -> None:
    """Clusters keep numbers and models; a newcomer of it is with its kin."""
    before = Federation(by=by)
    before.run(EVERYONE)
    models = {node: before.model(node) for node in EVERYONE}
    state = FederationState.of(before.rounds, 1)
    after = Federation(by=by)
    state.restore(after.rounds)
    after.got.append({})
    after.run((*EVERYONE, 10))
    assert after.cluster(5) == after.cluster(10)
    for node in EVERYONE:
        assert before.cluster(node) == after.cluster(node)
        got = after.got[1][node]
        assert models[node] == {name: values.tobytes() for name, values in got.items()}
    with pytest.raises(InvalidParameter, match="clustered in the other way"):
        state.restore(Federation(by={"supports": "data", "data": "supports"}[by]).rounds)


@pytest.mark.parametrize(
    "rules",
    [
        {"by": "names"},
        {"weights": "size"},
        {"by": "data", "weights": "cover"},
        {"separation": 2},
        {"n_clusters": 0},
        {"forget_after": 0},
        {"by": "data", "forget_after": 3},
        {"recluster_every": 3},
        {"by": "data", "recluster_every": 0},
        {"k_max": 2.0},
        {"min_members": 0},
    ],
)
def test_rules_out_of_their_range_are_refused(rules: dict[str, Any]) -> None:
    """Before a round begins."""
    with pytest.raises(InvalidParameter):
        ClusteredRounds({}, ClusterRules(**rules))


def test_a_client_says_why_it_sends_no_support() -> None:
    """The server repeats it, as far as it can be printed, and the client counts in no cluster."""
    rounds = Federation().run(EVERYONE, instead={3: {"support": {"refused": "NaN\n" * 400}}})
    assert rounds.clusters is not None
    why = rounds.clusters.left_out[3]
    assert why.startswith("it could make no support: NaN NaN")
    assert len(why) < 600
