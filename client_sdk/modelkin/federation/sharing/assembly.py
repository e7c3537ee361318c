"""The results of all shards, opened and put together: the average of the updates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidCell
from modelkin.federation.shards.roster import Roster, Round
from modelkin.federation.sharing import sealing
from modelkin.federation.sharing.aggregator import check_header
from modelkin.wire.cell import CellHeader, Kind, Sealing, decode_cell

__all__ = ["assemble", "assemble_piece", "open_result"]

Floats = npt.NDArray[np.float32]


def open_result(
    roster: Roster,
    place: int,
    private_key: bytes,
    data: bytes,
    *,
    shard: int,
    piece: int,
    current: Round,
    group_secret: bytes | None = None,
) -> Floats:
    """Open the result of one piece, as one of the roster's parties.

    Raises:
        InvalidCell: of something else, of who does not hold the shard, changed on the way, or not
            finite.
    """
    header, payload = decode_cell(data)
    parties = len(roster.parties)
    if not 0 <= place < parties or header.place not in roster.holders(shard):
        raise InvalidCell("the result is for parties alone, and by who holds the shard")
    count = roster.result_count(shard, piece, current.number)
    check_header(
        header,
        CellHeader(
            Kind.FLOAT32, Sealing.WRAPPED, shard, piece, current.number, current.attempt,
            parties, header.place, count, roster.digest,
        ),
    )  # fmt: skip
    info = sealing.binding(header.pack(), group_secret)
    opened = sealing.unwrap(payload, parties, place, private_key, info)
    values = np.frombuffer(opened, "<f4").astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        raise InvalidCell("the result has values that are not finite")
    return values


def assemble_piece(
    roster: Roster, current: Round, piece: int, results: Mapping[int, Floats]
) -> Floats:
    """The average update of one stretch, shape ``(stop - start,)``.

    Args:
        roster: the plan and all parties, which decide the partition.
        current: the round.
        piece: which stretch.
        results: the results of the shards; zeros stand for a shard that is missing, and for what
            was not kept.
    """
    plan = roster.plan
    start, stop = plan.stretch(piece)
    sizes = roster.partition.sizes(start // plan.shards, stop - start)
    parts = []
    for shard, size in enumerate(sizes.tolist()):
        values = results.get(shard)
        if values is None:
            values = np.zeros(size, np.float32)
        elif not plan.shifted:
            values = roster.thinning(shard, piece, current.number, 0).spread(values)
        parts.append(values)
    return roster.partition.join_stretch(parts, start // plan.shards)


def assemble(roster: Roster, current: Round, results: Mapping[int, Mapping[int, Floats]]) -> Floats:
    """The average update, shape ``(M,)``: what is added to the model at a server rate of 1.

    Args:
        roster: the plan and all parties, which decide the partition.
        current: the round.
        results: averages of the shards that counted, by shard and piece.
    """
    update = np.empty(roster.plan.num_parameters, np.float32)
    for piece in range(roster.plan.pieces):
        start, stop = roster.plan.stretch(piece)
        found = {shard: pieces[piece] for shard, pieces in results.items()}
        update[start:stop] = assemble_piece(roster, current, piece, found)
    return update
