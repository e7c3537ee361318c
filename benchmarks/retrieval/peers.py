"""Other indexes that find neighbours by signature, in this process: one class each, tuned well.

All get the same signatures. Indexes for MinHash get its values. Indexes for bits get the lowest
byte of every value, as modelkin's scan does, and rank by the fewest differing bits. LSH only
proposes, so its candidates are ranked by all values, in one numpy expression. One thread each.
Peers that are not installed are left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module, util
from typing import Any

import datasketch
import numpy as np
import numpy.typing as npt

from benchmarks.retrieval.planted_models import H
from modelkin.core.sketching.signature import jaccard_estimates

__all__ = [
    "BITS",
    "BY_JACCARD",
    "DATASKETCH",
    "DATASKETCH_WIDE",
    "FAISS",
    "K",
    "Datasketch",
    "Faiss",
    "Peer",
    "Rensa",
    "Usearch",
    "installed",
    "ranked",
]

Ids = npt.NDArray[np.int64]
Values = npt.NDArray[np.uint32]

K = 10
BITS = 8 * H
SEARCHED = 256
"""Search width of a graph (efSearch, expansion_search), and a tenth of the lists of an IVF."""

DATASKETCH = "datasketch MinHashLSH, 85 × 3"
DATASKETCH_WIDE = "datasketch MinHashLSH, 128 × 2"
BY_JACCARD = ", ranked by jaccard()"
FAISS = "faiss IndexBinaryFlat"


class Peer(ABC):
    """One index of n signatures.

    Attributes:
        name: in the tables.
        bytes_taken: the index's own figure; None where only the process shows it.
    """

    name: str
    bytes_taken: int | None = None

    def __init__(self, values: Values) -> None:
        """Convert the signatures to the peer's input, untimed."""
        self._values = values

    @abstractmethod
    def fill(self) -> None:
        """Store all signatures, row i as i."""

    @abstractmethod
    def question(self, values: Values) -> Any:
        """Convert a signature to the peer's query, untimed."""

    @abstractmethod
    def ask(self, question: Any) -> Ids:
        """The ``K`` nearest models found, best first."""

    def close(self) -> None:  # noqa: B027 - most hold only memory
        """Release resources other than memory."""


def ranked(values: Values, found: Ids, query: Values) -> Ids:
    """The best candidates of LSH, by all values."""
    best = np.argsort(-jaccard_estimates(values[found], query), kind="stable")
    return found[best[:K]]


class Datasketch(Peer):
    """MinHashLSH in dictionaries, its documented default storage."""

    def __init__(self, values: Values, bands: int, rows: int) -> None:
        super().__init__(values)
        self.name = f"datasketch MinHashLSH, {bands} × {rows}"
        self._index = datasketch.MinHashLSH(num_perm=H, params=(bands, rows))
        self._made = [self._minhash(row) for row in values]

    def fill(self) -> None:
        for number, minhash in enumerate(self._made):
            self._index.insert(number, minhash, check_duplication=False)

    def question(self, values: Values) -> Any:
        return self._minhash(values), values

    def ask(self, question: Any) -> Ids:
        minhash, values = question
        return ranked(self._values, np.array(self._index.query(minhash), np.int64), values)

    def ask_by_jaccard(self, question: Any) -> Ids:
        """The same, ranked as documented: one ``jaccard`` after the other."""
        minhash, _ = question
        found = self._index.query(minhash)
        found.sort(key=lambda number: -self._made[number].jaccard(minhash))
        return np.array(found[:K], np.int64)

    @staticmethod
    def _minhash(values: Values) -> Any:
        return datasketch.LeanMinHash(seed=1, hashvalues=values, scheme="affine32")


class Rensa(Peer):
    """RMinHashLSH. Its signatures accept values only through their pickled state, five bytes each:
    so the highest bit of every value is set.
    """

    def __init__(self, values: Values, bands: int) -> None:
        rensa: Any = import_module("rensa")
        super().__init__(values)
        self.name = f"rensa RMinHashLSH, {bands} × {H // bands}"
        self._new: Any = lambda: rensa.RMinHash(num_perm=H, seed=1)
        empty = self._new().__getstate__()
        self._head = empty[: empty.index(b"\xff\xff\xff\xff\x0f")]
        # The threshold has no effect when bands are given.
        self._index = rensa.RMinHashLSH(threshold=0.5, num_perm=H, num_bands=bands)
        self._made = self._minhashes(values)

    def fill(self) -> None:
        self._index.insert_many(self._made, 0)

    def question(self, values: Values) -> Any:
        return self._minhashes(values[None])[0], values

    def ask(self, question: Any) -> Ids:
        minhash, values = question
        return ranked(self._values, np.array(self._index.query(minhash), np.int64), values)

    def _minhashes(self, values: Values) -> list[Any]:
        wide = values | np.uint32(1 << 31)
        parts = np.empty((*values.shape, 5), np.uint8)  # seven bits each, the lowest first
        for place in range(5):
            more = 128 if place < 4 else 0
            parts[..., place] = ((wide >> np.uint32(7 * place)) & np.uint32(127)) | np.uint32(more)
        made = []
        for row in parts:
            minhash = self._new()
            minhash.__setstate__(self._head + row.tobytes())
            made.append(minhash)
        return made


class Faiss(Peer):
    """Binary indexes: every row, a graph, or an inverted file.

    Args:
        kind: ``flat``, ``hnsw`` or ``ivf``.
    """

    def __init__(self, values: Values, kind: str) -> None:
        faiss: Any = import_module("faiss")
        super().__init__(values)
        faiss.omp_set_num_threads(1)
        self._bytes = values.astype(np.uint8)
        self._index: Any
        if kind == "flat":
            self.name = FAISS
            self._index = faiss.IndexBinaryFlat(BITS)
        elif kind == "hnsw":
            self.name = "faiss IndexBinaryHNSW, M = 32"
            self._index = faiss.IndexBinaryHNSW(BITS, 32)
            self._index.hnsw.efSearch = SEARCHED
        else:
            # faiss warns if a list learns from fewer than 39 signatures.
            lists = max(1, min(2 * round(len(values) ** 0.5), len(values) // 39))
            self.name = "faiss IndexBinaryIVF, 2 √n lists"
            self._coarse = faiss.IndexBinaryFlat(BITS)  # the index does not keep it alive
            self._index = faiss.IndexBinaryIVF(self._coarse, BITS, lists)
            self._index.nprobe = max(1, lists // 10)

    def fill(self) -> None:
        if not self._index.is_trained:
            self._index.train(self._bytes[: 39 * self._index.nlist])
        self._index.add(self._bytes)

    def question(self, values: Values) -> Any:
        return values.astype(np.uint8)[None]

    def ask(self, question: Any) -> Ids:
        found: Ids = self._index.search(question, K)[1][0]
        return found


class Usearch(Peer):
    """A graph over bits.

    Args:
        metric: ``hamming`` or ``tanimoto``.
    """

    def __init__(self, values: Values, metric: str) -> None:
        usearch: Any = import_module("usearch.index")
        super().__init__(values)
        self.name = f"usearch, b1, {metric}"
        self._bytes = values.astype(np.uint8)
        self._index = usearch.Index(ndim=BITS, metric=metric, dtype="b1", expansion_search=SEARCHED)

    def fill(self) -> None:
        self._index.add(np.arange(len(self._bytes)), self._bytes, threads=1)

    def question(self, values: Values) -> Any:
        return values.astype(np.uint8)

    def ask(self, question: Any) -> Ids:
        found: Ids = self._index.search(question, K, threads=1).keys.astype(np.int64)
        return found


def installed(module: str) -> bool:
    """Whether a peer can take part."""
    return util.find_spec(module) is not None
