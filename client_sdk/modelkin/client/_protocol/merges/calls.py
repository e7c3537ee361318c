"""Calls about merges: averages of models through a mailbox that cannot read them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from modelkin._validation import check_model_name, check_space_name, quote_model
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, content_of, read_nothing
from modelkin.client._protocol.calls.decoding import reader
from modelkin.client._transport.messages import Request, Response
from modelkin.types.merges import Merge, MergeInfo
from modelkin.types.paging import Page
from modelkin.wire import CELL, JSON

__all__ = ["AnyMerge", "HubMail", "create", "delete", "get", "list_all", "name_of"]

AnyMerge: TypeAlias = str | MergeInfo
"""A merge, or its name."""

_MEMBER: Final = "Member-Token"
"""The header with the token of the party that asks."""


def create(
    space: str,
    merge: str,
    *,
    members: Iterable[str] | None,
    weights: str | Mapping[str, float] | None,
    fields: Mapping[str, Any],
) -> Call[Merge]:
    """Creates a merge."""
    body = {name: value for name, value in fields.items() if value is not None}
    if members is not None:
        if isinstance(members, str):
            raise requests.wrong_type("members", "a list of model names", members)
        body["members"] = [
            check_model_name(name, field=f"members[{place}]") for place, name in enumerate(members)
        ]
    if weights is not None:
        body["weights"] = weights if isinstance(weights, str) else dict(weights)
    request = requests.write("PUT", _path(space, merge), requests.json_bytes(body), JSON)
    return Call(request, reader(Merge))


def list_all(space: str) -> Call[Page[MergeInfo]]:
    """Lists the merges of a space."""
    request = requests.get(f"{requests.space_path(space)}/merges", requests.PAGE_SIZE)
    return Call(request, reader(Page[MergeInfo]))


def get(space: str, merge: AnyMerge) -> Call[Merge]:
    """Reads a merge."""
    return Call(requests.get(_path(space, merge)), reader(Merge))


def delete(space: str, merge: AnyMerge) -> Call[None]:
    """Deletes a merge."""
    return Call(requests.write("DELETE", _path(space, merge)), read_nothing)


def name_of(merge: AnyMerge) -> str:
    """Check the name of a merge, and return it."""
    known = merge.name if isinstance(merge, MergeInfo) else merge
    return check_space_name(known, field="merge")


def _path(space: str, merge: AnyMerge) -> str:
    return f"{requests.space_path(space)}/merges/{name_of(merge)}"


class HubMail:
    """The calls of a party: the service is its :class:`modelkin.federation.merging.mail.Mail`.

    Args:
        space: the merge's space.
        merge: the merge, or its name.
    """

    def __init__(self, space: str, merge: AnyMerge) -> None:
        self._path = _path(space, merge)

    def get(self) -> Call[Merge]:
        """Reads the merge."""
        return Call(requests.get(self._path), reader(Merge))

    def join(
        self, party: str, public_key: bytes, token: str, fields: Mapping[str, Any]
    ) -> Call[None]:
        """Joins with the digest of a token. The same key and token may join again."""
        body = {
            "public_key": base64.b64encode(public_key).decode(),
            "token_digest": hashlib.sha256(token.encode()).hexdigest(),
            **fields,
        }
        request = requests.post(f"{self._path}/members/{quote_model(party)}", body)
        return Call(request, read_nothing)

    def put_cell(
        self, member: str, token: str, address: tuple[int, int, int], data: bytes
    ) -> Call[None]:
        """Sends a sealed cell."""
        return Call(_write(self._cell_path(member, address), token, data), read_nothing)

    def get_cell(self, member: str, token: str, address: tuple[int, int, int]) -> Call[bytes]:
        """Reads a cell of a shard, as its aggregator."""
        return Call(_fetch(self._cell_path(member, address), token), _cell)

    def put_result(self, token: str, shard: int, piece: int, data: bytes) -> Call[None]:
        """Sends a sealed result."""
        return Call(_write(f"{self._path}/results/{shard}/{piece}", token, data), read_nothing)

    def get_result(self, token: str, shard: int, piece: int) -> Call[bytes]:
        """Reads a result of a merge that is done."""
        return Call(_fetch(f"{self._path}/results/{shard}/{piece}", token), _cell)

    def judge(
        self, token: str, attempt: int, members: Mapping[str, str], failed: str | None
    ) -> Call[Merge]:
        """Reports that all cells are good, or the bad cells, or that the cells do not combine."""
        body = {"attempt": attempt, "members": dict(members), "failed": failed}
        headers = {"Accept": JSON, "Content-Type": JSON, _MEMBER: token}
        content, path = requests.json_bytes(body), f"{self._path}/verdicts"
        return Call(Request("POST", path, (), headers, content, idempotent=False), reader(Merge))

    def _cell_path(self, member: str, address: tuple[int, int, int]) -> str:
        return f"{self._path}/cells/{'/'.join(map(str, address))}/{quote_model(member)}"


def _write(path: str, token: str, data: bytes) -> Request:
    headers = {"Accept": JSON, "Content-Type": CELL, _MEMBER: token}
    return Request("PUT", path, (), headers, data, idempotent=True)


def _fetch(path: str, token: str) -> Request:
    return Request("GET", path, (), {"Accept": CELL, _MEMBER: token}, idempotent=True)


def _cell(response: Response) -> bytes:
    return content_of(response, CELL)
