"""Records of the finding index, and the feed that it follows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

__all__ = [
    "AFTER_HUBS",
    "Candidate",
    "Changed",
    "Damaged",
    "Described",
    "Examined",
    "Feed",
    "Found",
    "Keys",
    "Sizes",
]

Keys = npt.NDArray[np.uint64]

AFTER_HUBS: Final = 1 << 61
"""What is added to the rank of a fingerprint that a client stated."""


def _no_keys() -> Keys:
    return np.zeros(0, np.uint64)


class Damaged(Exception):
    """What is stored of an index is not what was written: cut, overwritten, foreign or gone."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A fingerprint that changed, in its present state.

    Attributes:
        version: that of the tenant's feed with its last change.
        rank: its place among the holders of a key, of which only the first are listed: microseconds
            of its date, and those that clients stated come after all that the service read itself.
        scale: the binary logarithm of the scale of its finding keys.
        lines: the distinct lines of each length in the whole checkpoint.
        keys: the finding keys: each once, ascending.
    """

    id: int
    version: int
    rank: int
    scale: int
    lines: Mapping[int, int]
    keys: Keys = field(repr=False)


@dataclass(frozen=True, slots=True)
class Described:
    """What tells how many keys a stranger in the place of a fingerprint would have.

    Attributes:
        version: that of the tenant's feed with its last change.
        scale: the binary logarithm of the scale of its finding keys.
        lines: the distinct lines of each length in the whole checkpoint.
    """

    version: int
    scale: int
    lines: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Examined:
    """What is read of a candidate to tell its kin.

    Attributes:
        version: that of the tenant's feed with its last change.
        base_models: the names of the models that it is said to be made from.
    """

    id: int
    version: int
    scale: int
    lines: Mapping[int, int]
    keys: Keys = field(repr=False)
    base_models: tuple[str, ...] = ()


class Feed(Protocol):
    """The fingerprints of a tenant, as one transaction sees them.

    Attributes:
        version: that of the last change; 0 before the first.
        compacted_version: the version up to which removals may be forgotten; an index of an earlier
            version has to start again.
        fingerprints: how many there are.
    """

    @property
    def version(self) -> int: ...

    @property
    def compacted_version(self) -> int: ...

    @property
    def fingerprints(self) -> int: ...

    def changed_since(self, since: int) -> Iterable[Sequence[Changed]]:
        """The fingerprints that changed after ``since``, in pages, each once, by version."""

    def removed_since(self, since: int) -> Sequence[int]:
        """The ids of the fingerprints that were removed after ``since``."""

    def examine(self, ids: Collection[int]) -> Mapping[int, Examined]:
        """What is read of existing fingerprints, by id."""

    def described(self, ids: Collection[int]) -> Mapping[int, Described]:
        """What tells chance of existing fingerprints, by id."""

    def named(self, names: Collection[str]) -> Sequence[int]:
        """The ids of the fingerprints of some model names."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fingerprint that has more keys in common with another than chance explains.

    Attributes:
        keys: how many finding keys they have in common, without the common ones, and in a later
            round without those of the families of earlier rounds.
        log10_p: the decimal logarithm of the probability of so many by chance.
        round: 1 for the nearest and what is near them; each further round is asked without the keys
            of the first of the round before, and of all its kin, that no stranger to it has.
    """

    id: int
    keys: int
    log10_p: float
    round: int


@dataclass(frozen=True, slots=True)
class Found:
    """The candidates of a fingerprint, by round, and in each the least probable first.

    Attributes:
        truncated: some keys have more holders than are listed, or the time was over: others may be
            kin as well, and are found through these.
        common: how many of its keys are common: held by three models or more of which no two have
            anything else in common. They make nobody kin.
        compared: the fingerprints of the tenant with which it was compared.
        degraded: the shared index was away, wholly or in part: what was found is right, and some
            kin may be missing.
        common_keys: the common ones.
        sharing: how many of them some of their other holders have, by id: of those whose keys were
            read to tell what is common.
    """

    candidates: tuple[Candidate, ...]
    truncated: bool
    common: int
    compared: int
    degraded: bool = False
    common_keys: Keys = field(default_factory=_no_keys, repr=False, compare=False)
    sharing: Mapping[int, int] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of an index on a disk, as a process has it open.

    Attributes:
        version: that of the tenant's feed which it has reached.
        fingerprints: how many it has.
        segments: on the disk and in memory.
        nbytes: those of all segments.
    """

    version: int
    fingerprints: int
    segments: int
    nbytes: int
