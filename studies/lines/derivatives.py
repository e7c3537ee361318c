"""A derivative: what was made of a base, and where each of its tensors comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from studies.lines.zoo import Tensors

__all__ = ["Derivative", "Origins"]

Origins = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Derivative:
    """A checkpoint that was made of a base.

    Attributes:
        name: what was done.
        tensors: its weights.
        origins: of each tensor that has not the name that it had in the base, the names of those
            that its lines are of; none for new ones.
    """

    name: str
    tensors: Tensors
    origins: Origins = field(default_factory=dict)

    def origins_of(self, names: tuple[str, ...]) -> Iterator[str]:
        """The tensors of the base that a tensor may be found in.

        Args:
            names: all of the tensor's, as equal tensors are one.
        """
        for name in names:
            yield from self.origins.get(name, (name,))
