"""Index counts by tensor of supports that were stored before the service kept counts.

New supports are stored with their counts. This job makes those that are missing, a page at a time.
It may stop anywhere and begin again: it reads only supports that have none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Database, Reader
from app.infra.errors import SpaceNotFound, Unavailable
from app.jobs.service import Progress
from app.models.catalog.reader import ModelReader
from app.models.catalog.repositories import tensor_counts
from app.models.catalog.repositories.candidates import Candidate, candidates_by_id
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import layouts, spaces
from modelkin.errors import InvalidSupport

__all__ = ["JOB_KIND", "TensorCountService"]

log = logging.getLogger(__name__)

JOB_KIND: Final = "tensor_counts"
_PAGE_SIZE = 100
"""Supports that are read between two transactions."""


class TensorCountService:
    """The use case that counts the indices of old supports.

    Args:
        database: the database with the counts.
        reader: a reader of supports that keeps none of them open.
    """

    def __init__(self, database: Database, reader: ModelReader) -> None:
        self._database = database
        self._reader = reader
        self._reported: set[Candidate] = set()

    def any_missing(self, session: Reader) -> bool:
        """Whether there is anything to count."""
        return tensor_counts.any_missing(session)

    def count_missing(self, progress: Progress) -> Mapping[str, Any]:
        """Count the indices of all supports without counts.

        Returns:
            The numbers of counted and of skipped supports. A support is skipped if it is damaged,
            or changed meanwhile and so has counts already.
        """
        counted, left_out, last = 0, 0, 0
        while page := self._page(last):
            last = page[-1][1].id
            for space_id, group in groupby(page, itemgetter(0)):
                some = [candidate for _, candidate in group]
                stored = self._count(space_id, some)
                counted, left_out = counted + stored, left_out + len(some) - stored
            progress(counted + left_out, 0, "counting indices")
        return {"counted": counted, "left_out": left_out}

    def _page(self, last: int) -> list[tuple[int, Candidate]]:
        with self._database.reading() as session:
            return tensor_counts.missing_in_pages(session, last, _PAGE_SIZE)

    def _count(self, space_id: int, candidates: Sequence[Candidate]) -> int:
        """Store the counts of some supports of a space; return how many were stored."""
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, space_id)
            sizes = None if space is None else layouts.tensor_sizes(session, space)
        if space is None or sizes is None:
            return 0
        counts = {each: self._counts(space, sizes, each) for each in candidates}
        found = {each: stored for each, stored in counts.items() if stored is not None}
        return self._store(space, found)

    def _counts(
        self, space: SpaceRecord, sizes: npt.NDArray[np.uint64], candidate: Candidate
    ) -> bytes | None:
        """The counts of a support; None if it was replaced or deleted, or cannot be read."""
        try:
            found = self._reader.find_support(space, candidate)
            if found is None or found[0].content_id != candidate.content_id:
                return None
            return tensor_counts.encode(space, sizes, found[1].unpack().indices)
        except (Unavailable, InvalidSupport) as error:
            self._report(candidate, error)
            return None

    def _report(self, candidate: Candidate, error: Exception) -> None:
        """Log that a support is not counted, once a process: each run tries it again."""
        if candidate not in self._reported:
            self._reported.add(candidate)
            log.error(
                "the indices of %r are not counted, so that it has no kappa: %s; put the model "
                "again or restore its file, which is tried again every hour without another line",
                candidate.name,
                error,
            )

    def _store(self, space: SpaceRecord, counts: Mapping[Candidate, bytes]) -> int:
        """Store the counts of the supports that are unchanged."""
        if not counts:
            return 0
        ids = [candidate.id for candidate in counts]
        try:
            with self._database.writing() as session:
                spaces.lock_space(session, space)
                contents = {c.id: c.content_id for c in candidates_by_id(session, space, ids)}
                known = tensor_counts.counts_by_id(session, space, ids)
                new = {
                    candidate.id: stored
                    for candidate, stored in counts.items()
                    if contents.get(candidate.id) == candidate.content_id
                    and candidate.id not in known
                }
                tensor_counts.insert_counts(session, new)
        except SpaceNotFound:
            return 0
        return len(new)
