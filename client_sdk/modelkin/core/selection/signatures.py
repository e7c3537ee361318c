"""``select_signature``: the signature of what an importance selects, without its indices.

A selection is a threshold. Whether an index is selected is read from its entry, and a signature
reads some thousand entries (``modelkin.core.sketching.minima``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.reference.probes import first_members
from modelkin.core.selection.decision import Segment, decide
from modelkin.core.selection.origins import prepare
from modelkin.core.selection.request import SelectionOptions, SelectionRequest
from modelkin.core.sketching.probe_tables import Table
from modelkin.core.sketching.schemes import ValueArray, check_permutations
from modelkin.core.sketching.signature import Signature
from modelkin.errors import SpaceMismatch

__all__ = ["SelectedMembers", "select_signature"]


def select_signature(
    importance: Any,
    *,
    num_perm: int = 256,
    seed: int = 1,
    scheme: str | None = None,
    **how: Unpack[SelectionOptions],
) -> Signature:
    """``select_support(importance, **how).signature(num_perm, seed, scheme)``, without the indices.

    Args:
        importance: as for :func:`modelkin.select_support`; a tensor on a CUDA device is read there,
            and only histograms and some thousand entries are copied from it.
        num_perm: h, 1 to 4,096.
        seed: 0 to 2^32 - 1; only signatures of equal seeds can be compared.
        scheme: ``affine32`` or ``affine64``; by default that of M.
        how: any of the keywords of :func:`modelkin.select_support`.

    Raises:
        InvalidSignature: h, seed or scheme are out of range.
        InvalidImportance, InvalidParameter, SpaceMismatch: as :func:`modelkin.select_support`.
    """
    ready = prepare(importance, SelectionRequest(**how))
    if ready.order is not None:
        raise SpaceMismatch(
            "the importance lacks a part of the order's parameters, and indices move around that: "
            "sign the support of select_support"
        )
    m = ready.entries.size
    check_permutations(m, num_perm, seed, scheme)  # before the work of the selection
    members = SelectedMembers(decide(ready.entries, ready.request).segments, m)
    return Signature.of_members(
        members, num_perm=num_perm, seed=seed, scheme=scheme, origin=ready.origin
    )


class SelectedMembers:
    """The entries of an importance that a decision selects.

    Args:
        segments: the segments of the decision, with at least one selected entry.
        num_parameters: M.
    """

    question_work: float = 1500

    def __init__(self, segments: Sequence[Segment], num_parameters: int) -> None:
        self._segments = [segment for segment in segments if segment.threshold is not None]
        self._begins = np.array([segment.begin for segment in self._segments], np.int64)
        self._ties_ends: dict[int, int] = {}
        self.num_parameters = num_parameters
        self.k = sum(segment.k for segment in self._segments)

    def first(self, table: Table) -> npt.NDArray[np.int64]:
        return first_members(table, self._contains)

    def least(self, a: Any, b: Any) -> ValueArray:
        parts = [
            segment.ranking.entries.least_hashes(segment.threshold, segment.begin, a, b)
            for segment in self._segments
            if segment.threshold is not None
        ]
        least: ValueArray = np.minimum.reduce(parts)
        return least

    def _contains(self, indices: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        inside = np.zeros(indices.size, np.bool_)
        owners: Any = np.searchsorted(self._begins, indices, side="right") - 1
        for owner in np.unique(owners[owners >= 0]).tolist():
            segment = self._segments[owner]
            mine = np.flatnonzero((owners == owner) & (indices < segment.end))
            inside[mine] = self._is_selected(owner, indices[mine] - segment.begin)
        return inside

    def _is_selected(self, owner: int, indices: Any) -> npt.NDArray[np.bool_]:
        segment = self._segments[owner]
        entries, threshold = segment.ranking.entries, segment.threshold
        assert threshold is not None  # segments without one are left out
        if owner not in self._ties_ends:
            self._ties_ends[owner] = entries.ties_end(threshold)
        return entries.is_selected(indices, threshold, self._ties_ends[owner])
