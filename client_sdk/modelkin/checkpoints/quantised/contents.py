"""The tensors of a checkpoint on their way through the families, which take theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from modelkin.checkpoints.header import bad_checkpoint
from modelkin.checkpoints.quantised.statement import Statement, layers_in
from modelkin.checkpoints.quantised.tensor import QuantisedTensor
from modelkin.checkpoints.tensors import StoredTensor
from modelkin.core.quoting import quote
from modelkin.errors import InvalidCheckpoint

__all__ = ["REMEDY", "Contents", "Found", "refuse"]

REMEDY: Final = "give the checkpoint before quantisation"


@dataclass(frozen=True, slots=True)
class Found:
    """A quantised tensor among others.

    Attributes:
        name: its name before quantisation.
        parts: the tensors that it is computed from, its codes first.
        make: makes it; raises InvalidCheckpoint where its parts do not fit.
    """

    name: str
    parts: tuple[StoredTensor, ...]
    make: Callable[[], QuantisedTensor]


@dataclass(slots=True)
class Contents:
    """The tensors of a checkpoint, and what was found among them.

    Attributes:
        tensors: by name.
        statement: what the checkpoint says of its quantisation.
        found: the quantised tensors, by the names that they had.
        taken: the names of parts.
    """

    tensors: Mapping[str, StoredTensor]
    statement: Statement
    found: dict[str, Found] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    _layers: dict[Path, dict[str, bytes]] = field(default_factory=dict)

    def ending(self, suffix: str) -> Iterator[tuple[str, StoredTensor]]:
        """The tensors whose names end so and that none has taken, with what is before the end."""
        for name, tensor in self.tensors.items():
            if name.endswith(suffix) and name not in self.taken:
                yield name[: -len(suffix)], tensor

    def get(self, *names: str) -> StoredTensor | None:
        """The first of these that is there."""
        return next((self.tensors[name] for name in names if name in self.tensors), None)

    def layers(self, path: Path) -> dict[str, bytes]:
        """What the metadata of a file says of modules, as JSON, by their names."""
        if path not in self._layers:
            self._layers[path] = layers_in(path)
        return self._layers[path]

    def take(
        self,
        name: str,
        parts: Sequence[StoredTensor | None],
        make: Callable[[], QuantisedTensor],
        aside: Sequence[StoredTensor | None] = (),
    ) -> None:
        """Take the parts of a tensor.

        Args:
            name: its name before quantisation.
            parts: what it is computed from; None for what is missing and need not be there.
            make: as of :class:`Found`.
            aside: what says nothing of its values, such as scales of activations.
        """
        held = tuple(part for part in parts if part is not None)
        self.taken.update(part.name for part in held)
        self.taken.update(part.name for part in aside if part is not None)
        if name in self.found or (name in self.tensors and name not in self.taken):
            both = self.tensors.get(name, held[0])
            make = _twice(held[0], both)
        self.found[name] = Found(name, held, make)


def _twice(codes: StoredTensor, both: StoredTensor) -> Callable[[], QuantisedTensor]:
    def refused() -> QuantisedTensor:
        raise refuse(codes, f"the tensor that it packs is there a second time, {quote(both.name)}")

    return refused


def refuse(tensor: StoredTensor, what: str, remedy: str = REMEDY) -> InvalidCheckpoint:
    """The error that names a part and says what is wrong with it."""
    return bad_checkpoint(tensor.path.name, f"tensor {quote(tensor.name)}: {what}; {remedy}")
