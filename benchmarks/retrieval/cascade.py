"""modelkin's search for the kin of a model: index and stages of the service, without a database.

The module ``http`` measures the cost of database, HTTP and client.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.models.index.cascade import (
    comparison_size,
    estimate,
    scan_size,
    select_candidates,
    similarity_from_matches,
)
from app.models.index.scan import ScanCandidates
from app.models.index.sketch_file import SketchFile
from app.models.index.sketch_heads import SAMPLE_SEED, SAMPLE_SIZE
from app.models.index.space_index import ChangedModels, Snapshot, SpaceIndex
from benchmarks.retrieval.planted_models import DENSITY, NEAR, H, Kin, Members, bits
from modelkin.core.packed import PackedSupport, packed_shared_count
from modelkin.core.sketching.signature import jaccard_estimates
from modelkin.core.sketching.sketch import Sketch
from modelkin.types.spaces import SignatureSpec

__all__ = ["BITMAPS", "M", "SLOTS", "Cascade", "Supports"]

Ids = npt.NDArray[np.int64]
Values = npt.NDArray[np.uint32]

M = 11_000_000
K = 10
SLOTS = 30_000
"""Distinct sketches of unrelated models, shared by further ones: 250 MB, beyond any cache."""
BITMAPS = 100
"""Bitmaps of supports, 138 MB: each stands for many models."""
BATCH_SIZE = 5_000


class Supports:
    """Bitmaps for timing exact overlaps; the overlaps themselves have no meaning.

    Args:
        words: of each, 64 parameters to a word.
    """

    def __init__(self, words: int = -(-M // 64)) -> None:
        rows = bits(np.random.default_rng(1), DENSITY, BITMAPS + 1, words)
        sizes = np.bitwise_count(rows).sum(axis=1, dtype=np.int64).tolist()
        self._packed = [
            PackedSupport(row, 64 * words, k) for row, k in zip(rows, sizes, strict=True)
        ]

    def overlap(self, ids: Ids) -> list[int]:
        """The exact overlap of one support with those of some models."""
        query, others = self._packed[-1], self._packed
        return [packed_shared_count(query, others[model_id % BITMAPS]) for model_id in ids.tolist()]


class Cascade:
    """The index of a space of simulated models, and the stages of a query.

    Args:
        folder: for the file of sketches.
    """

    def __init__(self, kin: Kin, folder: Path) -> None:
        self._values = kin.values
        self._asked = kin.queries
        self._index = SpaceIndex(SignatureSpec(num_perm=H))
        self._snapshot = self._index.snapshot_at(0, _Feed(self._values))
        self._sketches, self._queries = _sketches(kin, folder)

    def fill(self) -> Snapshot:
        """Load all models, as a service does at start."""
        self._snapshot = self._index.snapshot_at(1, _Feed(self._values))
        return self._snapshot

    def by_bytes(self, query: int, count: int = K) -> Ids:
        """The scan alone: the models that share most bytes, best first."""
        found = self._snapshot.candidates(self._asked[query], count)
        return found.ids[np.lexsort((found.ids, -found.matches))]

    def by_values(self, query: int) -> Ids:
        """For signatures alone: the scan, then all values of the best models."""
        ids = self._best(query, None, comparison_size(K, exactly=False, sketched=False))
        return ids[np.argsort(-jaccard_estimates(self._values[ids], self._asked[query]))][:K]

    def by_sketches(self, query: int) -> Ids:
        """The scan, then sketches of its candidates: the models to compare exactly, best first."""
        count = comparison_size(K, exactly=True, sketched=True)
        return self._best(query, self._queries[query], count)

    def proposed(self, query: int) -> Ids:
        """The candidates of the scan."""
        return self._proposed(query).ids

    def close(self) -> None:
        """Close the file."""
        self._sketches.close()

    def _proposed(self, query: int) -> ScanCandidates:
        return self._snapshot.candidates(self._asked[query], scan_size(len(self._snapshot), K))

    def _best(self, query: int, sketch: Sketch | None, count: int) -> Ids:
        found = self._proposed(query)
        similarity = similarity_from_matches(found.matches, H)
        estimates = estimate(
            found.ids, found.contents, similarity, sketch, self._sketches, num_perm=H
        )
        chosen = select_candidates(estimates, K, count)
        return np.concatenate([chosen.ids, chosen.tied[: chosen.tied_places]])


class _Feed:
    """A change feed of all models, page by page, in place of the database."""

    compacted_version = 0

    def __init__(self, values: Values) -> None:
        self._values, self.models = values, len(values)

    def changed_since(self, since: int) -> Iterable[ChangedModels]:
        del since
        for begin in range(0, len(self._values), BATCH_SIZE):
            page = self._values[begin : begin + BATCH_SIZE]
            ids = np.arange(begin, begin + len(page))
            yield ChangedModels(ids, ids + 1, page.tobytes())

    def removed_since(self, since: int) -> Iterable[int]:
        del since
        return ()


class _Reused(SketchFile):
    """Fewer slots than models: the kin of queries have their own, the others share."""

    def __init__(self, path: Path, slots: Ids) -> None:
        super().__init__(path, M)
        self._slot_of = slots

    def counts(self, sketch: Sketch, ids: Ids, contents: Ids, *, coarse: bool = False) -> Ids:
        del contents  # every slot has the same content
        slots = self._slot_of[ids]
        return super().counts(sketch, slots, slots + 1, coarse=coarse)


def _sketches(kin: Kin, folder: Path) -> tuple[SketchFile, list[Sketch]]:
    """The file of the models' sketches, and the sketches of the queries."""
    n, members = len(kin.values), Members(kin.background, SAMPLE_SIZE // 64)
    shared = min(n, SLOTS)
    slots = np.arange(n) % shared
    slots[kin.near.ravel()] = shared + np.arange(kin.near.size)
    file = _Reused(folder / f"{kin.background.name}-{n}.sketches", slots)
    for slot in range(shared):
        file.write(slot, slot + 1, _sketch(members.unrelated(1)[0]))
    queries = []
    for query in range(len(kin.queries)):
        words = members.unrelated(1)[0]
        queries.append(_sketch(words))
        for place, row in enumerate(members.kin(words)):
            slot = shared + query * NEAR + place
            file.write(slot, slot + 1, _sketch(row))
    return file, queries


def _sketch(words: npt.NDArray[np.uint64]) -> Sketch:
    return Sketch(
        words,
        size=SAMPLE_SIZE,
        seed=SAMPLE_SEED,
        num_parameters=M,
        support_size=round(DENSITY * M),
    )
