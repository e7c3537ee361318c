"""``Member``: the cells of one member's update, each sealed to the aggregator that may open it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.draws import Label, stream
from modelkin.federation.shards.fixed_point import FixedPoint
from modelkin.federation.shards.plan import MAX_ATTEMPT
from modelkin.federation.shards.quantization import quantize
from modelkin.federation.shards.roster import Roster, Round
from modelkin.federation.shards.shifts import Shift, gamma
from modelkin.federation.shards.thinning import omega
from modelkin.federation.sharing import pairwise_masks, sealing
from modelkin.federation.sharing.shift_state import pack_shifts, unpack_shifts
from modelkin.wire.cell import CellHeader, Kind, Sealing, encode_cell

__all__ = ["Member", "SentCell"]

Floats = npt.NDArray[np.float32]

_SENT = "concealed_for"


@dataclass(frozen=True, slots=True)
class SentCell:
    """A sealed cell and where it goes.

    Attributes:
        shard: 0 to A - 1.
        piece: which stretch.
        holder: the place of the aggregator that can open it.
        data: the cell, ``application/vnd.modelkin.cell``.
    """

    shard: int
    piece: int
    holder: int
    data: bytes


class Member:
    """One member of a roster.

    Args:
        roster: the plan, all parties and their keys, alike for each of them.
        place: the member's own place in it.
        private_key: 32 bytes (X25519), for the public key at ``place``.
        group_secret: 16 bytes or more that all members and aggregators know, and no carrier; cells
            open only for who knows it.

    Raises:
        InvalidParameter: the key is of another party, the place is of no member, or the roster has
            keys that cannot be (:meth:`Roster.check_keys`).
    """

    def __init__(
        self, roster: Roster, place: int, private_key: bytes, *, group_secret: bytes | None = None
    ) -> None:
        if place not in roster.members:
            message = f"place {place} of the roster is of no member"
            raise InvalidParameter(message, field="place")
        if sealing.public_key(private_key) != roster.parties[place].public_key:
            message = f"this is not the key of {roster.parties[place].id!r} in the roster"
            raise InvalidParameter(message, field="private_key")
        roster.check_keys()
        self._roster, self._place, self._private_key = roster, place, private_key
        self._group_secret = sealing.check_group_secret(group_secret)
        self._secrets: dict[int, bytes] = {}
        self._shifts: dict[tuple[int, int], Shift] = {}
        self._concealed_for: tuple[int, int, bytes] | None = None

    def peak(self, values: Any) -> float:
        """The largest magnitude of what would be sent of some values: for the R of a round.

        Raises:
            InvalidParameter: not finite numbers.
        """
        checked = _as_floats(values)
        largest = float(np.abs(checked).max()) if checked.size else 0.0
        return largest * self._roster.plan.one_in

    def cells(self, update: Any, current: Round) -> Iterator[SentCell]:
        """The cells of a whole update, piece after piece.

        Args:
            update: shape ``(M,)``; taken as float32. A round that is concealed again needs the same
                one: the difference of two cells under one mask would be that of their values.
            current: the round, with this member in it.

        Raises:
            InvalidParameter: another shape, not finite, or a round that cannot be.
        """
        values, plan = _as_floats(update), self._roster.plan
        if values.shape != (plan.num_parameters,):
            message = f"an update has {plan.num_parameters} values, not {values.shape}"
            raise InvalidParameter(message, field="update")
        for piece in range(plan.pieces):
            start, stop = plan.stretch(piece)
            yield from self.piece_cells(values[start:stop], piece, current)

    def piece_cells(self, values: Any, piece: int, current: Round) -> Iterator[SentCell]:
        """The cells of one stretch of an update, for members that never hold all of it.

        Args:
            values: the values of the parameters of :meth:`Plan.stretch`, in their order.
            piece: the number of the piece.
            current: the round.

        Raises:
            InvalidParameter: as :meth:`cells`.
        """
        plan = self._roster.plan
        start, stop = plan.stretch(piece)
        checked = _as_floats(values)
        if checked.shape != (stop - start,):
            message = f"piece {piece} has {stop - start} values, not {checked.shape}"
            raise InvalidParameter(message, field="values")
        self._roster.check_round(current)
        if self._place not in current.weights:
            message = f"member {self._place} is not in round {current.number}"
            raise InvalidParameter(message, field="round")
        if plan.conceal:
            self._check_fresh(current)
        parts = self._roster.partition.split_stretch(checked, start // plan.shards)
        for shard, part in enumerate(parts):
            yield from self._shard_cells(part, shard, piece, current)

    def settle(self, round_number: int, counted: Iterable[int]) -> None:
        """Take the receipts of a round in which it took part: the shards whose results counted.

        None of them counted for a member that was refused. A repeated receipt changes nothing.
        """
        shards = set(counted)
        for (shard, _), shift in self._shifts.items():
            shift.settle(round_number, counted=shard in shards)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The state that lasts between rounds, as arrays, for a process that ends in between."""
        arrays = pack_shifts(self._shifts)
        if self._concealed_for is not None:
            number, attempt, digest = self._concealed_for
            arrays[_SENT] = np.array([number, attempt, *digest])
        return arrays

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on with the arrays of :meth:`state`, of the same roster."""
        shifts = dict(arrays)
        sent = shifts.pop(_SENT, None)
        if sent is not None:
            number, attempt, *digest = sent.tolist()
            self._concealed_for = (number, attempt, bytes(digest))
        self._shifts = unpack_shifts(shifts)

    def _check_fresh(self, current: Round) -> None:
        """Refuse to conceal one update for two sets of members, beyond a single second attempt.

        Two sums that differ by one member show its values to who sees both.

        Raises:
            InvalidParameter: a third attempt, or another round under a number that was used.
        """
        asked = (current.number, current.attempt, current.digest)
        before = self._concealed_for or (0, 0, b"")
        if current.attempt > MAX_ATTEMPT:
            raise InvalidParameter("there is no third attempt at a concealed round", field="round")
        if asked != before and asked[:2] <= before[:2]:
            message = (
                f"round {current.number}, attempt {current.attempt} was answered for other members"
            )
            raise InvalidParameter(message, field="round")
        self._concealed_for = asked

    def _shard_cells(
        self, part: Floats, shard: int, piece: int, current: Round
    ) -> Iterator[SentCell]:
        sent = self._compress(part, shard, piece, current)
        kind, count = Kind.FLOAT32, sent.size
        payload: bytes | memoryview
        if self._roster.plan.conceal:
            words = self._conceal(sent, shard, piece, current)
            kind, count, payload = Kind.UINT32, words.size, _bytes(words, "<u4")
        elif self._roster.plan.quantize is not None:
            rounded = quantize(sent, int.from_bytes(os.urandom(8), "little"))
            self._propose(rounded.values(), shard, piece, current)
            kind = Kind.INT8
            payload = rounded.codes.tobytes() + rounded.scales.astype("<f4").tobytes()
        else:
            self._propose(sent, shard, piece, current)
            payload = _bytes(sent, "<f4")
        header = CellHeader(
            kind, Sealing.SEALED, shard, piece, current.number, current.attempt, 0, self._place,
            count, self._roster.digest,
        )  # fmt: skip
        info = sealing.binding(header.pack(), self._group_secret)
        for holder in self._roster.holders(shard):
            key = self._roster.parties[holder].public_key
            yield SentCell(
                shard, piece, holder, encode_cell(header, sealing.seal(payload, key, info))
            )

    def _compress(self, part: Floats, shard: int, piece: int, current: Round) -> Floats:
        """The kept values of a part, relative to the shift if there is one, times c."""
        plan = self._roster.plan
        if plan.one_in == 1:
            return part
        thinning = self._roster.thinning(shard, piece, current.number, self._place)
        kept = thinning.take(part)
        if plan.shifted:
            shift = self._shifts.setdefault((shard, piece), Shift.zeros(part.size))
            kept = kept - shift.values[thinning.positions]
        scaled: Floats = kept * np.float32(plan.one_in)
        return scaled

    def _propose(self, sent: Floats, shard: int, piece: int, current: Round) -> None:
        """Keep the step of the shift until the receipt of this round."""
        plan = self._roster.plan
        if not plan.shifted:
            return
        step = np.float32(gamma(omega(plan.one_in, quantized=plan.quantize is not None)))
        thinning = self._roster.thinning(shard, piece, current.number, self._place)
        shift = self._shifts[shard, piece]
        shift.propose(current.number, step * sent, thinning.positions)

    def _conceal(
        self, sent: Floats, shard: int, piece: int, current: Round
    ) -> npt.NDArray[np.uint32]:
        assert current.peak is not None  # checked with the round
        words = FixedPoint(current.peak).encode(sent, current.share(self._place))
        ring = pairwise_masks.neighbors(current.taking_part, stream(self._roster.seed, Label.RING))
        label = pairwise_masks.mask_label(self._roster, shard, piece, current, self._group_secret)
        for other in ring[self._place]:
            if other in self._roster.low_order:
                continue  # its aggregators leave it out, and a mask that all know conceals nothing
            if other not in self._secrets:
                key = self._roster.parties[other].public_key
                self._secrets[other] = pairwise_masks.pair_secret(self._private_key, key)
            subtract = self._place > other
            pairwise_masks.add_keystream(words, self._secrets[other], label, subtract=subtract)
        return words


def _bytes(values: npt.NDArray[Any], dtype: str) -> bytes | memoryview:
    """The bytes of values in the order of the wire; a view where they lie so already."""
    if not values.size:
        return b""  # what a short last block may leave; such a view cannot be cast
    return np.ascontiguousarray(values, dtype).data.cast("B")


def _as_floats(values: Any) -> Floats:
    """Return values as float32.

    Raises:
        InvalidParameter: not a vector of finite numbers.
    """
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        message = f"a vector of numbers is expected, not {array.dtype} of {array.shape}"
        raise InvalidParameter(message, field="update")
    floats = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(floats).all():
        at = int(np.flatnonzero(~np.isfinite(floats))[0])
        message = f"value {at} is {array[at]}: it would spoil the average of all members"
        raise InvalidParameter(message, field="update")
    return floats
