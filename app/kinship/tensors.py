"""The tensors of a space: which hold the indices of its supports, and which look constant.

The constants are those that comparisons leave out. For the other figures this module samples
supports and pairs of them, within limits of bytes, whatever the size of the space and its models.
"""

from __future__ import annotations

import itertools
import logging

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.infra.errors import Unavailable
from app.infra.storage.guarded_maps import intact_maps
from app.models.catalog.reader import ModelReader
from app.models.catalog.repositories.candidates import candidates_by_id
from app.models.catalog.repositories.tensor_counts import counts_by_id
from app.models.index.change_feed import ChangeFeed
from app.models.index.registry import IndexRegistry
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.layouts import find_layout
from app.search.constants import SpaceConstants
from modelkin.core.layout import Layout
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.chance import tensor_sizes
from modelkin.core.similarity.outside import counts_inside
from modelkin.core.similarity.tensors import TensorAgreement, agreement, shared_by_tensor
from modelkin.errors import InvalidParameter
from modelkin.types.tensors import SpaceTensors, TensorSummary

__all__ = ["TensorService"]

log = logging.getLogger(__name__)

_SEED = 1
"""The seed of all samples, so that every process draws the same."""
_FETCH_S = 2.0
"""Seconds that an answer waits for supports that are not on this machine yet."""
_MAX_SUPPORTS, _MAX_PAIRS, _MIN_PAIRS = 24, 200, 10
"""The most supports that are read, and the most and least pairs of them that are compared."""
_MAX_BYTES = 1 << 30
"""The most bytes that the comparisons read in all; the least number of pairs is always compared."""
_MAX_COUNTS = 1 << 22
"""Counts that are summed, a tensor of a support each: a sample of the supports beyond that."""


class TensorService:
    """The use case that describes the tensors of a space."""

    def __init__(
        self, reader: ModelReader, indexes: IndexRegistry, constants: SpaceConstants
    ) -> None:
        self._reader = reader
        self._indexes = indexes
        self._constants = constants

    def tensors(
        self, session: Reader, space: SpaceRecord, deadline: Deadline = NEVER
    ) -> SpaceTensors:
        """Return each tensor's share of the supports, and the overlap of sampled pairs in it.

        Beyond the deadline the sample has no more pairs.

        Raises:
            InvalidParameter: the space has no layout.
            ClientLeft: the client has gone.
            Unavailable: a support's file was cut meanwhile.
        """
        layout = find_layout(session, space)
        if layout is None:
            raise InvalidParameter(
                f"space {space.name!r} has no layout, so it has no tensors: create it with one",
                field="space",
            )
        constants = self._constants.of(session, space)
        ids = self._shuffled_ids(session, space)
        shares, counted = _shares(session, space, layout, ids)
        with intact_maps():
            supports = self._open(session, space, ids)
            pairs = _pairs(supports)
            session.release()
            found, compared = _compare_pairs(supports, pairs, layout, deadline)
        deadline.require_client()
        return SpaceTensors(
            items=tuple(_summaries(layout, shares, found, frozenset(constants.names))),
            supports=counted,
            pairs=compared,
            version=space.version,
        )

    def _shuffled_ids(self, session: Reader, space: SpaceRecord) -> list[int]:
        """The ids of the models that may have a support, in a seeded order.

        The order goes by their ranks, since ids depend on what other tenants have stored.
        """
        feed = ChangeFeed(session, space.id)
        snapshot = self._indexes.snapshot_at(space.id, space.signature, space.version, feed)
        ids = np.sort(snapshot.ids[snapshot.alive & (snapshot.contents != 0)])
        shuffled: list[int] = np.random.default_rng(_SEED).permutation(ids).tolist()
        return shuffled

    def _open(self, session: Reader, space: SpaceRecord, ids: list[int]) -> list[PackedSupport]:
        """The first supports that can be read."""
        some = ids[: 2 * _MAX_SUPPORTS]
        known = {c.id: c for c in candidates_by_id(session, space, some)}
        found: list[PackedSupport] = []
        self._reader.fetch(known.values(), _FETCH_S)
        for candidate in (known[i] for i in some if i in known):
            if len(found) == _MAX_SUPPORTS:
                break
            try:
                packed = self._reader.find_packed(space, candidate, mapped=True)
            except Unavailable as error:  # one damaged file must not fail the whole answer
                log.error("%s", error)
                continue
            if packed is not None:
                found.append(packed)
        return found


def _shares(
    session: Reader, space: SpaceRecord, layout: Layout, ids: list[int]
) -> tuple[npt.NDArray[np.float64] | None, int]:
    """Return each tensor's share of the supports' indices, and the number of counted supports."""
    most = max(_MAX_SUPPORTS, _MAX_COUNTS // len(layout.tensors))
    total, counted, step = np.zeros(len(layout.tensors)), 0, 500
    for begin in range(0, min(most, len(ids)), step):
        some = counts_by_id(session, space, ids[begin : min(most, begin + step)])
        counted += len(some)
        total += sum(some.values(), np.zeros(total.size))
    return (total / total.sum() if counted else None), counted


def _pairs(supports: list[PackedSupport]) -> list[tuple[int, int]]:
    """A seeded sample of the pairs of some supports."""
    every = list(itertools.combinations(range(len(supports)), 2))
    largest = max((support.array.nbytes for support in supports), default=1)
    most = min(_MAX_PAIRS, max(_MIN_PAIRS, _MAX_BYTES // (2 * largest)))
    order = np.random.default_rng(_SEED).permutation(len(every))[:most]
    return [every[place] for place in order.tolist()]


def _compare_pairs(
    supports: list[PackedSupport],
    pairs: list[tuple[int, int]],
    layout: Layout,
    deadline: Deadline,
) -> tuple[TensorAgreement, int]:
    """Return the agreement of the pairs in each tensor, and the number of compared pairs."""
    rows: list[tuple[npt.NDArray[np.int64], ...]] = []
    own: dict[int, npt.NDArray[np.int64]] = {}
    sizes = tensor_sizes(layout).astype(np.int64)
    for i, j in deadline.until(pairs):
        for place in {i, j} - own.keys():
            own[place] = shared_by_tensor(supports[place], supports[place], layout)
        one, other, ours, theirs, covered = supports[i], supports[j], own[i], own[j], sizes
        if one.gaps or other.gaps:
            ours = ours - counts_inside(one, other.gaps, layout)
            theirs = theirs - counts_inside(other, one.gaps, layout)
            covered = sizes - (one.gaps | other.gaps).sizes_in_tensors(layout.ends)
        rows.append((ours, theirs, shared_by_tensor(one, other, layout), covered))
    empty = np.zeros((0, len(layout.tensors)), np.int64)
    a, b, shared, covered = (
        np.concatenate([empty, *(row[which][None] for row in rows)]) for which in range(4)
    )
    return agreement(tensor_sizes(layout), a, b, shared, covered.astype(np.float64)), len(rows)


def _summaries(
    layout: Layout,
    shares: npt.NDArray[np.float64] | None,
    found: TensorAgreement,
    constants: frozenset[str],
) -> list[TensorSummary]:
    columns = (found.similarity, found.kappa, found.strangers)
    each = zip(layout.tensors, *(column.tolist() for column in columns), strict=True)
    return [
        TensorSummary(
            name=tensor.name,
            size=tensor.size,
            share=None if shares is None else float(shares[place]),
            similarity=None if similarity != similarity else similarity,
            kappa=None if kappa != kappa else kappa,
            strangers=strangers,
            looks_constant=tensor.name in constants,
        )
        for place, (tensor, similarity, kappa, strangers) in enumerate(each)
    ]
