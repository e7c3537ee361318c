"""What a cell of a study is made of: data, network, split, clients and seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DATA", "DIRICHLET", "NETWORKS", "PATHOLOGICAL", "SPLITS", "TUNING_SEEDS", "Setting"]

DATA: Final = ("digits", "synthetic")
NETWORKS: Final = ("cnn", "two layers", "mlp")
DIRICHLET: Final = ("Dir(0.1)", "Dir(0.3)")
PATHOLOGICAL: Final = ("Patho(20%)", "Patho(30%)")
SPLITS: Final = (*DIRICHLET, *PATHOLOGICAL, "IID")
TUNING_SEEDS: Final = (100, 101, 102)
"""Baselines are tuned on these, and no table uses them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One federation, the same at each run.

    Attributes:
        data: one of :data:`DATA`.
        network: one of :data:`NETWORKS`.
        split: one of :data:`SPLITS`.
        clients: N.
        seed: of the split, the common weights and the training.
        samples: n, of each client, for synthetic data; 0 for all that the data have.
    """

    data: str = "digits"
    network: str = "cnn"
    split: str = "Dir(0.1)"
    clients: int = 40
    seed: int = 0
    samples: int = 0

    @property
    def name(self) -> str:
        """Such as ``digits-cnn-dir01-40-0``, for files and spaces."""
        words = [self.data, self.network, self.split, str(self.clients), str(self.seed)]
        words += [str(self.samples)] if self.samples else []
        return "-".join("".join(c for c in word.lower() if c.isalnum()) for word in words)
