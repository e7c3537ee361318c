"""Newcomers of clusters of unlike sizes: which are placed right, and who is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import adjusted_rand_score
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from demo.starts import train
from modelkin import Signature, Support, select_support
from modelkin.torch import fisher_importance
from studies.cells import Figures
from studies.hub import Hub, HubSpace
from studies.networks.small import common_model
from studies.samples import samples_of
from studies.settings import Setting, grid

__all__ = [
    "EPOCHS",
    "FOREIGN",
    "IMAGES",
    "JUDGED",
    "KIN",
    "NAME",
    "NETWORKS",
    "SIZES",
    "STRANGERS",
    "TRAINED",
    "figures",
    "row",
    "settings",
]

NAME: Final = "newcomers"
NETWORKS: Final = ("cnn", "mlp")
SIZES: Final = ((7, 7, 3), (5, 5, 4), (12, 12, 2), (30, 30, 3))
"""Clients whose images are turned by 0, 90 and 180 degrees."""
IMAGES: Final = (100, 40)
"""The images of each client."""
KIN: Final = ("kin with 100 images", "kin with 40 images", "kin with 15 images")
FOREIGN: Final = ("images of noise", "other first weights", "images turned by 270 degrees")
TRAINED: Final = "kin at weights trained alone"
STRANGERS: Final = (*KIN, *FOREIGN, TRAINED)
JUDGED: Final = ("placed", "placed with a note")
"""The figures of each of these kinds of newcomers."""

_SEEDS: Final = 6
_NEWCOMERS: Final = 6
"""The newcomers of each group."""
_COVERAGE: Final = 0.8
EPOCHS: Final = 5
"""The epochs of training alone."""
Importance = npt.NDArray[np.float32]
Images = npt.NDArray[np.float32]


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Turned images and two networks; the number of clients is that of the first sizes."""
    del network
    for each in NETWORKS:
        yield from grid(seeds[:_SEEDS], data, each, ("rotations",), sum(SIZES[0]))


def row(sizes: Sequence[int], images: int) -> str:
    """The name of a row."""
    return f"{', '.join(map(str, sizes))} clients of {images} images"


def figures(setting: Setting, hub: Hub) -> Figures:
    """The share of newcomers placed right by sizes, and the share placed at all by who they are."""
    found: Figures = {}
    for sizes in SIZES:
        for images in IMAGES:
            clients = _Clients(setting)
            with clients.clustered(hub, sizes, images) as space:
                found[row(sizes, images)] = clients.placed(space, images)
                if (sizes, images) == (SIZES[0], IMAGES[0]):
                    found |= clients.strangers(space)
    return found


class _Clients:
    """Clients drawn one after the other, at common weights.

    Args:
        setting: of the images, the network and the seed.
    """

    def __init__(self, setting: Setting) -> None:
        samples = samples_of(setting)
        values = samples.values.astype(np.float32)
        self._images: Images = (values - values.mean()) / values.std()
        self._labels = samples.labels
        self._setting, self._classes = setting, samples.classes
        self._rng = np.random.default_rng([setting.seed, 7])
        self._model = self._network(setting.seed)
        self._k = 0
        self._cluster_of: Mapping[int, int] = {}  # that most clients of a group are in
        self._agreement = 0.0

    @contextmanager
    def clustered(self, hub: Hub, sizes: Sequence[int], images: int) -> Iterator[HubSpace]:
        """A space of clients of these groups, in as many clusters of the service's own."""
        turns = np.repeat(np.arange(len(sizes)), sizes)
        rows = [self._importance(*self._drawn(turn, images)) for turn in turns.tolist()]
        self._k = int(np.median([select_support(each, coverage=_COVERAGE).k for each in rows]))
        supports = {f"client-{n:02}": self._support(each) for n, each in enumerate(rows)}
        with hub.space(f"{self._setting.name}-newcomers", supports, rows[0].size) as space:
            labels = space.labels("agglomerative", len(sizes))
            self._agreement = float(adjusted_rand_score(turns, labels))
            self._cluster_of = {
                turn: Counter(labels[turns == turn].tolist()).most_common(1)[0][0]
                for turn in range(len(sizes))
            }
            yield space

    def placed(self, space: HubSpace, images: int) -> dict[str, float]:
        """The share placed right, by supports and by signatures; ARI of the clusters beside it."""
        right: dict[str, list[bool]] = {"supports": [], "signatures of 256": []}
        for turn in sorted(self._cluster_of) * _NEWCOMERS:
            support = self._support(self._importance(*self._drawn(turn, images)))
            sent: tuple[Support | Signature, ...] = support, support.signature(num_perm=256)
            for each, seen in zip(sent, right.values(), strict=True):
                seen.append(space.assigned(each).cluster == self._cluster_of[turn])
        shares = {name: float(np.mean(seen)) for name, seen in right.items()}
        return {**shares, "ARI of the clusters": self._agreement}

    def strangers(self, space: HubSpace) -> Figures:
        """The share of each kind of newcomer that is in some cluster, and that is with a note."""
        shares: Figures = {name: {} for name in JUDGED}
        for name, rows in zip(STRANGERS, self._kinds(), strict=True):
            answers = [space.assigned(self._support(each)) for each in rows]
            judged = [(each.cluster >= 0, each.note is not None) for each in answers]
            for what, share in zip(JUDGED, np.mean(judged, axis=0).tolist(), strict=True):
                shares[what][name] = share
        return shares

    def _kinds(self) -> Iterator[list[Importance]]:
        turns = sorted(self._cluster_of) * (_NEWCOMERS // 2)
        for images in (100, 40, 15):
            yield [self._importance(*self._drawn(turn, images)) for turn in turns]
        yield [self._importance(*self._noise(100)) for _ in turns]
        others = [self._network(1_000 + 10 * self._setting.seed + n) for n in range(len(turns))]
        yield [
            self._importance(*self._drawn(turn, 100), model)
            for turn, model in zip(turns, others, strict=True)
        ]
        yield [self._importance(*self._drawn(3, 100)) for _ in turns]
        yield [self._trained(*self._drawn(turn, 100)) for turn in turns]

    def _network(self, seed: int) -> nn.Sequential:
        return common_model(self._setting.network, self._images.shape[1:], self._classes, seed)

    def _drawn(self, turn: int, images: int) -> tuple[torch.Tensor, torch.Tensor]:
        own = self._rng.choice(len(self._labels), images, replace=False)
        turned = np.rot90(self._images[own], turn, axes=(-2, -1)).copy()
        return torch.as_tensor(turned), torch.as_tensor(self._labels[own])

    def _noise(self, images: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn = self._rng.normal(size=(images, *self._images.shape[1:])).astype(np.float32)
        labels = self._rng.integers(0, self._classes, images)
        return torch.as_tensor(drawn), torch.as_tensor(labels)

    def _importance(
        self, samples: torch.Tensor, labels: torch.Tensor, model: nn.Module | None = None
    ) -> Importance:
        loader = DataLoader(TensorDataset(samples, labels), batch_size=64)
        return np.asarray(fisher_importance(model or self._model, cross_entropy, loader).numpy())

    def _trained(self, samples: torch.Tensor, labels: torch.Tensor) -> Importance:
        """The importance at weights that were trained on the samples alone."""
        model = deepcopy(self._model)
        train(model, samples, labels, EPOCHS, self._setting.seed)
        return self._importance(samples, labels, model)

    def _support(self, importance: Importance) -> Support:
        return select_support(importance, k=self._k)
