"""``BucketParty``: one party of a merge in a bucket, step by step."""

from __future__ import annotations

import time
from typing import Any, Final, TypeVar

from modelkin.core.layout import Layout
from modelkin.errors import MergeFailed, ModelkinError
from modelkin.federation.buckets.leader import Leader
from modelkin.federation.buckets.mail import BucketMail
from modelkin.federation.buckets.record import Record
from modelkin.federation.buckets.stores import Store
from modelkin.federation.merging.mail import Flow
from modelkin.federation.merging.party import MergeParty
from modelkin.federation.sharing.values import ArraySink, ValueSink, ValueSource
from modelkin.types.merges import Merge, Merged

__all__ = ["BucketParty"]

T = TypeVar("T")

_SILENT_STATES: Final = 2
"""How many times a state's time a leader may be silent."""


class BucketParty:
    """A party, and the leader if the merge says so.

    Args:
        store: keeps the sealed cells and results.
        record: the merge, as this party alone knows it.
        merge: the merge's name.
        model: the party's name.
        source: gives the values in stretches; None for a neutral party.
        sink: takes the average in stretches; None for memory.
        layout: the values' tensors, if they are known.
        given: as :class:`MergeParty` takes it.
    """

    def __init__(
        self,
        store: Store,
        record: Record,
        merge: str,
        model: str,
        source: ValueSource | None,
        sink: ValueSink | None,
        layout: Layout | None = None,
        **given: Any,
    ) -> None:
        mail, sink = BucketMail(store, record, model), sink or _Memory(record)
        self._layout = layout
        self._party = MergeParty(mail, str(store), merge, model, source, sink, **given)
        self._record, self._model, self._leader = record, model, Leader(record)
        self._joined, self._seen, self._changed = False, 0, time.monotonic()

    def look(self) -> Merge:
        """Join, or read what is new; return the merge. May be repeated after any failure.

        Raises:
            ConnectionFailed: the store does not answer, or there is no such merge.
            InvalidParameter: the values are of other tensors than the merge.
            MergeFailed: the leader has decided nothing for long.
        """
        if not self._joined and self._layout is not None:
            self._record.check_layout(self._layout)
        shown: Merge = _run(self._party.look() if self._joined else self._party.join())
        self._joined = True
        if shown.revision != self._seen:
            self._seen, self._changed = shown.revision, time.monotonic()
        leader, patience = shown.request["leader"], _SILENT_STATES * shown.request["deadline"]
        if leader != self._model and time.monotonic() - self._changed > patience:
            raise MergeFailed(
                f"merge {shown.name!r} is {shown.state} for too long: {leader!r}, which leads, has "
                f"decided nothing, and {', '.join(shown.awaited) or 'nobody'} is awaited"
            )
        return shown

    def step(self, shown: Merge) -> Merged | None:
        """Take the next step; return the result of a merge that is done.

        Raises:
            ConnectionFailed: the store does not answer, or does not show an object yet.
            MergeFailed: the merge has failed.
        """
        if self._model == shown.request["leader"]:
            self._leader.lead()
        return _run(self._party.step(shown))

    def discard(self) -> None:
        """Delete an unfinished average."""
        self._party.discard()


class _Memory(ArraySink):
    """A sink in memory, as large as the merge's parameters once these are known."""

    def __init__(self, record: Record) -> None:
        super().__init__(0)
        self._record = record

    def write(self, start: int, values: Any) -> None:
        if not self.values.size:
            super().__init__(self._record.roster.plan.num_parameters)
        super().write(start, values)


def _run(flow: Flow[T]) -> T:
    """Answer the questions of a flow to its end, and return its result; it learns of failures."""
    try:
        ask = next(flow)
        while True:
            try:
                answer = ask()
            except ModelkinError as error:
                ask = flow.throw(error)
            else:
                ask = flow.send(answer)
    except StopIteration as finished:
        result: T = finished.value
        return result
