"""``client.merges``: averages of models through the service, which cannot open the sealed parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from modelkin.client._async.flows import run_flow
from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol.merges import calls as merges
from modelkin.client._protocol.merges.calls import AnyMerge
from modelkin.client._transport.concurrency import async_offload
from modelkin.errors import ConnectionFailed, InvalidParameter, PayloadTooLarge, ServerError
from modelkin.federation.merging.party import MergeParty
from modelkin.federation.merging.polling import Polling
from modelkin.federation.shards.plan import MIN_MEMBERS, Plan
from modelkin.federation.sharing.values import ArraySink, ValueSink, ValueSource, source_of
from modelkin.types.merges import Merge, Merged, MergeInfo

__all__ = ["AsyncMerges"]


class AsyncMerges(AsyncResource):
    """Merges: members seal shards of their models to each other, and all get the average."""

    async def create(
        self,
        space: str,
        merge: str,
        *,
        members: Iterable[str] | None = None,
        donors_of: str | None = None,
        k: int | None = None,
        clustering: str | None = None,
        cluster: int | None = None,
        aggregators: int | None = None,
        weights: Literal["donors", "examples", "equal"] | Mapping[str, float] | None = None,
        of: Literal["weights", "delta"] | None = None,
        conceal: bool | None = None,
        one_in: int | None = None,
        min_members: int | None = None,
        deadline: int | None = None,
    ) -> Merge:
        """Creates a merge, whose members and weights the service settles now.

            await client.merges.create("digits", "july", donors_of="org/newcomer", k=5)

        Args:
            space: the name of the space whose models are averaged.
            merge: the merge's name.
            members: names of models; or
            donors_of: the model whose best donors are the members, with their weights; or
            clustering: the id of a clustering, or ``"latest"``.
            k: the number of donors.
            cluster: a cluster's id in ``clustering``; its models are the members.
            aggregators: A, parties that average a shard each. By default 4, or fewer where one
                absent member would leave too few to hold them.
            weights: the weights by name; else ``"donors"``, ``"examples"`` or ``"equal"``.
            of: ``"weights"``, or ``"delta"`` for differences to a base that all members have.
            conceal: whether aggregators see only sums, as by default.
            one_in: c; one difference in c is sent.
            min_members: the least number of members to average; 3 by default.
            deadline: seconds that joining, sending and combining may take each.

        Raises:
            ApiError: ``merge_exists``, ``model_not_found``, or a field is wrong.
        """
        fields: dict[str, Any] = {
            "donors_of": donors_of,
            "k": k,
            "clustering": clustering,
            "cluster": cluster,
            "aggregators": aggregators,
            "of": of,
            "conceal": conceal,
            "one_in": one_in,
            "min_members": min_members,
            "deadline": deadline,
        }
        call = merges.create(space, merge, members=members, weights=weights, fields=fields)
        return await self._connection.run(call)

    def list(self, space: str) -> AsyncListing[MergeInfo]:
        """Lists the merges of a space, the newest first, without their parties.

        Args:
            space: the space's name.
        """
        return self._listing(merges.list_all(space), MergeInfo)

    async def get(self, space: str, merge: AnyMerge) -> Merge:
        """Reads a merge: its state, and the parties that it waits for.

        Args:
            space: the merge's space.
            merge: the merge, or its name.

        Raises:
            ApiError: ``merge_not_found``.
        """
        return await self._connection.run(merges.get(space, merge))

    async def delete(self, space: str, merge: AnyMerge) -> None:
        """Deletes a merge with all its cells, whatever its state.

        Args:
            space: the merge's space.
            merge: the merge, or its name.

        Raises:
            ApiError: ``merge_not_found``.
        """
        await self._connection.run(merges.delete(space, merge))

    async def join(
        self,
        space: str,
        merge: AnyMerge,
        model: str,
        values: Any = None,
        *,
        output: ValueSink | None = None,
        examples: int | None = None,
        may_aggregate: bool = True,
        group_secret: bytes | None = None,
        conceal: bool = True,
        min_members: int = MIN_MEMBERS,
        state: str | Path | None = None,
        timeout: float | None = None,
        on_progress: Callable[[Merge], object] | None = None,
    ) -> Merged:
        """Takes part in a merge to its end: joins, sends sealed cells, aggregates if seated.

            merged = await client.merges.join("digits", "july", "org/x", vector, examples=600)
            merged.values

        Args:
            space: the merge's space.
            merge: the merge, or its name.
            model: the name of the model with these values; a party without a model gives its own.
            values: a vector or tensor of M numbers, or a source that reads one in stretches, such
                as ``modelkin.checkpoints.CheckpointValues``. None for a neutral party.
            output: the sink of the average, such as ``modelkin.checkpoints.CheckpointSink``; None
                for memory.
            examples: the number of examples that the model was trained on: its weight, where
                weights are by examples.
            may_aggregate: whether this party may hold a shard.
            group_secret: 16 bytes or more that all parties know, and the service does not.
            conceal: whether to refuse a merge whose aggregators see this member's shards, in place
                of sums.
            min_members: the least number of members that this party accepts.
            state: a file, readable only by its owner, with which a new process goes on where this
                one ended; it is deleted at the end.
            timeout: seconds at most; None for as long as the merge takes.
            on_progress: a function that is called with the merge whenever it has changed.

        Raises:
            MergeFailed: the merge ended without a result; says why.
            ApiError: ``merge_closed`` for a merge that is past joining, ``merge_not_found``, ...
            InvalidParameter: the values are not of the merge's parameters, not finite, or have
                changed meanwhile; or the merge shows more than this party accepts.
            PayloadTooLarge: a neutral party without an output, and an average that is too large
                for memory.
            TimeoutError: the merge has not ended in time, and goes on without this party.
        """
        source = None if values is None else source_of(values)
        known = await self.get(space, merge)
        sink = output if output is not None else self._memory(known, source)
        party = await async_offload(
            MergeParty,
            merges.HubMail(space, merge),
            space,
            merges.name_of(merge),
            model,
            source,
            sink,
            state=None if state is None else Path(state),
            examples=examples,
            may_aggregate=may_aggregate,
            group_secret=group_secret,
            conceal=conceal,
            min_members=min_members,
        )
        end = _end_of(timeout)
        try:
            return await self._take_part(party, merge, end, on_progress)
        except BaseException:
            party.discard()
            raise

    def _memory(self, known: Merge, source: ValueSource | None) -> ArraySink:
        """A sink as large as the values given here; without any, the service's word has a bound."""
        if source is not None:
            return ArraySink(source.num_parameters)
        m = Plan.from_json(dict(known.plan)).num_parameters
        if 4 * m > self._connection.max_answer_bytes:
            raise PayloadTooLarge(
                f"the average of {m:,} parameters takes more than the "
                f"{self._connection.max_answer_bytes:,} bytes of max_answer_bytes: give output"
            )
        return ArraySink(m)

    async def _take_part(
        self,
        party: MergeParty,
        merge: AnyMerge,
        end: float | None,
        on_progress: Callable[[Merge], object] | None,
    ) -> Merged:
        polling, seen, joined = Polling(), 0, False
        while True:
            run = partial(self._connection.run, seconds=_seconds_until(end))
            try:
                flow = party.join() if not joined else party.look()
                shown = await run_flow(flow, run, heavy=True)
                joined = True
                if on_progress is not None and shown.revision != seen:
                    seen = shown.revision
                    on_progress(shown)
                merged = await run_flow(party.step(shown), run, heavy=True)
                if merged is not None:
                    return merged
                pause = polling.after(shown)
            except (ConnectionFailed, ServerError) as error:  # each step may be repeated
                pause = polling.after_failure(error)
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"merge {merges.name_of(merge)!r} has not ended; it goes on")
            await self._connection.sleep(pause)


def _seconds_until(end: float | None) -> float | None:
    """The most seconds of a request, a second at least; None for the usual ones."""
    return None if end is None else max(end - time.monotonic(), 1.0)


def _end_of(timeout: float | None) -> float | None:
    if timeout is not None and not timeout >= 0:
        raise InvalidParameter(f"timeout must be 0 or more, not {timeout!r}", field="timeout")
    return None if timeout is None else time.monotonic() + timeout
