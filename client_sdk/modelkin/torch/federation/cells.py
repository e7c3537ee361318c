"""Cells: parts of a shard, plain, shifted or concealed, that ranks send and aggregators combine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from modelkin.federation.shards.draws import Label, stream
from modelkin.federation.shards.fixed_point import FixedPoint
from modelkin.federation.shards.plan import CHECK_WORDS
from modelkin.federation.shards.public_keys import check_public_key
from modelkin.federation.shards.roster import Roster, Round
from modelkin.federation.shards.shifts import gamma
from modelkin.federation.shards.thinning import omega
from modelkin.federation.sharing import pairwise_masks
from modelkin.torch.federation import shards as _shards

__all__ = ["Cell", "Cells", "ConcealedCells", "PlainCells", "ShiftedCells"]


@dataclass(frozen=True, slots=True)
class Cell:
    """The piece of a shard in a round that a cell belongs to."""

    shard: int
    piece: int
    current: Round

    @property
    def draw_labels(self) -> tuple[int, int, int]:
        """Shard, piece and round, which decide the kept values."""
        return self.shard, self.piece, self.current.number


class Cells(Protocol):
    """The cells of one rank, a member and perhaps an aggregator of a roster.

    All tensors are of one shard's piece, on the device of the group.
    """

    dtype: torch.dtype

    def count(self, cell: Cell, place: int, /) -> int:
        """The number of values in the cell of a member."""

    def make(self, part: Tensor, cell: Cell, /) -> Tensor:
        """Make this rank's cell of its float32 values."""

    def combine(self, cells: Sequence[Tensor], cell: Cell, /) -> Tensor | None:
        """Combine all ranks' cells, by place; None if their masks do not cancel."""

    def result_count(self, cell: Cell, /) -> int:
        """The number of values in a result."""

    def spread(self, result: Tensor, cell: Cell, /) -> Tensor:
        """Put the result in the places of the values, with zeros elsewhere."""

    def settle(self, *, counted: bool) -> None:
        """End a round: move the shifts if the round counted, else forget the steps."""


class PlainCells:
    """Cells of float32 values; all members keep the same positions."""

    dtype = torch.float32

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def count(self, cell: Cell, place: int) -> int:
        return self._roster.thinning(*cell.draw_labels, place).count

    def make(self, part: Tensor, cell: Cell) -> Tensor:
        one_in = self._roster.plan.one_in
        if one_in == 1:
            return part
        return _shards.take(self._thinning(cell), part) * float(one_in)

    def combine(self, cells: Sequence[Tensor], cell: Cell) -> Tensor | None:
        return _shards.mean(cells, _weights(cell.current))

    def result_count(self, cell: Cell) -> int:
        return self.count(cell, 0)

    def spread(self, result: Tensor, cell: Cell) -> Tensor:
        return _shards.spread(self._thinning(cell), result)

    def settle(self, *, counted: bool) -> None:
        """Do nothing: plain cells have no shifts."""

    def _thinning(self, cell: Cell) -> Any:
        return self._roster.thinning(*cell.draw_labels, 0)


class ConcealedCells(PlainCells):
    """Sums alone: 32-bit fixed point under pairwise masks, which cancel in the sum of all.

    Args:
        roster: the roster, with the public keys of all ranks.
        place: this rank's place.
        private_key: 32 bytes (X25519), for this rank's public key in the roster.
    """

    dtype = torch.int32  # the bits of uint32, which collectives do not carry

    def __init__(self, roster: Roster, place: int, private_key: bytes) -> None:
        super().__init__(roster)
        for party in roster.parties:
            check_public_key(party.public_key, f"rank {party.id}: ")
        roster.check_keys()
        self._place = place
        ring = pairwise_masks.neighbors(roster.members, stream(roster.seed, Label.RING))
        self._secrets = {
            other: pairwise_masks.pair_secret(private_key, roster.parties[other].public_key)
            for other in ring[place]
        }

    def count(self, cell: Cell, place: int) -> int:
        return super().count(cell, place) + CHECK_WORDS

    def make(self, part: Tensor, cell: Cell) -> Tensor:
        kept = super().make(part, cell)
        assert cell.current.peak is not None, "a concealed round has R"
        words = FixedPoint(cell.current.peak).encode(
            kept.cpu().numpy(), cell.current.share(self._place)
        )
        label = pairwise_masks.mask_label(self._roster, cell.shard, cell.piece, cell.current, None)
        for other, secret in self._secrets.items():
            pairwise_masks.add_keystream(words, secret, label, subtract=self._place > other)
        return torch.from_numpy(words.view(np.int32)).to(part.device)

    def combine(self, cells: Sequence[Tensor], cell: Cell) -> Tensor | None:
        total = torch.zeros_like(cells[0])
        for words in cells:
            total += words  # wraps as uint32 does
        assert cell.current.peak is not None, "a concealed round has R"
        decoded = FixedPoint(cell.current.peak).decode(
            total.cpu().numpy().view(np.uint32), len(cells)
        )
        return None if decoded is None else torch.from_numpy(decoded).to(total.device)

    def result_count(self, cell: Cell) -> int:
        return super().count(cell, 0)


class ShiftedCells:
    """Cells of differences to shifts; each member keeps positions of its own.

    Attributes:
        sent: this rank's shifts s_k as a member, by shard and piece.
        held: this rank's shifts s as an aggregator, by shard and piece.
    """

    dtype = torch.float32

    def __init__(self, roster: Roster, place: int, device: torch.device) -> None:
        self._roster, self._place, self._device = roster, place, device
        self._step = gamma(omega(roster.plan.one_in))
        self.sent: dict[tuple[int, int], Tensor] = {}
        self.held: dict[tuple[int, int], Tensor] = {}
        self._proposed: list[tuple[Tensor, Tensor | None, Tensor]] = []

    def count(self, cell: Cell, place: int) -> int:
        return self._roster.thinning(*cell.draw_labels, place).count

    def make(self, part: Tensor, cell: Cell) -> Tensor:
        thinning = self._roster.thinning(*cell.draw_labels, self._place)
        at = _shards.positions(thinning, part.device)
        shift = self.sent.setdefault((cell.shard, cell.piece), torch.zeros_like(part))
        kept = (_shards.take(thinning, part) - shift[at]) * float(thinning.one_in)
        self._proposed.append((shift, at, kept * float(np.float32(self._step))))
        return kept

    def combine(self, cells: Sequence[Tensor], cell: Cell) -> Tensor | None:
        size = self._roster.piece_size(cell.shard, cell.piece)
        summed = torch.zeros(size, dtype=torch.float64, device=self._device)
        for place, values in enumerate(cells):
            thinning = self._roster.thinning(*cell.draw_labels, place)
            at = _shards.positions(thinning, self._device)
            summed[at] += values.double() * cell.current.weights[place]
        summed /= cell.current.total
        shift = self.held.setdefault(
            (cell.shard, cell.piece), torch.zeros(size, dtype=torch.float32, device=self._device)
        )
        self._proposed.append((shift, None, (summed * self._step).float()))
        return (summed + shift.double()).float()

    def result_count(self, cell: Cell) -> int:
        return self._roster.piece_size(cell.shard, cell.piece)

    def spread(self, result: Tensor, _cell: Cell) -> Tensor:
        return result

    def settle(self, *, counted: bool) -> None:
        for shift, at, step in self._proposed if counted else ():
            if at is None:
                shift += step
            else:
                shift[at] += step
        self._proposed = []


def _fixed_point(current: Round) -> FixedPoint:
    assert current.peak is not None, "a concealed round has R"
    return FixedPoint(current.peak)


def _weights(current: Round) -> list[float]:
    return [current.weights[place] for place in current.taking_part]
