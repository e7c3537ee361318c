"""Clients are judged by their kin: who is left out, who is not, and for how long."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.federation.kin_robust import KinJudge, KinRobust, Verdicts
from modelkin.integrations.federation.node_weights import RoundMembers, node_weights
from modelkin.integrations.federation.round_weights import weigh_round

M = 4000
START: Model = {"w": np.zeros(M, np.float32)}
Updates = dict[int, npt.NDArray[np.float64]]


def kin(nodes: Collection[int], seed: int = 0, noise: float = 1.0, group: int = 0) -> Updates:
    """Updates with a direction in common, that of their group."""
    common = np.random.default_rng([group, 77]).normal(size=M)
    rng = np.random.default_rng(seed)
    return {node: common + noise * rng.normal(size=M) for node in nodes}


def judged(
    judge: KinJudge[int],
    updates: Updates,
    clusters: Mapping[int, Sequence[int]] | None = None,
    starts: Mapping[int, Model] | None = None,
) -> Verdicts[int]:
    """The verdicts on these updates, of one cluster unless others are given."""
    starts = dict.fromkeys(updates, START) if starts is None else starts
    models = {
        node: {"w": (starts[node]["w"] + each).astype(np.float32)} for node, each in updates.items()
    }
    return judge.judge(models, starts, {0: list(updates)} if clusters is None else clusters)


def attack(kind: str, update: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A bad client's update in place of its honest one."""
    if kind == "noise":
        return 10 * np.random.default_rng(5).normal(size=M)
    return {"signs": -update, "scaled signs": -10 * update, "nothing": 0 * update}[kind]


@pytest.mark.parametrize("kind", ["signs", "scaled signs", "noise", "nothing"])
def test_attackers_are_left_out_at_once(kind: str) -> None:
    """Each of two attackers among ten, and nobody else, with figure and limit in the reason."""
    updates = kin(range(10))
    updates |= {node: attack(kind, updates[node]) for node in (3, 7)}
    found = judged(KinJudge(KinRobust()), updates)
    assert {3: 0.0, 7: 0.0} == found.own == found.common
    assert "over 1 round: less than 0.3; tossed signs give 0" in found.reasons[3]


def test_a_long_update_is_weighted_as_one_of_twice_the_median() -> None:
    """An update in the right direction, times 10, counts a fifth or so, and the reason says it."""
    updates = kin(range(8))
    updates[2] *= 10
    found = judged(KinJudge(KinRobust()), updates)
    assert {2} == set(found.own)
    assert 0.2 == pytest.approx(found.own[2], rel=0.05)
    assert "times as long as the median of its cluster, more than 2" in found.reasons[2]


def test_fewer_members_are_not_judged() -> None:
    """Of four clients nobody is left out or weighted down."""
    updates = kin(range(4))
    updates[3] *= -10
    assert {} == judged(KinJudge(KinRobust()), updates).common


def test_a_round_without_agreement_says_nothing_and_verdicts_stand() -> None:
    """Once all clients go their own ways, who was out stays out, and nobody else follows."""
    judge = KinJudge[int](KinRobust())
    updates = kin(range(10))
    updates[3] *= -1
    assert {3} == set(judged(judge, updates).own)
    then = judged(judge, kin(range(10), seed=9, noise=50.0))
    assert {3} == set(then.own)
    assert "over 1 round before this one, which says nothing of it" in then.reasons[3]


def test_a_memory_forgives_one_bad_round_and_a_better_client_returns() -> None:
    """An honest client may be at chance once; one that was out counts again after a good round."""
    judge = KinJudge[int](KinRobust())
    bad = kin(range(8), 5)
    bad[2] = np.random.default_rng(6).normal(size=M)
    found = [judged(judge, kin(range(8), 1)), judged(judge, bad)]
    assert [{}, {}] == [each.own for each in found]
    judge = KinJudge[int](KinRobust())
    assert {2} == set(judged(judge, bad).own)
    assert {} == judged(judge, kin(range(8), 1)).own


def test_another_group_is_not_judged_by_the_first() -> None:
    """Two honest clusters of opposite updates are each judged by their own."""
    updates = kin(range(6)) | {n: -each for n, each in kin(range(6, 12), 1).items()}
    clusters = {0: list(range(6)), 1: list(range(6, 12))}
    assert {} == judged(KinJudge(KinRobust()), updates, clusters).common
    one = judged(KinJudge(KinRobust()), updates | {5: -updates[5]}, clusters)
    assert {5: 0.0} == one.common == one.own


def test_a_small_cluster_keeps_its_own_mean() -> None:
    """Three clients that turn signs leave the mean of all, and not that of their own cluster."""
    updates = kin(range(10)) | {n: -each for n, each in kin(range(10, 13), 1).items()}
    found = judged(KinJudge(KinRobust()), updates, {0: list(range(10)), 1: [10, 11, 12]})
    assert {} == found.own
    assert {10: 0.0, 11: 0.0, 12: 0.0} == found.common
    assert "of all clients" in found.reasons[10]


def test_a_reason_says_in_which_mean_a_client_counts(caplog: pytest.LogCaptureFixture) -> None:
    """In a cluster too small to judge, with its share; one line says that all clusters are."""
    updates = kin(range(8))
    updates[3] *= -1
    clusters, judge = {0: [0, 1, 2, 3], 1: [4, 5, 6, 7]}, KinJudge[int](KinRobust())
    with caplog.at_level(logging.WARNING, "modelkin.integrations"):
        verdicts = judged(judge, updates, clusters)
        judged(judge, updates, clusters)
    known: RoundMembers[int] = RoundMembers({n: {} for n in updates}, clusters=clusters)
    found = weigh_round(known, {}, "equal", verdicts, clusters)
    assert (0.0, 0.25) == (found.everyone.values[3], found.own.values[3])
    assert found.own.down[3].endswith(
        "it is left out (in the mean of all alone; its share of cluster 0 is 0.25: "
        "4 clients are fewer than min_members=5)"
    )
    assert 1 == caplog.text.count("KinRobust(min_members=3) judges clusters of 3 or more")
    limits = KinRobust(min_members=3)
    assert {3: 0.0} == judged(KinJudge(limits), updates, clusters).own


def test_a_client_in_no_cluster_is_judged_among_all() -> None:
    """A client without a readable support does not pass for that."""
    updates = kin(range(7))
    updates[6] *= -1
    found = judged(KinJudge(KinRobust()), updates, {0: list(range(6))})
    assert ({}, {6: 0.0}) == (found.own, found.common)


def test_another_start_is_not_compared() -> None:
    """A client that began at other weights is not judged in this round, and has no vote."""
    updates = kin(range(7))
    updates[6] *= -1
    starts = {node: START if node < 6 else {"w": np.ones(M, np.float32)} for node in updates}
    assert {} == judged(KinJudge(KinRobust()), updates, starts=starts).common


def test_a_majority_of_attackers_is_not_recognised() -> None:
    """Four of seven who turn signs alike leave the honest ones out: the page says so."""
    updates = kin(range(7))
    updates |= {node: -updates[node] for node in (3, 4, 5, 6)}
    assert {0, 1, 2} == set(judged(KinJudge(KinRobust()), updates).own)


def test_another_layout_than_was_sent_is_left_out() -> None:
    """A model whose arrays differ from those it began with has no update."""
    models: dict[int, Any] = {n: {"w": each} for n, each in kin(range(6)).items()}
    models[4] = {"w": np.zeros(M + 1)}
    found = KinJudge[int](KinRobust()).judge(models, dict.fromkeys(models, START), {0: [*models]})
    assert {4: 0.0} == found.own == found.common
    assert "another layout" in found.reasons[4]


def test_verdicts_do_not_depend_on_the_order_of_arrival() -> None:
    """The same clients in another order, under the same names, have the same factors."""
    updates = kin(range(10))
    updates[4] *= 10
    updates[8] *= -1
    turned = dict(reversed(updates.items()))
    first = judged(KinJudge(KinRobust()), updates)
    assert first.common == judged(KinJudge(KinRobust()), turned).common


def test_clients_that_vanish_keep_their_verdict_and_new_ids_begin_anew() -> None:
    """An attacker that was away is still out; under another id it is judged by its next update."""
    judge = KinJudge[int](KinRobust())
    updates = kin(range(9))
    updates[8] *= -1
    assert {8} == set(judged(judge, updates).own)
    assert {} == judged(judge, kin(range(8), 1)).own
    assert {8} == set(judged(judge, kin(range(9), 2, noise=50.0)).own)
    back = kin([*range(8), 99], 3)
    back[99] *= -1
    assert {99} == set(judged(judge, back).own)


@pytest.mark.parametrize(("members", "size"), [(8, 200_000), (16, 200_000), (8, 400_000)])
def test_memory_is_that_of_the_page(members: int, size: int) -> None:
    """9 bytes of each compared value, 40 of each value, and nothing that grows as d times d."""
    rng, start = np.random.default_rng(0), {"w": np.zeros(size, np.float32)}
    common = rng.normal(size=size)
    models = {n: {"w": (common + rng.normal(size=size)).astype(np.float32)} for n in range(members)}
    judged(KinJudge(KinRobust()), kin(range(8)))  # whose first use compiles
    tracemalloc.start()
    KinJudge[int](KinRobust()).judge(models, dict.fromkeys(models, start), {0: [*models]})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 9 * 0.1 * members * size + 40 * size + 2.5e6


def test_nobody_at_all_has_no_verdict() -> None:
    """A round without a readable model changes nothing."""
    assert {} == KinJudge[int](KinRobust()).judge({}, {}, {}).common


def test_verdicts_multiply_weights() -> None:
    """Factors multiply, reasons of both are kept, and the mean of a cluster ignores the other's."""
    verdicts = Verdicts({1: 0.5}, {1: 0.5, 2: 0.0}, {1: "long", 2: "out"})
    known: RoundMembers[int] = RoundMembers({}, {0: -4, 1: 6, 2: 8})
    own = verdicts.rule(node_weights("examples"), common=False)([0, 1, 2], known)
    assert {0: 0.0, 1: 3.0, 2: 8.0} == own.values
    assert (True, "long") == ("-4" in own.down[0], own.down[1])
    common = verdicts.rule(node_weights("equal"), common=True)([0, 1, 2], known)
    assert ({0: 1.0, 1: 0.5, 2: 0.0}, {1: "long", 2: "out"}) == (common.values, common.down)


def test_a_weight_beyond_five_times_the_median_counts_as_that() -> None:
    """An honest update that claims 2^53 examples is named, among its cluster's and among all."""
    verdicts = judged(KinJudge(KinRobust()), kin(range(10)))
    claims = {node: 10.0 + node for node in range(10)} | {4: 2.0**53}
    known: RoundMembers[int] = RoundMembers({}, claims)
    for common, whose in ((False, "its cluster"), (True, "all clients")):
        found = verdicts.rule(node_weights("examples"), common=common)(range(10), known)
        assert {**claims, 4: 5 * float(np.median([*claims.values()]))} == found.values
        assert [4] == [*found.down]
        assert f"times the median of {whose}, more than 5: it counts as that" in found.down[4]


def test_a_weight_is_capped_before_a_long_update_is() -> None:
    """Both reasons are there; who is left out has no part in the median, and one reason."""
    updates = kin(range(10))
    updates[2] *= 10
    updates[3] *= -1
    verdicts = judged(KinJudge(KinRobust(heaviest=2)), updates)
    known: RoundMembers[int] = RoundMembers(
        {}, dict.fromkeys(range(10), 1.0) | {2: 2.0**53, 3: 9.0}
    )
    found = verdicts.rule(node_weights("examples"), common=False)(range(10), known)
    assert (2 * verdicts.own[2], 0.0) == (found.values[2], found.values[3])
    assert "as long as the median" in found.down[2]
    assert "more than 2: it counts as that" in found.down[2]
    assert "it counts as that" not in found.down[3]


def test_few_members_have_no_limit_of_weights() -> None:
    """Of four clients nobody's weight is compared, as their updates are not."""
    verdicts = judged(KinJudge(KinRobust()), kin(range(4)))
    claims = {0: 1.0, 1: 1.0, 2: 1.0, 3: 100.0}
    found = verdicts.rule(node_weights("examples"), common=True)(range(4), RoundMembers({}, claims))
    assert (claims, {}) == (found.values, found.down)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("share", 0.0),
        ("share", True),
        ("least", 1.0),
        ("agreed", 0.0),
        ("memory", 1.0),
        ("min_members", 2),
        ("min_members", 5.0),
        ("longest", 0.5),
        ("longest", float("nan")),
        ("heaviest", 0.5),
        ("heaviest", float("inf")),
    ],
)
def test_limits_out_of_their_range_are_refused(field: str, value: object) -> None:
    """The field is named."""
    with pytest.raises(InvalidParameter, match=field):
        KinRobust(**{field: value})  # type: ignore[arg-type]  # on purpose


def test_an_option_is_true_false_or_limits() -> None:
    """Anything else is refused."""
    limits = KinRobust(least=0.5)
    assert (None, KinRobust(), limits) == (
        KinRobust.of(False), KinRobust.of(True), KinRobust.of(limits),
    )  # fmt: skip
    with pytest.raises(InvalidParameter, match="robust must be True, False or a KinRobust"):
        KinRobust.of("yes")
