"""The records of shards: how Flower carries messages, and a client's state.

Messages are of type ``train``: Flower asks no mod about a type that the app did not register. The
records lie beside the one of supports, so that both mods can be in one app.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.shards.messages import ShardMessage
from modelkin.integrations.flower import _arrays

__all__ = ["CELLS", "RECORD", "VALUES", "FlowerState", "late_nodes", "message_of", "record_of"]

RECORD: Final = "modelkin-shards"
"""The name of the record in messages of both directions, and in a client's state."""

CELLS: Final = "modelkin-shard-cells"
"""The name of the record of sealed cells, from a member or to an aggregator."""

VALUES: Final = "modelkin-shard-values"
"""The name of the record of an aggregator's results."""

_REPLY: Final = "modelkin-reply/"
"""What the names of the records of a kept reply begin with, in a client's state."""

_CELL: Final = "application/vnd.modelkin.cell"


def record_of(message: ShardMessage) -> RecordDict:
    """A message as Flower carries it: cells as arrays, since Flower cuts only arrays in chunks."""
    found = RecordDict({RECORD: ConfigRecord(dict(message.values))})
    if message.cells is not None:
        found[CELLS] = ArrayRecord(
            {
                name: Array("uint8", (len(data),), _CELL, data)
                for name, data in message.cells.items()
            }
        )
    if message.results is not None:
        arrays = {name: Array(values) for name, values in message.results.items()}
        found[VALUES] = ArrayRecord(arrays)
    return found


def message_of(content: RecordDict) -> ShardMessage | None:
    """The message of :func:`record_of`; None where there is none. Its results are read later."""
    values, arrays = content.config_records.get(RECORD), content.array_records
    if values is None:
        return None
    cells = None
    if CELLS in arrays:
        cells = {name: array.data for name, array in arrays[CELLS].items()}
    results = _Numpy(arrays[VALUES], _values) if VALUES in arrays else None
    return ShardMessage(values, cells, results)


def late_nodes(replies: Iterable[Message]) -> dict[int, str]:
    """The reasons why supports in replies are of no model of this round, by node."""
    found = dict[int, str]()
    for reply in replies:
        said = reply.content.config_records.get(RECORD) if reply.has_content() else None
        if said is not None and said.get("staleness"):
            found[reply.metadata.src_node_id] = "its update is of an earlier round, as its support"
    return found


class _Numpy(Mapping[str, npt.NDArray[Any]]):
    """The values of a record's arrays, each read when it is asked for."""

    def __init__(self, record: ArrayRecord, values_of: Callable[[Array], Any]) -> None:
        self._record, self._values_of = record, values_of

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self._values_of(self._record[name])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)


def _values(array: Array) -> npt.NDArray[Any]:
    """The values that the bytes of an array hold, whatever shape it states."""
    if not array.data:
        raise InvalidParameter("it sent an array of no bytes", field="values")
    return _arrays.values_of(array)


class FlowerState:
    """What a client keeps in Flower's state, which outlasts the process of a message.

    Args:
        state: the client's state.
    """

    def __init__(self, state: RecordDict) -> None:
        self._state = state

    @property
    def values(self) -> ConfigRecord:
        """The record of shards."""
        if RECORD not in self._state.config_records:
            self._state[RECORD] = ConfigRecord()
        return self._state.config_records[RECORD]

    def arrays(self, group: str) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays of a group."""
        return _Numpy(self._state.array_records.get(group, ArrayRecord()), Array.numpy)

    def add(self, group: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add arrays to a group."""
        if group not in self._state.array_records:
            self._state[group] = ArrayRecord()
        for name, values in arrays.items():
            self._state.array_records[group][name] = Array(values)

    def drop(self, group: str) -> None:
        """Forget a group of arrays."""
        self._state.pop(group, None)

    def keep_reply(self, content: RecordDict) -> None:
        """Keep what an app replied beside its arrays, in the place of what it replied before."""
        for name in [name for name in self._state if name.startswith(_REPLY)]:
            del self._state[name]
        for name, record in content.items():
            self._state[_REPLY + name] = deepcopy(record)

    def kept_reply(self) -> RecordDict:
        """The content of the reply that is kept."""
        return RecordDict(
            {
                name.removeprefix(_REPLY): deepcopy(record)
                for name, record in self._state.items()
                if name.startswith(_REPLY)
            }
        )
