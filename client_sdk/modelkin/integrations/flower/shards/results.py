"""``ShardResults``: results that an aggregator may send, kept across the processes of messages.

Two averages of one round that differ by one member show the member's values. So results are kept
until all aggregators have checked their cells, and only one set with a given member has its results
sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.roster import Round
from modelkin.federation.sharing import Combined
from modelkin.integrations.federation.shards.results import Piece

__all__ = ["ShardResults"]

_RESULTS: Final = "modelkin-results"
_KEPT_FOR, _SENT = "results-of", "results-sent"


class ShardResults:
    """The results of a client, in its state.

    Args:
        own: the record of shards in the state.
        state: the client's state.
    """

    def __init__(self, own: ConfigRecord, state: RecordDict) -> None:
        self._own, self._state = own, state

    def keep(self, results: Mapping[Piece, Combined], current: Round) -> None:
        """Keep the results of a round until they are asked for; drop those of another round."""
        name = current.digest.hex()
        if self._own.get(_KEPT_FOR) != name:
            self._own[_KEPT_FOR], self._state[_RESULTS] = name, ArrayRecord()
        for (shard, piece), combined in results.items():
            if combined.values is not None:
                kept = self._state.array_records[_RESULTS]
                kept[f"{shard}/{piece}"] = Array(combined.values)

    def take(self, pieces: Iterable[Piece], current: Round) -> dict[Piece, Combined]:
        """The kept results of some pieces, to be sent.

        Raises:
            InvalidParameter: no results of the pieces are kept, or :meth:`send` refuses.
        """
        kept = self._state.array_records.get(_RESULTS, ArrayRecord())
        names = {piece: f"{piece[0]}/{piece[1]}" for piece in pieces}
        if self._own.get(_KEPT_FOR) != current.digest.hex() or not set(names.values()) <= set(kept):
            raise InvalidParameter("nothing was combined of this round", field="round")
        self.send(current)
        return {piece: Combined(kept[name].numpy()) for piece, name in names.items()}

    def send(self, current: Round) -> None:
        """Note that results of a round are sent.

        Raises:
            InvalidParameter: results of another set with some of these members were sent, or
                results of a later round.
        """
        sent = json.loads(str(self._own.get(_SENT, '{"number": 0, "sets": {}}')))
        if current.number > sent["number"]:
            sent = {"number": current.number, "sets": {}}
        name, places = current.digest.hex(), list(current.taking_part)
        others = [set(found) for other, found in sent["sets"].items() if other != name]
        if current.number < sent["number"] or any(found & set(places) for found in others):
            raise InvalidParameter(
                "results of this round were sent for other members", field="round"
            )
        sent["sets"][name] = places
        self._own[_SENT] = json.dumps(sent)
