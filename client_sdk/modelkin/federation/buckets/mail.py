"""``BucketMail``: answers a party of a merge by the objects of a bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from modelkin.errors import ConnectionFailed, InvalidParameter, MergeFailed
from modelkin.federation.buckets.joining import why_not
from modelkin.federation.buckets.record import Record
from modelkin.federation.buckets.stores import Store
from modelkin.types.merges import Merge

__all__ = ["BucketMail"]

Ask: TypeAlias = Callable[[], Any]

_MAX_BYTES: Final = 64 << 20
_MAX_PATIENCE_S: Final = 240.0


class BucketMail:
    """A :class:`modelkin.federation.merging.mail.Mail` for one party; each question is a function.

    Args:
        store: keeps the sealed cells and results.
        record: the merge.
        party: the party's name.
    """

    def __init__(self, store: Store, record: Record, party: str) -> None:
        self._store, self._record, self._party = store, record, party
        self._missed: dict[str, float] = {}

    def get(self) -> Callable[[], Merge]:
        return self._record.shown

    def join(self, party: str, public_key: bytes, token: str, fields: Mapping[str, Any]) -> Ask:  # noqa: ARG002
        return partial(self._join, {"public_key": public_key.hex(), **fields})

    def put_cell(
        self,
        member: str,  # noqa: ARG002
        token: str,  # noqa: ARG002
        address: tuple[int, int, int],
        data: bytes,
    ) -> Ask:
        return partial(self._put_cell, *address, data)

    def get_cell(self, member: str, token: str, address: tuple[int, int, int]) -> Ask:  # noqa: ARG002
        attempt, shard, piece = address
        number = self._record.parties.index(member)
        name = self._record.place_of("cells", shard, piece, number, attempt=attempt)
        return partial(self._get, name)

    def judge(
        self,
        token: str,  # noqa: ARG002
        attempt: int,
        members: Mapping[str, str],
        failed: str | None,
    ) -> Ask:
        return partial(self._judge, attempt, {"members": dict(members), "failed": failed})

    def put_result(self, token: str, shard: int, piece: int, data: bytes) -> Ask:  # noqa: ARG002
        return partial(self._put_result, shard, piece, data)

    def get_result(self, token: str, shard: int, piece: int) -> Ask:  # noqa: ARG002
        return partial(self._get_result, shard, piece)

    def _join(self, said: dict[str, Any]) -> None:
        record = self._record
        record.follow()
        name = record.name_of("joined", self._party, in_attempt=False)
        said = {"neutral": False, "examples": None, "peak": None, **said}
        if (why := why_not(record.terms, self._party, said)) is not None:
            raise InvalidParameter(f"{self._party!r} cannot join: {why}", field="model")
        left_out, stands = record.now["left_out"].get(self._party), record.statements.read(name)
        # This party's own statement may stand, though the answer to it was lost.
        own = stands is not None and stands["public_key"] == said["public_key"]
        if record.decisions and (left_out is not None or not own):
            why = record.now["failure"] or left_out or "another process has joined"
            raise MergeFailed(f"the merge is past joining, without this process: {why}")
        if record.statements.state(name, said)["public_key"] != said["public_key"]:
            raise MergeFailed(
                f"another process has joined as {self._party!r}: go on with its state file, or "
                f"create another merge"
            )

    def _put_cell(self, attempt: int, shard: int, piece: int, data: bytes) -> None:
        record, plan = self._record, self._record.roster.plan
        number = record.parties.index(self._party)
        self._put(record.place_of("cells", shard, piece, number, attempt=attempt), data)
        if (shard, piece) == (plan.shards - 1, plan.pieces - 1):
            name = record.place_of("sent", number, attempt=attempt)
            record.statements.state(name, {"roster": record.roster.digest.hex()})

    def _judge(self, attempt: int, verdict: dict[str, Any]) -> None:
        number = self._record.parties.index(self._party)
        self._record.statements.state(
            self._record.place_of("verdict", number, attempt=attempt), verdict
        )

    def _put_result(self, shard: int, piece: int, data: bytes) -> None:
        record, roster = self._record, self._record.roster
        self._put(record.place_of("results", shard, piece), data)
        held = roster.shards_of(roster.place(self._party))
        if (shard, piece) == (held[-1], roster.plan.pieces - 1):
            record.statements.state(record.name_of("released", self._party), {})

    def _get_result(self, shard: int, piece: int) -> bytes:
        name = self._record.place_of("results", shard, piece)
        data = self._get(name)
        if data is None:
            raise MergeFailed(f"the average is lost: the bucket has no {name} any more")
        return data

    def _put(self, name: str, data: bytes) -> None:
        self._store.put(self._record.statements.path(name), data)

    def _get(self, name: str) -> bytes | None:
        """An object that its writer says is there; None once it has been missed for long."""
        path = self._record.statements.path(name)
        data = self._store.get(path, _MAX_BYTES)
        if data is None:
            patience = min(self._record.terms["deadline"] / 4, _MAX_PATIENCE_S)
            if time.monotonic() - self._missed.setdefault(path, time.monotonic()) < patience:
                raise ConnectionFailed(f"{path} does not show yet")
        return data
