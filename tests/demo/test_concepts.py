"""Groups of concepts: supports distinguish models of the same digits under different labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from app.kinship.clustering.pipeline import cluster_models
from app.kinship.clustering.request import ALGORITHMS, ClusteringRequest
from app.kinship.clustering.snapshot import Snapshot
from demo import data, training
from modelkin import Support, select_support
from modelkin.core.clustering.clustering import agreement
from modelkin.core.packed import PackedSupport
from modelkin.torch import fisher_importance
from tests.support.models.space_records import space_record
from tests.support.signatures import value_rows

CLIENTS, DIGITS_EACH, CONCEPTS = 20, 8, 4


@pytest.fixture(scope="module")
def clients() -> tuple[list[Support], npt.NDArray[np.int64]]:
    """Supports of clients that hold the same number of each digit, and each one's concept: which
    class it calls which digit.
    """
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    split = data.load_split()
    model = training.common_model()
    names = [np.arange(data.CLASSES), *(rng.permutation(data.CLASSES) for _ in range(CONCEPTS - 1))]
    by_digit = [rng.permutation(np.flatnonzero(split.labels == c)) for c in range(data.CLASSES)]
    concepts = np.arange(CLIENTS) % CONCEPTS
    supports = []
    for client, concept in enumerate(concepts):
        own = slice(client * DIGITS_EACH, (client + 1) * DIGITS_EACH)
        samples = np.concatenate([digits[own] for digits in by_digit])
        images = torch.as_tensor(split.images[samples])
        labels = torch.as_tensor(names[concept][split.labels[samples]])
        loader = DataLoader(TensorDataset(images, labels), batch_size=80)
        importance = fisher_importance(model, cross_entropy, loader)
        supports.append(select_support(importance, fraction=0.1))
    return supports, concepts


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_concepts_are_found_where_histograms_tell_nothing(
    clients: tuple[list[Support], npt.NDArray[np.int64]], algorithm: str
) -> None:
    """All clients have one label histogram, and the clusters of supports are their concepts."""
    supports, concepts = clients
    snapshot = Snapshot(
        plan=ClusteringRequest(algorithm).resolve(CLIENTS),
        space=space_record(supports[0].num_parameters),
        names=tuple(f"client-{number:02d}" for number in range(CLIENTS)),
        values=value_rows([support.signature() for support in supports]),
        supports=tuple(PackedSupport.pack(support) for support in supports),
    )
    found = cluster_models(snapshot, lambda _done, _total, _stage="": None)
    assert 1.0 == agreement(concepts, found.labels)
