"""A feed in memory, and fingerprints of made keys: bases, their children, and strangers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.fingerprints.finding.records import Changed, Described, Examined, Keys
from app.fingerprints.finding_keys import coarse_end
from modelkin.core.fingerprints.fingerprint import Fingerprint

__all__ = ["LENGTH", "Hub", "fingerprint", "keys"]

LENGTH = 1024
"""The length of all lines."""


def keys(draw: np.random.Generator, count: int, scale: int = 16) -> Keys:
    """Distinct keys of lines at a scale, ascending."""
    return np.unique(draw.integers(0, (2**64 - 1) // scale, count, np.uint64, endpoint=True))


def fingerprint(held: Keys, scale: int = 16, *, lines: int | None = None) -> Fingerprint:
    """A fingerprint with these keys."""
    held = np.unique(held)
    total = held.size * scale if lines is None else lines
    return Fingerprint(
        scale,
        (),
        {LENGTH: total},
        held,
        np.zeros(held.size, np.uint32),
        np.full(held.size, LENGTH, np.uint32),
    )


@dataclass
class Hub:
    """The fingerprints of a tenant, as its feed says them."""

    version: int = 0
    compacted_version: int = 0
    page: int = 100
    changed: dict[int, Changed] = field(default_factory=dict)
    removed: dict[int, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    bases: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def fingerprints(self) -> int:
        """How many there are."""
        return len(self.changed)

    def put(self, id_: int, held: Fingerprint, *, rank: int | None = None) -> None:
        """Store a fingerprint, or another in its place."""
        scale, found = coarse_end(held)
        self.version += 1
        place = id_ if rank is None else rank
        self.changed[id_] = Changed(
            id_, self.version, place, scale.bit_length() - 1, dict(held.lines), found
        )

    def remove(self, id_: int) -> None:
        """Remove one."""
        self.version += 1
        del self.changed[id_]
        self.removed[self.version] = id_

    def changed_since(self, since: int) -> Iterator[Sequence[Changed]]:
        """Those that changed, by version."""
        found = sorted(
            (each for each in self.changed.values() if each.version > since),
            key=lambda each: each.version,
        )
        for at in range(0, len(found), self.page):
            yield found[at : at + self.page]

    def removed_since(self, since: int) -> list[int]:
        """The ids of those that were removed."""
        return [id_ for version, id_ in self.removed.items() if version > since]

    def examine(self, ids: Collection[int]) -> dict[int, Examined]:
        """What is read of existing ones."""
        return {
            each.id: Examined(
                *(each.id, each.version, each.scale, each.lines, each.keys),
                self.bases.get(each.id, ()),
            )
            for each in map(self.changed.get, ids)
            if each is not None
        }

    def described(self, ids: Collection[int]) -> dict[int, Described]:
        """What tells chance of existing ones."""
        found = ((id_, self.changed.get(id_)) for id_ in ids)
        return {id_: Described(each.version, each.scale, each.lines) for id_, each in found if each}

    def named(self, names: Collection[str]) -> list[int]:
        """The ids of some names."""
        return [self.names[name] for name in names if name in self.names]
