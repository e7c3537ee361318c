"""What stands beside data subspaces is what it says, and attacks on them find what there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.nn.functional import cross_entropy

from benchmarks.dfl2g import clusters, inversion, privacy
from benchmarks.dfl2g.measures import (
    BY_CLASS,
    NAMES,
    WHOLE,
    Measure,
    fitted,
    least_single_angle,
    measures,
    printed_distance,
)
from benchmarks.dfl2g.rotation import turned_back
from benchmarks.eris.data import digits
from demo.planted import GROUPS, images, plant
from modelkin.torch.privacy.flat_network import FlatNetwork

Floats = npt.NDArray[np.float64]
OWN = np.arange(12) % GROUPS


def points(n: int, *, unit: bool) -> Floats:
    """Of four groups, some wider; those behind the first twelve are newcomers of groups in turn."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(GROUPS, 6))
    group = np.arange(n) % GROUPS
    found = centres[group] + (0.2 + group[:, None]) * rng.normal(size=(n, 6))
    return found / np.linalg.norm(found, axis=1, keepdims=True) if unit else found


# --- clusters -------------------------------------------------------------------------------------


def test_printed_distances_change_with_signs_that_mean_nothing() -> None:
    """The same span is far from itself by Eq. 11, and by PACFL's code once its signs are turned."""
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(30, 3)))[0]
    turned = basis * [1.0, -1.0, -1.0]
    assert 0 == printed_distance(basis, basis)
    assert printed_distance(basis, turned) == pytest.approx(np.sqrt(8))
    assert least_single_angle(basis, basis) == pytest.approx(0, abs=1e-5)
    assert least_single_angle(basis, -basis) == pytest.approx(90, abs=1e-5)


@pytest.mark.parametrize("unit", [True, False])
def test_the_nearest_centroid_is_that_of_the_points(unit: bool) -> None:
    """From products of unit points, and from distances alone, without any of the points."""
    every = points(40, unit=unit)
    distances = np.linalg.norm(every[:, None] - every, axis=2)
    measure = Measure(distances, None)
    if unit:
        gram = every @ every.T
        measure = Measure(1.0 - gram, gram)
    centroids = np.stack([every[:12][OWN == group].mean(axis=0) for group in range(GROUPS)])
    nearest = np.linalg.norm(every[12:, None] - centroids, axis=2).argmin(axis=1)
    assert np.array_equal(nearest, clusters.by_centroid(measure, OWN))


def test_votes_follow_the_nearest_clients() -> None:
    """A newcomer that stands upon a client is of its group; the eleventh nearest has no vote."""
    every = np.eye(GROUPS)[OWN] + 0.1 * np.random.default_rng(0).normal(size=(12, GROUPS))
    every = np.concatenate([every, every + 1e-3])
    distances = np.linalg.norm(every[:, None] - every, axis=2)
    assert np.array_equal(OWN, clusters.by_votes(Measure(distances, None), OWN))


@pytest.mark.slow
def test_the_oracle_of_labels_sees_labels_alone() -> None:
    """Turned images of the same labels are alike to it, and to no subspace."""
    found = measures(plant("rotations", seed=0), 0)
    assert list(found) == list(NAMES)
    others = ~np.eye(24, dtype=bool)
    own = np.arange(24) % GROUPS
    apart = {
        name: float(each.distances[own[:, None] != own].mean() - each.distances[others].mean())
        for name, each in found.items()
    }
    assert (
        abs(apart["label histogram (an oracle)"]) < 0.01 < 0.03 < min(apart[BY_CLASS], apart[WHOLE])
    )
    for each in found.values():
        assert np.allclose(each.distances, each.distances.T)


class Means(dict[tuple[Any, ...], float]):
    """One value for everything that was not set."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def __missing__(self, key: tuple[Any, ...]) -> float:
        return self.value


def test_no_bound_of_clusters_is_met_by_chance() -> None:
    """At .25 everything but Eq. 11 misses, and where Eq. 11 finds groups the page says so."""
    rows = clusters.judged(Means(0.25))
    assert {row.met for row in rows if "Eq. 11" not in row.figure} == {False}
    assert {row.met for row in rows if "Eq. 11" in row.figure} == {True}
    perfect = clusters.judged(Means(1.0))
    assert {row.met for row in perfect if "Eq. 11" not in row.figure} == {True}
    assert {row.met for row in perfect if "Eq. 11" in row.figure} == {False}


# --- inversion ------------------------------------------------------------------------------------


def test_an_attacker_has_the_weights_of_what_it_sees() -> None:
    """Bit for bit; of the others it has an error of the given size, or other weights."""
    true = inversion.network(0)
    for error in (0.0, 0.1, None):
        guess = inversion.believed(true, ("conv1",), error, 3)
        for (name, own), other in zip(true.named_parameters(), guess.parameters(), strict=True):
            off = float((own - other).detach().norm() / own.detach().norm())
            if name.startswith("0."):
                assert torch.equal(own, other)
            elif error is None:
                assert off > 0.5
            else:
                assert off == pytest.approx(error, abs=1e-3)
    flat = FlatNetwork(true, cross_entropy)
    assert 120 == len(inversion.positions(flat, ("conv1",)))
    everything = inversion.positions(flat, inversion.SEEN["all"])
    assert everything.tolist() == list(range(flat.size))


@pytest.mark.slow
def test_an_image_is_had_from_one_early_layer() -> None:
    """By an attacker who knows all weights; by one who knows those of that layer alone it is not.

    So a learngene's gradients show samples, whatever its size.
    """
    inputs, labels = digits().inputs[5:6], digits().labels[5:6]
    flat = FlatNetwork(inversion.network(0), cross_entropy)
    at = inversion.positions(flat, ("conv1",))
    seen = flat.gradient(inputs, labels)[at]
    found = []
    for error in (0.0, None):
        attacker = inversion.believed(inversion.network(0), ("conv1",), error, 0)
        guess = inversion.search(FlatNetwork(attacker, cross_entropy), seen, at, labels, 60, 0)
        found.append(inversion.quality(guess, inputs))
    assert found[0] >= inversion.LEAST
    assert found[1] < 15


# --- privacy --------------------------------------------------------------------------------------


def test_few_samples_are_recognised_and_many_are_not() -> None:
    """Three samples span three directions; a hundred hide in one."""
    drawn, labels = images("digits", 0)
    x = drawn.reshape(len(drawn), -1).astype(np.float64)
    own = np.flatnonzero(labels == 4)
    areas = [
        privacy.membership_area(
            fitted(x[own[:count]], labels[own[:count]], rank=rank),
            x, labels, own[:count], own[count : count + 60],
        )
        for count, rank in ((3, 3), (100, 1))
    ]  # fmt: skip
    assert areas[0] > 0.98
    assert areas[1] < 0.65


def test_a_secret_rotation_is_undone() -> None:
    """The mean samples that it hid are back, so it is not offered as privacy."""
    hidden, back = turned_back("digits", 0)
    assert hidden < 0.3
    assert back > 0.8
