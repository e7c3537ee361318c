"""Models that are as near as chance makes them are no cluster, by any algorithm."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from app.container import Container
from app.kinship.clustering.distances import ModelDistances
from app.kinship.clustering.request import ClusteringRequest
from app.kinship.clustering.strangers import ClusterJudge
from modelkin import Layout, Support
from modelkin.core.similarity.distances import SignatureDistances
from modelkin.core.similarity.nearest import nearest
from modelkin.core.similarity.pair_chance import PairChance
from tests.support.app.space import AppSpace
from tests.support.fixtures import on_one_database
from tests.support.models import digit_networks
from tests.support.models.planted_clusters import M, member, named

LAYOUT = Layout.of([("norm", (200,)), ("body", (M - 200,))])
ALGORITHMS = ("affinity_propagation", "leiden", "agglomerative", "hdbscan")
IN_NORM, IN_BODY = 150, 150


def drawn(rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Indices that crowd in a tensor, as those of every model do: S is .38 by chance."""
    inside = rng.choice(200, IN_NORM, replace=False)
    return np.sort(np.concatenate([inside, 200 + rng.choice(M - 200, IN_BODY, replace=False)]))


def strangers(count: int, seed: int = 0) -> list[Support]:
    rng = np.random.default_rng(seed)
    return [Support.from_indices(drawn(rng), M) for _ in range(count)]


def family(count: int, seed: int = 1) -> list[Support]:
    """Models that keep 80% of one base."""
    rng = np.random.default_rng(seed)
    base = drawn(rng)
    return [member(rng, base, 0.8) for _ in range(count)]


@pytest.fixture
def space(services: Container) -> AppSpace:
    return AppSpace(services, layout=LAYOUT)


def clusters_of(labels: Mapping[str, int]) -> set[frozenset[str]]:
    """The clusters of several models, and each model of none by itself."""
    groups: dict[int, set[str]] = {}
    for name, label in labels.items():
        groups.setdefault(label, set()).add(name)
    nowhere = groups.pop(-1, set())
    return {frozenset(group) for group in groups.values()} | {frozenset([n]) for n in nowhere}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_random_models_are_no_cluster(space: AppSpace, algorithm: str) -> None:
    """Eight are eight clusters of one, or in none, and the note says why."""
    space.put(named(strangers(8)))
    labels = space.cluster(ClusteringRequest(algorithm))
    assert {frozenset([name]) for name in labels} == clusters_of(labels)
    note = space.clusterings()[0].note
    assert "no nearer than chance makes unrelated models" in note
    where = "8 models are in none" if algorithm == "hdbscan" else "8 models are each alone"
    assert where in note


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_kin_stay_together_without_the_strangers(space: AppSpace, algorithm: str) -> None:
    """Of five kin and three strangers, the five are one cluster, whose weakest link has a P."""
    models = {f"kin{at}": each for at, each in enumerate(family(5))}
    models |= {f"other{at}": each for at, each in enumerate(strangers(3))}
    space.put(models)
    labels = space.cluster(ClusteringRequest(algorithm))
    kin = frozenset(name for name in labels if name.startswith("kin"))
    assert {kin} == {group for group in clusters_of(labels) if len(group) > 1}
    content = space.content()
    [log10_p] = [
        p
        for cluster, p in zip(content.clusters, content.log10_p, strict=True)
        if cluster == labels["kin0"]
    ]
    assert log10_p is not None
    assert log10_p < -10


@pytest.mark.parametrize("models", [1, 2])
def test_a_family_says_nothing(space: AppSpace, models: int) -> None:
    """Kin come in one cluster as before, with no note; so does a single model."""
    space.put(named(family(models)))
    assert {0} == set(space.cluster().values())
    assert space.clusterings()[0].note is None


def test_two_strangers_are_two_clusters(space: AppSpace) -> None:
    """No third model is needed: chance shows that their similarity is not high."""
    space.put(named(strangers(2)))
    assert {0, 1} == set(space.cluster().values())


@pytest.mark.parametrize("given", [{"n_clusters": 2}, {"distance_threshold": 0.99}])
def test_what_is_asked_for_is_obeyed_and_said(space: AppSpace, given: Mapping[str, float]) -> None:
    """A number of clusters, or a distance, puts strangers together; the note says that they are."""
    space.put(named(strangers(6)))
    labels = space.cluster(ClusteringRequest("agglomerative", dict(given)))
    assert len(set(labels.values())) <= 2
    [name] = given
    assert f"{name} was obeyed" in space.clusterings()[0].note
    assert 0.0 in space.content().log10_p


def test_a_space_without_a_layout_says_so(services: Container) -> None:
    """Chance in each tensor is not known there, so nothing comes apart, and the note says why."""
    space = AppSpace(services)
    space.put(named(strangers(8)))
    assert {0} == set(space.cluster().values())
    assert "no layout" in space.clusterings()[0].note
    assert {None} == set(space.content().log10_p)


def test_near_pairs_tell_where_not_all_are_compared() -> None:
    """Of many models, those near each other are connected, and parts by one model of each."""
    supports = [*family(30), *family(30, seed=2), *strangers(30)]
    values = np.stack([each.signature(num_perm=256).values for each in supports])
    counts = np.array([[IN_NORM, IN_BODY]] * len(supports))
    for each, support in zip(counts, supports, strict=True):
        each[:] = LAYOUT.counts(support.indices)
    chance = PairChance(
        counts,
        np.array([200.0, M - 200.0]),
        counts.sum(axis=1),
        np.zeros(len(supports), np.bool_),
        256,
        M,
    )
    distances = SignatureDistances(values.astype(np.uint32))
    plan = ClusteringRequest("leiden").resolve(len(supports))
    for k in (2, 15):
        pairwise = ModelDistances(
            distances, "signature", distances.error, None, nearest(distances, k)
        )
        found = ClusterJudge(chance).judge(np.zeros(len(supports), np.int64), pairwise, plan)
        sizes = np.bincount(found.labels)
        assert [30, 30] == sizes[:2].tolist()
        assert {1} == set(sizes[2:].tolist())
        assert 1 == len(set(found.labels[:30].tolist()))


def test_a_signature_alone_stays_with_its_nearest(space: AppSpace) -> None:
    """A model without counts joins its kin and connects no strangers; the note counts it."""
    kin, others = family(4), strangers(4)
    space.put(named([*kin[:3], *others[:3]]))
    space.put({"seen": kin[3].signature(256, 1), "alone": others[3].signature(256, 1)})
    labels = space.cluster(ClusteringRequest("agglomerative"))
    assert {labels["org/m000"]} == {labels[name] for name in ("org/m001", "org/m002", "seen")}
    assert 3 == len({labels[f"org/m{at:03}"] for at in (3, 4, 5)})
    assert "the chance of 2 models is not known" in space.clusterings()[0].note


def test_models_of_a_part_are_held_against_its_chance(space: AppSpace) -> None:
    """Models without the last quarter: kin are with whole kin, and strangers are alone."""

    def part(whole: Support) -> Support:
        return Support(whole.indices[whole.indices < 3_000], M, gaps=[(3_000, M)])

    kin, others = family(6), strangers(6)
    models = {f"kin{at}": each for at, each in enumerate([*kin[:3], *map(part, kin[3:])])}
    models |= {f"other{at}": each for at, each in enumerate([*others[:3], *map(part, others[3:])])}
    space.put(models)
    labels = space.cluster(ClusteringRequest("agglomerative"))
    together = {group for group in clusters_of(labels) if len(group) > 1}
    assert {frozenset(f"kin{at}" for at in range(6))} == together


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
def test_a_mask_makes_no_cluster(services: Container, mask: bool) -> None:
    """Strangers that share a causal mask are apart: it is left out of what is compared."""
    layout = Layout.of([("attn.bias", (32, 32)), ("body", (3_000,))])
    space = AppSpace(services, layout=layout, num_parameters=layout.num_parameters)
    rng, lower = np.random.default_rng(5), np.flatnonzero(np.tril(np.ones((32, 32))).ravel())
    models = []
    for _ in range(8):
        body = 32 * 32 + rng.choice(3_000, 300, replace=False)
        inside = lower if mask else rng.choice(32 * 32, lower.size, replace=False)
        chosen = np.sort(np.concatenate([inside, body]))
        models.append(Support.from_indices(chosen, layout.num_parameters))
    space.put(named(models))
    labels = space.cluster(ClusteringRequest("hdbscan"))
    assert {-1} == set(labels.values())
    assert mask == ("constant_tensors" in space.clusterings()[0].chosen)


@pytest.mark.slow
@on_one_database
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_networks_trained_apart_are_no_cluster(services: Container, algorithm: str) -> None:
    """Eight networks of one task and other starts are none; three fine-tunes of one are with it."""
    of_digits = digit_networks.LAYOUT
    space = AppSpace(services, layout=of_digits, num_parameters=of_digits.num_parameters)
    space.put({f"apart{at}": each for at, each in enumerate(digit_networks.networks_apart())})
    labels = space.cluster(ClusteringRequest(algorithm))
    assert {frozenset([name]) for name in labels} == clusters_of(labels)
    space.put({f"tuned{at}": each for at, each in enumerate(digit_networks.tuned_networks())})
    labels = space.cluster(ClusteringRequest(algorithm))
    kin = frozenset(["apart0", "tuned0", "tuned1", "tuned2"])
    assert {kin} == {group for group in clusters_of(labels) if len(group) > 1}
