"""A hub of made fingerprints: families of Zipf sizes, and strangers, as a feed would tell them.

No key is stored: those of a fingerprint are drawn again from its number. So a hub of millions takes
no memory beside the index that is measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from app.fingerprints.finding.records import Changed, Described, Examined, Keys
from modelkin.core.fingerprints.fingerprint import Fingerprint

__all__ = ["KEYS", "LENGTHS", "MadeHub"]

Ints = npt.NDArray[np.int64]

KEYS = 512
"""Finding keys of each fingerprint."""
LENGTHS = (768, 1024, 2048, 4096)
"""The lengths of lines; a family has two of them."""
_SCALES = range(3, 13)
_IN_FAMILIES = 0.7
"""The part of the hub that has kin in it."""


@dataclass(frozen=True, eq=False)
class MadeHub:
    """The feed of a hub.

    Attributes:
        models: how many fingerprints there are; their ids are 1 to so many.
        largest: the members of the largest family, its base included.
    """

    models: int
    largest: int
    seed: int = 0

    @cached_property
    def family_sizes(self) -> Ints:
        """The members of each family: the largest, then half, a third, and so on, 2 at least."""
        sizes = self.largest // np.arange(1, self.largest + 1)
        sizes = sizes[sizes >= 2]
        ends = np.cumsum(sizes)
        most = int(self.models * _IN_FAMILIES)
        sizes = sizes[: int(np.searchsorted(ends, most, "right"))]
        rest = most - int(sizes.sum())
        return np.concatenate([sizes, np.full(rest // 3, 3)]).astype(np.int64)

    @cached_property
    def family(self) -> npt.NDArray[np.int32]:
        """The family of each model, by its id; -1 of those that have none. The first is its base.

        A base comes before its children, and they come in any order among others.
        """
        sizes = self.family_sizes
        of = np.full(self.models + 1, -1, np.int32)
        places = np.random.default_rng(self.seed).permutation(np.arange(1, self.models + 1))
        of[places[: int(sizes.sum())]] = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
        return of

    @cached_property
    def base(self) -> npt.NDArray[np.int32]:
        """The id of the base of each family."""
        families, first = np.unique(self.family, return_index=True)
        found: npt.NDArray[np.int32] = first[families >= 0].astype(np.int32)
        return found

    def members(self, family: int) -> Ints:
        """The ids of a family, its base first."""
        return np.flatnonzero(self.family == family)

    def scale(self, model: int) -> int:
        """The binary logarithm of the scale: one a family."""
        return self._traits(self.root(model))[0]

    def lines(self, model: int) -> dict[int, int]:
        """The lines by length: half of each of two lengths, one set of two a family."""
        scale, lengths = self._traits(self.root(model))
        return dict.fromkeys(lengths, KEYS // 2 << scale)

    def root(self, model: int) -> int:
        """The base of a model; itself if it has none."""
        family = int(self.family[model])
        return model if family < 0 else int(self.base[family])

    def keys(self, model: int) -> Keys:
        """The finding keys of a model.

        A child has from 6% to 96% of its base's: fine-tunes mostly, and some heavy ones.
        """
        root = self.root(model)
        draw = np.random.Generator(np.random.PCG64([self.seed, model]))
        if root == model:
            return np.sort(self._drawn(draw, root, KEYS))
        kept = draw.random(KEYS) < 0.06 + 0.9 * draw.beta(2, 1.5)
        held = _cached_keys(self, root)[kept]
        return np.sort(np.concatenate([held, self._drawn(draw, root, KEYS - held.size)]))

    def fingerprint(self, model: int) -> Fingerprint:
        """The fingerprint of a model, with no more than its finding keys."""
        return self.of(self.keys(model), model)

    def of(self, keys: Keys, model: int) -> Fingerprint:
        """A fingerprint of some keys, with the lines and the scale of a model."""
        found, scale = np.unique(keys), 1 << self.scale(model)
        owners, lengths = np.zeros(found.size, np.uint32), np.zeros(found.size, np.uint32)
        return Fingerprint(scale, (), self.lines(model), found, owners, lengths)

    # --- the feed -----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Each model was put once."""
        return self.models

    @property
    def compacted_version(self) -> int:
        """Nothing was removed."""
        return 0

    @property
    def fingerprints(self) -> int:
        """All of them."""
        return self.models

    def changed_since(self, since: int) -> Iterator[Sequence[Changed]]:
        """The models by their ids, which are their versions and ranks, too."""
        for begin in range(since + 1, self.models + 1, 1024):
            yield [
                Changed(each, each, each, self.scale(each), self.lines(each), self.keys(each))
                for each in range(begin, min(begin + 1024, self.models + 1))
            ]

    def removed_since(self, since: int) -> list[int]:
        """None: every version is that of a model."""
        return [version for version in range(since + 1, self.version + 1) if version > self.models]

    def examine(self, ids: Collection[int]) -> dict[int, Examined]:
        """What is read of models."""
        return {
            each: Examined(
                *(each, each, self.scale(each), self.lines(each), self.keys(each)),
                (str(self.root(each)),) if each % 2 and self.root(each) != each else (),
            )
            for each in ids
        }

    def described(self, ids: Collection[int]) -> dict[int, Described]:
        """What tells chance of models."""
        return {each: Described(each, self.scale(each), self.lines(each)) for each in ids}

    def named(self, names: Collection[str]) -> list[int]:
        """The bases of children, which every other one declares."""
        return [int(name) for name in names]

    # --- parts --------------------------------------------------------------------------------

    def _drawn(self, draw: np.random.Generator, root: int, count: int) -> Keys:
        last = (2**64 - 1) >> self._traits(root)[0]
        return draw.integers(0, last, count, np.uint64, endpoint=True)

    def _traits(self, base: int) -> tuple[int, tuple[int, int]]:
        mixed = (base * 0x9E3779B97F4A7C15) >> 20
        scale = _SCALES[mixed % len(_SCALES)]
        first = (mixed >> 8) % len(LENGTHS)
        return scale, (LENGTHS[first], LENGTHS[(first + 1) % len(LENGTHS)])


@lru_cache(maxsize=4096)
def _cached_keys(hub: MadeHub, base: int) -> Keys:
    return hub.keys(base)
