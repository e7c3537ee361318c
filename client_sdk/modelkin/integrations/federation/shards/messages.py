"""``ShardMessage``: what a server and its clients say to each other in the rounds of shards.

Values are numbers, strings, bytes and lists of these. A carrier puts a message in a form of its
own, and need not understand it. What another party sent is unchecked: see :func:`read`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.federation.shards.public_keys import check_public_key
from modelkin.federation.shards.roster import Party, Round
from modelkin.federation.sharing import Combined, SentCell
from modelkin.integrations.federation.shards.members import Receipt
from modelkin.integrations.federation.shards.results import Piece

__all__ = [
    "ShardMessage",
    "cells_to_combine",
    "named_cells",
    "named_sent_cells",
    "opened",
    "party_of",
    "party_values",
    "piece_values",
    "pieces_of",
    "read",
    "receipt_values",
    "receipts_of",
    "results_message",
    "results_of",
    "round_of",
    "round_values",
    "sent_cells",
    "tag_values",
    "tags_of",
]

T = TypeVar("T")
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class ShardMessage:
    """A question or an answer.

    Attributes:
        values: what is asked, or said.
        cells: sealed cells by their names; None where there are none.
        results: an aggregator's values by the names of their pieces; None where there are none.
    """

    values: Values = field(default_factory=dict)
    cells: Mapping[str, bytes] | None = None
    results: Mapping[str, npt.NDArray[Any]] | None = None


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


def opened(answer: ShardMessage | str) -> ShardMessage:
    """An answer that is there and no refusal.

    Raises:
        InvalidInput: there is none, with the reason, or the client refused.
    """
    if isinstance(answer, str):
        raise InvalidInput(answer)
    if "refused" in answer.values:
        raise InvalidInput(str(answer.values["refused"]))
    return answer


def party_values(party: Party, last_round: int) -> dict[str, Any]:
    """The values of a client that joins."""
    return {
        "public-key": party.public_key,
        "may-aggregate": party.may_aggregate,
        "neutral": party.neutral,
        "last-round": last_round,
    }


def party_of(name: str, values: Values) -> tuple[Party, int]:
    """The party of :func:`party_values`, and the last round that it took part in."""
    key, last = values["public-key"], values["last-round"]
    if type(key) is not bytes:
        raise InvalidParameter("its public key is not bytes", field="public-key")
    check_public_key(key)
    if type(last) is not int or not 0 <= last < 2**31:
        raise InvalidParameter("its last round is not a round's number", field="last-round")
    return Party(name, key, bool(values["may-aggregate"]), bool(values["neutral"])), last


def receipt_values(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """The values of the receipts of a client's rounds; empty if it has none."""
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


def named_sent_cells(cells: Iterable[SentCell]) -> dict[str, bytes]:
    """A member's cells, by shard, piece and holder."""
    return {f"{cell.shard}/{cell.piece}/{cell.holder}": cell.data for cell in cells}


def sent_cells(message: ShardMessage) -> list[SentCell]:
    """The cells of :func:`named_sent_cells`."""
    return [SentCell(*cell) for cell in _cells(message)]


def named_cells(cells: Mapping[Piece, Mapping[int, bytes]]) -> dict[str, bytes]:
    """An aggregator's cells, by shard, piece and member."""
    return {
        f"{shard}/{piece}/{place}": data
        for (shard, piece), members in cells.items()
        for place, data in members.items()
    }


def cells_to_combine(message: ShardMessage) -> dict[Piece, dict[int, bytes]]:
    """The cells of :func:`named_cells`."""
    found: dict[Piece, dict[int, bytes]] = {}
    for shard, piece, place, data in _cells(message):
        found.setdefault((shard, piece), {})[place] = data
    return found


def _cells(message: ShardMessage) -> Iterator[tuple[int, int, int, bytes]]:
    if message.cells is None:
        raise InvalidParameter("there are no cells", field="cells")
    for name, data in message.cells.items():
        shard, piece, party = map(int, name.split("/"))
        yield shard, piece, party, data


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


def results_message(results: Mapping[Piece, Combined]) -> ShardMessage:
    """The message of an aggregator's verdicts and values."""
    verdicts = [
        {"piece": piece, "refused": sorted(c.refused.items()), "failed": c.failed}
        for piece, c in results.items()
    ]
    values = {
        f"{shard}/{piece}": combined.values
        for (shard, piece), combined in results.items()
        if combined.values is not None
    }
    return ShardMessage({"verdicts": json.dumps(verdicts)}, results=values)


def results_of(message: ShardMessage) -> dict[Piece, Combined]:
    """The results of :func:`results_message`."""
    if message.results is None:
        raise InvalidParameter("it sent no results", field="values")
    found: dict[Piece, Combined] = {}
    for verdict in json.loads(str(message.values["verdicts"])):
        shard, piece = (int(number) for number in verdict["piece"])
        values = message.results.get(f"{shard}/{piece}")
        if values is not None and (values.dtype != np.float32 or values.ndim != 1):
            raise InvalidParameter("its values are not a row of float32", field="values")
        refused = {int(place): str(why) for place, why in verdict["refused"]}
        failed = verdict["failed"] if verdict["failed"] is None else str(verdict["failed"])
        found[shard, piece] = Combined(values, refused, failed)
    return found
