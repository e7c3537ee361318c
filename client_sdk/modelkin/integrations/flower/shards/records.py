"""The record of shards: values that Flower carries, in both directions.

Messages are of type ``train``: Flower asks no mod about a type that the app did not register. The
record lies beside the one of supports, so that both mods can be in one app.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.federation.shards.public_keys import check_public_key
from modelkin.federation.shards.roster import Party, Round
from modelkin.federation.sharing import Combined, SentCell
from modelkin.integrations.federation.shards.members import Receipt
from modelkin.integrations.federation.shards.results import Piece
from modelkin.integrations.flower import _arrays

__all__ = [
    "CELLS",
    "RECORD",
    "VALUES",
    "cells_to_combine",
    "combine_record",
    "party_of",
    "party_values",
    "piece_values",
    "pieces_of",
    "read",
    "receipt_values",
    "receipts_of",
    "results_of",
    "results_record",
    "round_of",
    "round_values",
    "sent_cells",
    "sent_record",
    "tag_values",
    "tags_of",
]

RECORD: Final = "modelkin-shards"
"""The name of the record in messages of both directions, and in a client's state."""

CELLS: Final = "modelkin-shard-cells"
"""The name of the record of sealed cells, from a member or to an aggregator."""

VALUES: Final = "modelkin-shard-values"
"""The name of the record of an aggregator's results."""

_CELL: Final = "application/vnd.modelkin.cell"

T = TypeVar("T")
Values = Mapping[str, Any]


def read(what: str, make: Callable[[], T]) -> T:
    """Read a value that another party sent; any error is that party's fault.

    Raises:
        InvalidInput: the value is malformed.
    """
    try:
        return make()
    except InvalidInput:
        raise
    except Exception as error:  # also MemoryError, OverflowError, EOFError, BadZipFile...
        raise InvalidParameter(f"{what} is damaged: {error!r}", field=what) from None


def party_values(party: Party, last_round: int) -> dict[str, Any]:
    """The values of a node that joins."""
    return {
        "public-key": party.public_key,
        "may-aggregate": party.may_aggregate,
        "neutral": party.neutral,
        "last-round": last_round,
    }


def party_of(node: int, values: Values) -> tuple[Party, int]:
    """The node of :func:`party_values`, and the last round that the node took part in."""
    key, last = values["public-key"], values["last-round"]
    if type(key) is not bytes:
        raise InvalidParameter("its public key is not bytes", field="public-key")
    check_public_key(key)
    if type(last) is not int or not 0 <= last < 2**31:
        raise InvalidParameter("its last round is not a round's number", field="last-round")
    party = Party(str(node), key, bool(values["may-aggregate"]), bool(values["neutral"]))
    return party, last


def receipt_values(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """The values of the receipts of a node's rounds; empty if it has none."""
    return {"receipts": json.dumps([asdict(each) for each in receipts])} if receipts else {}


def receipts_of(values: Values) -> list[Receipt]:
    """The receipts of :func:`receipt_values`."""
    return [
        Receipt(int(each["round"]), str(each["digest"]), tuple(each["shards"]), tuple(each["held"]))
        for each in json.loads(values.get("receipts", "[]"))
    ]


def round_values(current: Round) -> dict[str, Any]:
    """The values of a round whose members are fixed."""
    fields = {
        "number": current.number,
        "weights": sorted(current.weights.items()),
        "attempt": current.attempt,
        "peak": current.peak,
        "roster_total": current.roster_total,
    }
    return {"round": json.dumps(fields)}


def round_of(values: Values) -> Round:
    """The round of :func:`round_values`."""
    fields = json.loads(values["round"])
    weights = {int(place): weight for place, weight in fields.pop("weights")}
    return Round(weights=weights, **fields)


def sent_record(cells: Sequence[SentCell]) -> ArrayRecord:
    """The record of a member's cells, by shard, piece and holder."""
    return _record((cell.shard, cell.piece, cell.holder, cell.data) for cell in cells)


def sent_cells(content: RecordDict) -> list[SentCell]:
    """The cells of :func:`sent_record` in an answer."""
    return [SentCell(*cell) for cell in _cells(content)]


def combine_record(cells: Mapping[Piece, Mapping[int, bytes]]) -> ArrayRecord:
    """The record of an aggregator's cells, by shard, piece and member."""
    return _record(
        (shard, piece, place, data)
        for (shard, piece), members in cells.items()
        for place, data in members.items()
    )


def cells_to_combine(content: RecordDict) -> dict[Piece, dict[int, bytes]]:
    """The cells of :func:`combine_record` in a message."""
    found: dict[Piece, dict[int, bytes]] = {}
    for shard, piece, place, data in _cells(content):
        found.setdefault((shard, piece), {})[place] = data
    return found


def _record(cells: Iterable[tuple[int, int, int, bytes]]) -> ArrayRecord:
    """Cells as arrays of bytes, since Flower cuts only arrays into chunks."""
    return ArrayRecord(
        {
            f"{shard}/{piece}/{party}": Array("uint8", (len(data),), _CELL, data)
            for shard, piece, party, data in cells
        }
    )


def _cells(content: RecordDict) -> Iterator[tuple[int, int, int, bytes]]:
    for name, array in content.array_records[CELLS].items():
        shard, piece, party = map(int, name.split("/"))
        yield shard, piece, party, array.data


def piece_values(pieces: Sequence[Piece]) -> dict[str, Any]:
    """The values of pieces whose results are asked for."""
    return {"pieces": json.dumps(pieces)}


def pieces_of(values: Values) -> list[Piece]:
    """The pieces of :func:`piece_values`."""
    return [(int(shard), int(piece)) for shard, piece in json.loads(values["pieces"])]


def tag_values(tags: Mapping[int, bytes]) -> dict[str, Any]:
    """The values of tags, which prove that examples are a member's own, by a party's place."""
    return {"tag-of": list(tags), "tags": list(tags.values())}


def tags_of(values: Values) -> dict[int, bytes]:
    """The tags of :func:`tag_values`, perhaps none."""
    tags = values.get("tags", ())
    if not all(type(tag) is bytes for tag in tags):
        raise InvalidParameter("a tag is not bytes", field="tags")
    return dict(zip(values.get("tag-of", ()), tags, strict=True))


def results_record(results: Mapping[Piece, Combined]) -> RecordDict:
    """The record of an aggregator's verdicts and values."""
    verdicts = [
        {"piece": piece, "refused": sorted(c.refused.items()), "failed": c.failed}
        for piece, c in results.items()
    ]
    values = {
        f"{shard}/{piece}": Array(combined.values)
        for (shard, piece), combined in results.items()
        if combined.values is not None
    }
    verdict = ConfigRecord({"verdicts": json.dumps(verdicts)})
    return RecordDict({RECORD: verdict, VALUES: ArrayRecord(values)})


def results_of(content: RecordDict) -> dict[Piece, Combined]:
    """The results of :func:`results_record`."""
    found: dict[Piece, Combined] = {}
    arrays = content.array_records[VALUES]
    for verdict in json.loads(str(content.config_records[RECORD]["verdicts"])):
        shard, piece = (int(number) for number in verdict["piece"])
        array = arrays.get(f"{shard}/{piece}")
        values = None if array is None else _values(array)
        if values is not None and (values.dtype != np.float32 or values.ndim != 1):
            raise InvalidParameter("its values are not a row of float32", field="values")
        refused = {int(place): str(why) for place, why in verdict["refused"]}
        failed = verdict["failed"] if verdict["failed"] is None else str(verdict["failed"])
        found[shard, piece] = Combined(values, refused, failed)
    return found


def _values(array: Array) -> npt.NDArray[Any]:
    """The values that the bytes of an array hold, whatever shape it states."""
    if not array.data:
        raise InvalidParameter("it sent an array of no bytes", field="values")
    return _arrays.values_of(array)
