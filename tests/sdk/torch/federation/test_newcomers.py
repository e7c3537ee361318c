"""A newcomer with 20 samples: what its start is worth after five epochs, on turned digits.

Three seeds, of which `make test` has one; clusters of five clients by rotation, trained by
federated averaging. After 40 rounds 20 newcomers have .64 with the kept trunk of their cluster, .38
from a random start, .28 with the trunk of another cluster, and .92 with the whole model before any
step. Here it is 20 rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from torch import nn

from demo.planted import GROUPS
from demo.starts import Newcomer, World, accuracy, network, train, world
from modelkin.torch import cut_learngene, inherit
from tests.support.repetitions import repetitions

pytestmark = pytest.mark.slow

SEEDS = range(repetitions(3, few=1))
EPOCHS = 5

Accuracies: TypeAlias = dict[str, float]


def accuracies(found: World, folder: Path, seed: int) -> Iterator[Accuracies]:
    """Of each newcomer by its start."""
    trunks = [
        cut_learngene(model, folder / f"{seed}-{group}.safetensors").path
        for group, model in enumerate(found.models)
    ]
    wholes = [
        cut_learngene(model, folder / f"{seed}-{group}-whole.safetensors", tensors=["*"]).path
        for group, model in enumerate(found.models)
    ]
    for at, newcomer in enumerate(found.newcomers):

        def fresh(number: int = at) -> nn.Sequential:
            return network(10_000 + 100 * seed + number)

        def trained(model: nn.Sequential, own: Newcomer = newcomer) -> float:
            train(model, own.samples, own.labels, EPOCHS, seed)
            return accuracy(model, own)

        kept, other, whole = fresh(), fresh(), fresh()
        inherit(kept, trunks[newcomer.group], keep=True)
        inherit(other, trunks[(newcomer.group + 1) % GROUPS], keep=True)
        inherit(whole, wholes[newcomer.group])
        yield {
            "random": trained(fresh()),
            "kept trunk": trained(kept),
            "another cluster's trunk": trained(other),
            "whole model, untrained": accuracy(whole, newcomer),
        }


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Accuracies:
    """The mean over newcomers and seeds."""
    folder = tmp_path_factory.mktemp("genes")
    every = [
        each
        for seed in SEEDS
        for each in accuracies(world(seed, rounds=20, num_newcomers=12), folder, seed)
    ]
    return {start: float(np.mean([each[start] for each in every])) for start in every[0]}


def test_a_kept_trunk_is_worth_more_than_a_random_start(measured: Accuracies) -> None:
    """By .15 after five epochs."""
    assert measured["kept trunk"] >= measured["random"] + 0.15


def test_the_trunk_of_another_cluster_is_not(measured: Accuracies) -> None:
    """The right cluster's is worth .15 more than it, so a wrong one does harm."""
    assert measured["kept trunk"] >= measured["another cluster's trunk"] + 0.15
    assert measured["another cluster's trunk"] < measured["random"]


def test_the_whole_model_of_the_right_cluster_needs_no_training(measured: Accuracies) -> None:
    """It is .8 right before any step."""
    assert measured["whole model, untrained"] >= 0.8
