"""The mailbox of a merge: sealed cells and results, checked by their headers and never opened."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import Forbidden, MergeClosed, MergeExists, MergeNotFound, Unavailable
from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.infra.storage.verified_files import FileDecoder
from app.merges import repository
from app.merges.phases import Phases
from app.merges.records import ROUND, CellKey, CellRecord, MergeRecord, PartyRecord
from app.merges.service import MergeService, party_of_token, require_token
from app.models.spaces.records import SpaceRecord
from modelkin.errors import InvalidCell
from modelkin.federation.shards.roster import Roster
from modelkin.wire.cell import CellHeader, Kind, Sealing, cell_bytes, decode_cell

__all__ = ["Address", "Mailbox"]


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a cell, as a path names it.

    Attributes:
        attempt: the attempt; None for a result, which belongs to the attempt that ended the merge.
        shard: the number of the shard, 0 to A - 1.
        piece: the number of the piece in its shard, from 0.
    """

    attempt: int | None
    shard: int
    piece: int


class Mailbox:
    """Takes cells and results, and gives them to the parties that may read them.

    Args:
        database: the rows of cells.
        blobs: their bytes.
        merges: finds and locks merges.
        phases: moves a merge on when all has come.
    """

    def __init__(
        self, database: Database, blobs: BlobStore, merges: MergeService, phases: Phases
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._merges = merges
        self._phases = phases

    def put_cell(
        self,
        reading: Reader,
        space: SpaceRecord,
        name: str,
        address: Address,
        member: str,
        token: str,
        data: bytearray,
    ) -> bool:
        """Store a member's cell; return whether it is new.

        Raises:
            MergeNotFound: there is no such merge, member, shard or piece.
            Forbidden: the token belongs to another party.
            MergeClosed: the merge takes no cells of this attempt, or none of this member.
            MergeExists: another cell was stored here.
            InvalidCell: the header does not match this cell.
        """
        merge, parties = self._merges.get(reading, space, name)
        roster = _roster(merge)
        party = require_token(merge, parties, member, token)
        _check_address(merge, address)
        place = roster.place(party.name)
        key = CellKey(_attempt(merge, address), False, address.shard, address.piece, place)
        _check_header(data, _cell_header(roster, key))
        stored = self._known(reading, merge, key, data)
        if stored:
            return False
        _require_open(merge, "sending", key)
        if party.neutral or party.left_out is not None:
            raise MergeClosed(f"{member!r} is not in this attempt: {party.left_out or 'neutral'}")
        return self._store(reading, space, merge, "sending", key, data)

    def put_result(
        self,
        reading: Reader,
        space: SpaceRecord,
        name: str,
        address: Address,
        token: str,
        data: bytearray,
    ) -> bool:
        """Store the result of a shard's piece; return whether it is new.

        Raises:
            MergeNotFound: there is no such merge, shard or piece.
            Forbidden: the token does not belong to the shard's aggregator.
            MergeClosed: the merge takes no results now.
            MergeExists: another result was stored here.
            InvalidCell: the header does not match this result.
        """
        merge, parties = self._merges.get(reading, space, name)
        roster = _roster(merge)
        _check_address(merge, address)
        place = _require_holder(merge, roster, parties, address.shard, token)
        key = CellKey(merge.attempt, True, address.shard, address.piece, place)
        _check_header(data, _result_header(roster, key))
        if self._known(reading, merge, key, data):
            return False
        _require_open(merge, "combining", key)
        undecided = merge.undecided_aggregators(parties)
        if undecided:
            raise MergeClosed(
                f"merge {name!r} awaits the verdict of {', '.join(undecided)}: results come after "
                f"those of all aggregators"
            )
        return self._store(reading, space, merge, "combining", key, data)

    def cell(
        self,
        session: Reader,
        space: SpaceRecord,
        name: str,
        address: Address,
        member: str,
        token: str,
    ) -> memoryview:
        """Return a member's cell to the aggregator of its shard.

        Raises:
            MergeNotFound: there is no such merge or member, or the cell has not come yet.
            Forbidden: the token does not belong to the shard's aggregator.
        """
        merge, parties = self._merges.get(session, space, name)
        roster = _roster(merge)
        _check_address(merge, address)
        _require_holder(merge, roster, parties, address.shard, token)
        if member not in parties or not parties[member].joined:
            raise MergeNotFound(f"merge {name!r} has no member {member!r}")
        attempt, place = _attempt(merge, address), roster.place(member)
        key = CellKey(attempt, False, address.shard, address.piece, place)
        return self._bytes(session, merge, key)

    def result(
        self, session: Reader, space: SpaceRecord, name: str, address: Address, token: str
    ) -> memoryview:
        """Return a result to any party, once the merge is done.

        Raises:
            MergeNotFound: there is no such merge, or no result yet, or not any more.
            Forbidden: the token belongs to no party.
        """
        merge, parties = self._merges.get(session, space, name)
        roster = _roster(merge)
        _check_address(merge, address)
        party_of_token(merge, parties, token)
        if merge.state != "done":
            raise MergeNotFound(f"merge {name!r} is {merge.state}: it has no result")
        (place,) = roster.holders(address.shard)
        key = CellKey(merge.attempt, True, address.shard, address.piece, place)
        return self._bytes(session, merge, key)

    def judge(
        self,
        session: Writer,
        space: SpaceRecord,
        name: str,
        attempt: int,
        token: str,
        reasons: Mapping[str, str],
        failed: str | None,
    ) -> MergeRecord:
        """Take an aggregator's verdict: all its cells are good, some are bad, or none combine.

        No result is taken before all aggregators have found all cells good: results of two attempts
        that differ by one member would show its values. The members that the verdict names are left
        out of a second attempt. The merge fails if the verdict names no member: no single cell
        shows why masks do not cancel. It also fails in the second attempt.

        Raises:
            MergeNotFound: there is no such merge, or no such member.
            Forbidden: the token belongs to no aggregator.
            MergeClosed: the merge does not combine this attempt.
        """
        merge = self._merges.lock(session, space, name)
        parties = repository.parties(session, merge)
        roster = _roster(merge)
        party = party_of_token(merge, parties, token)
        if roster.place(party.name) not in roster.seats:
            raise Forbidden(f"{party.name!r} aggregates no shard")
        if merge.state != "combining" or merge.attempt != attempt:
            raise MergeClosed(f"merge {name!r} does not combine attempt {attempt}")
        for member in reasons:
            if member not in parties or parties[member].neutral:
                raise MergeNotFound(f"merge {name!r} has no member {member!r}")
        if reasons:
            return self._phases.leave_out(session, merge, reasons)
        if failed:
            return self._phases.fail(session, merge, f"{party.name}: {failed}")
        if party.verdict != attempt:
            repository.change_party(session, merge, party.name, verdict=attempt)
            merge = repository.change(session, merge)
        return merge

    def _known(self, session: Reader, merge: MergeRecord, key: CellKey, data: bytearray) -> bool:
        """Whether this cell is stored already.

        Raises:
            MergeExists: another cell is stored at this address.
        """
        found = repository.find_cell(session, merge, key)
        if found is not None and found.digest != _digest(data):
            raise MergeExists("another cell was sent here before; it stays")
        return found is not None

    def _store(
        self,
        reading: Reader,
        space: SpaceRecord,
        merge: MergeRecord,
        state: str,
        key: CellKey,
        data: bytearray,
    ) -> bool:
        """Write the bytes, then the row, and move the merge on if that was the last one."""
        reading.rollback()  # nothing is held while it waits for the disk
        blob_key = self._blobs.put(str(space.id), bytes(data))
        with self._database.writing() as session:
            session.after_rollback(lambda: self._blobs.delete(blob_key))
            now = self._merges.lock(session, space, merge.name)
            if now.id != merge.id:
                raise MergeNotFound(f"merge {merge.name!r} was replaced meanwhile")
            if self._known(session, now, key, data):
                session.after_commit(lambda: self._blobs.delete(blob_key))
                return False
            _require_open(now, state, key)
            repository.insert_cell(
                session, now, CellRecord(key, _digest(data), blob_key, len(data))
            )
            self._phases.advance(session, now)
        return True

    def _bytes(self, session: Reader, merge: MergeRecord, key: CellKey) -> memoryview:
        found = repository.find_cell(session, merge, key)
        if found is None:
            what = "result" if key.is_result else "cell"
            raise MergeNotFound(f"the {what} is not there yet, or not any more")
        try:
            return self._blobs.open_verified(found.blob_key, FileDecoder(found.digest))
        except KeyError:
            raise MergeNotFound("the cell's file is lost: the merge cannot end well") from None
        except DamagedBlob as error:
            raise Unavailable("the cell's file is damaged: the merge cannot end well") from error


def _digest(data: bytearray) -> bytes:
    return hashlib.sha256(data).digest()


def _roster(merge: MergeRecord) -> Roster:
    if merge.roster is None:
        raise MergeClosed(f"merge {merge.name!r} is {merge.state}: it has no roster yet")
    return merge.roster


def _attempt(merge: MergeRecord, address: Address) -> int:
    return merge.attempt if address.attempt is None else address.attempt


def _check_address(merge: MergeRecord, address: Address) -> None:
    if address.shard >= merge.plan.shards or address.piece >= merge.plan.pieces:
        raise MergeNotFound(
            f"merge {merge.name!r} has shards 0 to {merge.plan.shards - 1} with pieces 0 to "
            f"{merge.plan.pieces - 1}"
        )


def _require_open(merge: MergeRecord, state: str, key: CellKey) -> None:
    if merge.state != state or key.attempt != merge.attempt:
        raise MergeClosed(
            f"merge {merge.name!r} is {merge.state} in attempt {merge.attempt}: it takes no "
            f"{'results' if key.is_result else 'cells'} of attempt {key.attempt}"
        )


def _require_holder(
    merge: MergeRecord,
    roster: Roster,
    parties: Mapping[str, PartyRecord],
    shard: int,
    token: str,
) -> int:
    """The place of the aggregator of a shard, whose token it is."""
    party = party_of_token(merge, parties, token)
    place = roster.place(party.name)
    if place not in roster.holders(shard):
        raise Forbidden(f"{party.name!r} does not aggregate shard {shard}")
    return place


def _cell_header(roster: Roster, key: CellKey) -> CellHeader:
    return CellHeader(
        Kind.UINT32 if roster.plan.conceal else Kind.FLOAT32,
        Sealing.SEALED,
        key.shard,
        key.piece,
        ROUND,
        key.attempt,
        0,
        key.place,
        roster.cell_count(key.shard, key.piece, ROUND, key.place),
        roster.digest,
    )


def _result_header(roster: Roster, key: CellKey) -> CellHeader:
    return CellHeader(
        Kind.FLOAT32,
        Sealing.WRAPPED,
        key.shard,
        key.piece,
        ROUND,
        key.attempt,
        len(roster.parties),
        key.place,
        roster.result_count(key.shard, key.piece, ROUND),
        roster.digest,
    )


def _check_header(data: bytearray, expected: CellHeader) -> None:
    """Check that a payload is whole, and has the expected header.

    Raises:
        InvalidCell: a field differs; the error names the first one.
    """
    if len(data) != cell_bytes(expected):
        raise InvalidCell(f"this cell has {cell_bytes(expected)} bytes, not {len(data)}")
    header, _ = decode_cell(data)
    for name in CellHeader.__slots__:
        found, wanted = getattr(header, name), getattr(expected, name)
        if found != wanted:
            shown = (found.hex(), wanted.hex()) if name == "digest" else (found, wanted)
            raise InvalidCell(f"its {name} is {shown[0]!s}, and {shown[1]!s} is expected")
