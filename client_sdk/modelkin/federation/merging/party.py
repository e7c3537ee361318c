"""``MergeParty``: a party's part in a merge, from its key to the average.

The party's state is in a private file, so that a new process goes on where one ended. A party never
has a whole model in memory: values are read, and the average is written, in stretches.
"""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from modelkin._validation import check_model_name
from modelkin.errors import ApiError, InvalidParameter, MergeFailed
from modelkin.federation.merging.mail import Flow, Mail
from modelkin.federation.merging.party_state import PartyState
from modelkin.federation.merging.terms import MergeTerms
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Roster, Round
from modelkin.federation.sharing import (
    Aggregator,
    Combined,
    Member,
    assemble_piece,
    open_result,
    public_key,
)
from modelkin.federation.sharing.values import ValueSink, ValueSource
from modelkin.types.merges import Merge, Merged

__all__ = ["MergeParty"]

log = logging.getLogger("modelkin.client")

_MUCH_WEIGHT: Final = 0.5
_MAX_UNRELEASED_BYTES: Final = 16 << 20
"""The most bytes of cells that were sent or read and wait for a garbage collection."""


class MergeParty:
    """One party of one merge.

    Args:
        mail: the carrier of the merge.
        space: the merge's space.
        merge: the merge's name.
        model: the member's model; a neutral party's own name.
        source: gives the member's values in stretches; None for a neutral party.
        sink: takes the average in stretches, and is told whether it is whole.
        state: a file of the state, with which a new process can go on; None to keep no file.
        examples: the number of examples that the model was trained on.
        may_aggregate: whether the party may hold a shard.
        group_secret: 16 bytes or more that all parties have, and the service has not.
        conceal: whether a member refuses a merge whose aggregators see more than sums.
        min_members: the least number of members that a member accepts.

    Raises:
        InvalidParameter: the file is of another party, or of other values.
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        mail: Mail,
        space: str,
        merge: str,
        model: str,
        source: ValueSource | None,
        sink: ValueSink,
        *,
        state: Path | None,
        examples: int | None,
        may_aggregate: bool,
        group_secret: bytes | None,
        conceal: bool,
        min_members: int,
    ) -> None:
        self._mail, self._merge = mail, merge
        self._model = check_model_name(model)
        self._source, self._sink = source, sink
        self._examples, self._may_aggregate = examples, may_aggregate
        self._group_secret = group_secret
        self._terms = MergeTerms(merge, self._model, examples, conceal, min_members)
        fingerprint = None if source is None else source.fingerprint()
        self._state = PartyState(state, (space, merge, self._model), fingerprint)
        self._sent: int | None = None
        self._combined: int | None = None
        self._roster: Roster | None = None
        self._unreleased = 0

    def join(self) -> Flow[Merge]:
        """Join, unless an earlier process did; return the merge.

        Raises:
            InvalidParameter: the values are not of the merge's parameters, or the merge breaks the
                caller's terms.
            ApiError: the service refuses.
        """
        shown: Merge = yield self._mail.get()
        self._terms.check_base(shown, (self._source, self._sink))
        created = shown.created_at.isoformat()
        if self._state.joined and created == self._state.created:
            return shown
        if self._state.created and created != self._state.created:
            self._state.begin_again()
        plan = Plan.from_json(dict(shown.plan))
        if self._source is not None:
            self._terms.check_plan(plan)
        self._state.plan = plan
        fields: dict[str, Any] = {"may_aggregate": self._may_aggregate}
        if self._source is None:
            fields["neutral"] = True
        else:
            fields |= {"examples": self._examples, "peak": self._peak(plan, self._source)}
        self._state.created = created
        self._state.save()
        own_key, token = public_key(self._state.key), self._state.token
        try:
            yield self._mail.join(self._model, own_key, token, fields)
        except (InvalidParameter, MergeFailed):
            if not self._state.restored:
                self._state.forget()  # refused, so corrected values may begin anew
            raise
        self._state.joined = True
        self._state.save()
        shown = yield self._mail.get()
        return shown

    def look(self) -> Flow[Merge]:
        """Read the present state of the merge."""
        shown: Merge = yield self._mail.get()
        return shown

    def step(self, shown: Merge) -> Flow[Merged | None]:
        """Take this party's next step in the present state; return the result of a finished merge.

        Raises:
            MergeFailed: the merge has failed.
            InvalidParameter: the roster is of another merge, or lacks this party.
        """
        if shown.created_at.isoformat() != self._state.created:
            raise MergeFailed(f"merge {self._merge!r} was replaced by another one")
        if shown.state == "failed":
            self._state.forget()
            raise MergeFailed(f"merge {self._merge!r} has failed: {shown.failure}")
        if shown.state == "joining" or shown.roster is None:
            return None
        roster, current = self._round(shown)
        if shown.state == "sending" and self._sent != shown.attempt:
            yield from self._send(roster, current)
        elif shown.state == "combining" and self._combined != shown.attempt:
            yield from self._combine(roster, current, shown)
        elif shown.state == "done":
            merged: Merged = yield from self._fetch(roster, current, shown)
            return merged
        return None

    def discard(self) -> None:
        """Delete an unfinished average."""
        self._sink.discard()

    def _round(self, shown: Merge) -> tuple[Roster, Round]:
        """Check the roster; return it with the round of the present attempt."""
        roster = Roster.from_json(json.loads(json.dumps(shown.roster, default=dict)))
        if self._roster is None:
            if roster.plan != self._state.plan:
                raise InvalidParameter(
                    "the roster has another plan than the merge that this party joined",
                    field="plan",
                )
            if roster.digest.hex() != shown.digest:
                raise InvalidParameter("the digest is not that of the roster", field="roster")
            place = roster.place(self._model)
            if roster.parties[place].public_key != public_key(self._state.key):
                raise InvalidParameter(
                    f"the roster has another key of {self._model!r}", field="roster"
                )
            self._keep_roster(shown.digest)
            self._roster = roster
        elif roster.digest != self._roster.digest:
            raise InvalidParameter("the roster has changed meanwhile", field="roster")
        weights = {
            roster.place(party.name): party.weight
            for party in shown.parties
            if party.weight is not None and party.joined and party.left_out is None
        }
        self._terms.check_weight(shown, weights.get(roster.place(self._model)))
        current = Round(1, weights, attempt=shown.attempt, peak=shown.peak)
        return self._roster, current

    def _keep_roster(self, digest: str) -> None:
        """Note the roster, for a new process too, before anything is concealed for it.

        One update under two rosters is in two sums, whose difference may be one member's values.

        Raises:
            InvalidParameter: an earlier process of this party had another roster.
        """
        if self._state.roster not in {None, digest}:
            raise InvalidParameter("the roster has changed meanwhile", field="roster")
        log.info("merge %s: the roster's digest is %s", self._merge, digest)
        self._state.roster = digest
        self._state.save()

    def _check_unchanged(self) -> None:
        """Check that the values are those that this party began with.

        Changed values would be sent under the same masks, or beside values of the old model.

        Raises:
            InvalidParameter: the values have changed.
        """
        if self._source is not None and self._source.fingerprint() != self._state.fingerprint:
            raise InvalidParameter(self._state.change_message(), field="values")

    def _send(self, roster: Roster, current: Round) -> Flow[None]:
        place = roster.place(self._model)
        if self._source is None or place not in current.weights:
            self._sent = current.attempt
            return
        if current.share(place) > _MUCH_WEIGHT:
            log.warning(
                "merge %s: this member has %.0f%% of the weight, so the average shows its values",
                self._merge,
                100 * current.share(place),
            )
        self._check_unchanged()
        member = Member(roster, place, self._state.key, group_secret=self._group_secret)
        if self._state.concealed_for is not None:
            member.restore({"concealed_for": np.array(self._state.concealed_for)})
        for piece in range(roster.plan.pieces):
            values = self._source.read(*roster.plan.stretch(piece))
            self._check_unchanged()  # before any cell leaves
            for cell in member.piece_cells(values, piece, current):
                self._release_cells(len(cell.data))
                self._keep_concealed(member)
                address = (current.attempt, cell.shard, cell.piece)
                try:
                    yield self._mail.put_cell(self._model, self._state.token, address, cell.data)
                except ApiError as error:
                    if error.problem_code == "merge_closed":
                        return  # the state has changed: the next look shows how
                    # Sealing again gives other bytes: the cell sent before stays.
                    if error.problem_code != "merge_exists":
                        raise
        self._sent = current.attempt

    def _combine(self, roster: Roster, current: Round, shown: Merge) -> Flow[None]:
        """Judge the cells of this party's shards; send results once all aggregators have judged.

        Results of two attempts that differ by one member would show the member's values. So no
        result is sent while another aggregator may still refuse a member, and results of one
        attempt only.
        """
        seated = {roster.parties[place].id for place in roster.seats}
        if self._model not in seated:
            self._combined = current.attempt
            return
        place = roster.place(self._model)
        aggregator = Aggregator(roster, place, self._state.key, group_secret=self._group_secret)
        decided = {party.name for party in shown.parties if party.decided}
        try:
            if self._model not in decided:
                yield from self._judge(aggregator, roster, current)
            elif seated <= decided:
                yield from self._release(aggregator, roster, current)
        except ApiError as error:
            if error.problem_code not in {"merge_closed", "merge_not_found"}:
                raise

    def _judge(self, aggregator: Aggregator, roster: Roster, current: Round) -> Flow[None]:
        if self._state.released not in {None, current.attempt}:
            yield self._verdict(current, {}, "it has sent results of an earlier attempt")
            return
        for shard in aggregator.shards:
            for piece in range(roster.plan.pieces):
                combined = yield from self._combine_piece(aggregator, roster, current, shard, piece)
                if combined.values is None:
                    reasons = {roster.parties[at].id: why for at, why in combined.refused.items()}
                    yield self._verdict(current, reasons, combined.failed)
                    return
        yield self._verdict(current, {}, None)

    def _release(self, aggregator: Aggregator, roster: Roster, current: Round) -> Flow[None]:
        self._state.released = current.attempt
        self._state.save()
        for shard in aggregator.shards:
            for piece in range(roster.plan.pieces):
                combined = yield from self._combine_piece(aggregator, roster, current, shard, piece)
                if combined.values is None:
                    yield self._verdict(current, {}, "its cells have changed meanwhile")
                    return
                sealed = aggregator.seal_result(shard, piece, combined.values, current)
                try:
                    yield self._mail.put_result(self._state.token, shard, piece, sealed)
                except ApiError as error:
                    if error.problem_code != "merge_exists":
                        raise
        self._combined = current.attempt

    def _combine_piece(
        self, aggregator: Aggregator, roster: Roster, current: Round, shard: int, piece: int
    ) -> Flow[Combined]:
        cells: dict[int, bytes] = {}
        for place in current.taking_part:
            member = roster.parties[place].id
            address = (current.attempt, shard, piece)
            cell = yield self._mail.get_cell(member, self._state.token, address)
            if cell is not None:
                cells[place] = cell
        combined = aggregator.combine(shard, piece, cells, current)
        size = sum(map(len, cells.values()))
        cells.clear()
        self._release_cells(size)
        return combined

    def _verdict(self, current: Round, members: Mapping[str, str], failed: str | None) -> Any:
        return self._mail.judge(self._state.token, current.attempt, members, failed)

    def _fetch(self, roster: Roster, current: Round, shown: Merge) -> Flow[Merged]:
        place = roster.place(self._model)
        for piece in range(roster.plan.pieces):
            results, size = {}, 0
            for shard in range(roster.plan.shards):
                data = yield self._mail.get_result(self._state.token, shard, piece)
                size += len(data)
                results[shard] = open_result(
                    roster,
                    place,
                    self._state.key,
                    data,
                    shard=shard,
                    piece=piece,
                    current=current,
                    group_secret=self._group_secret,
                )
            start, _ = roster.plan.stretch(piece)
            self._sink.write(start, assemble_piece(roster, current, piece, results))
            self._release_cells(size)
        self._sink.finish()
        self._state.forget()
        members = tuple(roster.parties[at].id for at in current.taking_part)
        return Merged(shown, roster.digest.hex(), members, getattr(self._sink, "values", None))

    def _peak(self, plan: Plan, source: ValueSource) -> float:
        """The largest magnitude of the values to send.

        Raises:
            InvalidParameter: the values are not of the merge's parameters, or not finite.
        """
        if source.num_parameters != plan.num_parameters:
            raise InvalidParameter(
                f"the values are of {source.num_parameters} parameters, and the merge is of "
                f"{plan.num_parameters}",
                field="values",
            )
        peak = 0.0
        for piece in range(plan.pieces):
            largest = float(np.abs(source.read(*plan.stretch(piece))).max())
            if not np.isfinite(largest):
                raise InvalidParameter("a value is not finite", field="values")
            peak = max(peak, largest)
        self._check_unchanged()
        return peak * plan.one_in

    def _keep_concealed(self, member: Member) -> None:
        """Note the set of members that the values are concealed for, before a cell leaves."""
        known = member.state().get("concealed_for")
        if known is not None and known.tolist() != self._state.concealed_for:
            self._state.concealed_for = known.tolist()
            self._state.save()

    def _release_cells(self, size: int) -> None:
        """Release the cells that came or went, once they take many bytes.

        A request and its answer refer to each other, so each keeps its cell until a garbage
        collection. Collections start by the number of objects, whatever their bytes are. A
        collection inspects all objects of the process: beside a trained model, it takes a second.
        """
        self._unreleased += size
        if self._unreleased >= _MAX_UNRELEASED_BYTES:
            gc.collect()
            self._unreleased = 0
