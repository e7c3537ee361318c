"""Sketches outside gaps: of the coordinates of a sample, those that are compared."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from app.models.index.sketch_file import SketchFile
from app.models.index.sketch_heads import SAMPLE_SEED, SAMPLE_SIZE
from modelkin.core.gaps import Gaps
from modelkin.core.sketching.sketch import Sketch, coordinates

__all__ = ["SketchesOutside"]

Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class SketchesOutside:
    """The sketches of a space, counted outside gaps.

    A model's members in the gaps are counted like those that it shares, by a sketch that holds all
    of the gaps; so the file is read twice.

    Args:
        file: the sketches.
        num_parameters: M of the space.
        gaps: what is left out.
    """

    def __init__(self, file: SketchFile, num_parameters: int, gaps: Gaps) -> None:
        self._file = file
        self._inside = _sketch_of(num_parameters, gaps)

    def cut(self, sketch: Sketch) -> Sketch:
        """A sketch of the space without its members in the gaps."""
        return _like(sketch, sketch.words & ~self._inside.words)

    def counts(self, sketch: Sketch, ids: Ids, contents: Ids, *, coarse: bool = False) -> Ids:
        """Shared and own members outside the gaps, as :meth:`SketchFile.counts` gives them.

        Args:
            sketch: a sketch that :meth:`cut` returned.
            ids: the ids of models.
            contents: the present content id of each.
            coarse: whether to count in a quarter of the sample.
        """
        found = self._file.counts(sketch, ids, contents, coarse=coarse)
        inside = self._file.counts(self._inside, ids, contents, coarse=coarse)
        known = (found[:, 0] >= 0) & (inside[:, 0] >= 0)
        found[:, 1] -= inside[:, 0]
        found[~known] = -1
        return found

    def members(self, sketch: Sketch, *, coarse: bool = False) -> int:
        """The number of members that :meth:`counts` compares of a sketch that was cut."""
        return self._file.members(sketch, coarse=coarse)


@lru_cache(maxsize=64)
def _sketch_of(num_parameters: int, gaps: Gaps) -> Sketch:
    """The sketch of a support that would hold all of the gaps."""
    if num_parameters <= SAMPLE_SIZE:
        sampled = np.arange(SAMPLE_SIZE, dtype=np.uint64)
    else:
        sampled = coordinates(num_parameters, SAMPLE_SIZE, SAMPLE_SEED).astype(np.uint64)
    edges = np.array(gaps.ranges, np.uint64).ravel()
    inside = np.searchsorted(edges, sampled, side="right") % 2 == 1
    words = np.packbits(inside, bitorder="little").view(np.uint64)
    return Sketch(
        words,
        size=SAMPLE_SIZE,
        seed=SAMPLE_SEED,
        num_parameters=num_parameters,
        support_size=max(1, gaps.size),
    )


def _like(sketch: Sketch, words: Words) -> Sketch:
    return Sketch(
        words,
        size=sketch.size,
        seed=sketch.seed,
        num_parameters=sketch.num_parameters,
        support_size=sketch.support_size,
    )
