"""``ShardState``: what a client keeps between the messages of the rounds of shards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.roster import Round
from modelkin.federation.sharing import Combined
from modelkin.integrations.federation.shards.results import Piece

__all__ = ["KeptResults", "MemoryState", "ShardState"]

Arrays = Mapping[str, npt.NDArray[Any]]


class ShardState(Protocol):
    """The state of a client, which outlasts a message, and perhaps its process."""

    @property
    def values(self) -> MutableMapping[str, Any]:
        """Numbers, strings and bytes by name; empty before the client has joined."""

    def arrays(self, group: str) -> Arrays:
        """The arrays of a group by name; empty where there are none."""

    def add(self, group: str, arrays: Arrays) -> None:
        """Add arrays to a group, in the place of those of the same names."""

    def drop(self, group: str) -> None:
        """Forget a group of arrays, if there is one."""


class MemoryState:
    """The state of a client whose process lasts as long as its federation."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._arrays: dict[str, dict[str, npt.NDArray[Any]]] = {}

    def arrays(self, group: str) -> Arrays:
        """The arrays of a group."""
        return self._arrays.get(group, {})

    def add(self, group: str, arrays: Arrays) -> None:
        """Add copies of arrays to a group."""
        copies = {name: np.array(values) for name, values in arrays.items()}
        self._arrays.setdefault(group, {}).update(copies)

    def drop(self, group: str) -> None:
        """Forget a group of arrays."""
        self._arrays.pop(group, None)


_RESULTS: Final = "modelkin-results"
_KEPT_FOR, _SENT = "results-of", "results-sent"


class KeptResults:
    """The results that an aggregator may send, kept until all aggregators have checked their cells.

    Two averages of one round that differ by one member show the member's values. So only one set
    with a given member has its results sent.

    Args:
        state: the client's state.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state

    def keep(self, results: Mapping[Piece, Combined], current: Round) -> None:
        """Keep the results of a round until they are asked for; drop those of another round."""
        name = current.digest.hex()
        if self._state.values.get(_KEPT_FOR) != name:
            self._state.values[_KEPT_FOR] = name
            self._state.drop(_RESULTS)
        values = {
            f"{shard}/{piece}": combined.values
            for (shard, piece), combined in results.items()
            if combined.values is not None
        }
        self._state.add(_RESULTS, values)

    def take(self, pieces: Iterable[Piece], current: Round) -> dict[Piece, Combined]:
        """The kept results of some pieces, to be sent.

        Raises:
            InvalidParameter: no results of the pieces are kept, or :meth:`send` refuses.
        """
        kept, of = self._state.arrays(_RESULTS), self._state.values.get(_KEPT_FOR)
        names = {piece: f"{piece[0]}/{piece[1]}" for piece in pieces}
        if of != current.digest.hex() or not set(names.values()) <= set(kept):
            raise InvalidParameter("nothing was combined of this round", field="round")
        self.send(current)
        return {piece: Combined(kept[name]) for piece, name in names.items()}

    def send(self, current: Round) -> None:
        """Note that results of a round are sent.

        Raises:
            InvalidParameter: results of another set with some of these members were sent, or
                results of a later round.
        """
        sent = json.loads(str(self._state.values.get(_SENT, '{"number": 0, "sets": {}}')))
        if current.number > sent["number"]:
            sent = {"number": current.number, "sets": {}}
        name, places = current.digest.hex(), list(current.taking_part)
        others = [set(found) for other, found in sent["sets"].items() if other != name]
        if current.number < sent["number"] or any(found & set(places) for found in others):
            raise InvalidParameter(
                "results of this round were sent for other members", field="round"
            )
        sent["sets"][name] = places
        self._state.values[_SENT] = json.dumps(sent)
