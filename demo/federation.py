"""The federation of the demo: its clients, their data, and the model that all clients received."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from demo import data
from demo.report import describe_mix

__all__ = ["Federation"]


@dataclass(frozen=True)
class Federation:
    """The clients with their data, and the model that all clients received."""

    seed: int
    space: str
    split: data.Split
    model: nn.Module
    names: tuple[str, ...]

    @cached_property
    def divergences(self) -> data.Floats:
        return data.jensen_shannon(self.split.mixes)

    def digits(self, client: int) -> str:
        return describe_mix(self.split.mixes[client])

    def attributes(self, name: str) -> dict[str, Any]:
        """The digits of a client: the most frequent one, and how many of each."""
        client = self.number(name)
        counts = self.split.counts[client]
        return {
            "digit": int(counts.argmax()),
            "mix": self.digits(client),
            "counts": {str(digit): int(count) for digit, count in enumerate(counts) if count},
        }

    def number(self, name: str) -> int:
        return self.names.index(name)
