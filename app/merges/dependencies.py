"""The names in the paths of merges, the token of a party, and the body of a cell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Path, Request

from app.infra.http.openapi import Refuses
from app.infra.http.requests.bodies import BODY_PROBLEMS, BodyLimits, media_type_of, read_body
from app.infra.http.requests.memory_budget import Budgets
from app.infra.http.services import services_of
from app.infra.http.turns import tenant_of
from app.merges.mailbox import Address
from modelkin import wire
from modelkin._validation import check_space_name
from modelkin.errors import InvalidCell, UnsupportedMediaType
from modelkin.wire.cell import MAX_CELL_BYTES

__all__ = ["CELL_BODY", "CELL_CONTENT", "CellAddress", "CellData", "MemberToken", "MergeName",
           "ResultAddress"]  # fmt: skip

_NUMBER: Final = 2**31 - 1

CELL_CONTENT: dict[str, Any] = {wire.CELL: {"schema": {"type": "string", "format": "binary"}}}
CELL_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": CELL_CONTENT}}


async def _merge_name(
    merge: Annotated[str, Path(description="the name of the merge, of the form of a space's")],
) -> str:
    return check_space_name(merge, field="merge")


MergeName = Annotated[str, Depends(_merge_name)]

MemberToken = Annotated[
    str,
    Header(alias="Member-Token", max_length=200, description="the token of the party that asks"),
]

Attempt = Annotated[int, Path(ge=0, le=_NUMBER, description="0, or 1 after members were left out")]
Shard = Annotated[int, Path(ge=0, le=_NUMBER, description="the shard, from 0")]
Piece = Annotated[int, Path(ge=0, le=_NUMBER, description="the piece of the shard, from 0")]


async def _cell_address(attempt: Attempt, shard: Shard, piece: Piece) -> Address:
    return Address(attempt, shard, piece)


async def _result_address(shard: Shard, piece: Piece) -> Address:
    return Address(None, shard, piece)


CellAddress = Annotated[Address, Depends(_cell_address)]
ResultAddress = Annotated[Address, Depends(_result_address)]


async def _cell_data(request: Request) -> AsyncIterator[bytearray]:
    media_type = media_type_of(request)
    if media_type != wire.CELL:
        raise UnsupportedMediaType(f"Content-Type must be {wire.CELL}")
    services = services_of(request)
    limits = services[BodyLimits]
    most = replace(limits, max_bytes=min(limits.max_bytes, MAX_CELL_BYTES))
    with services[Budgets].holding(tenant_of(request)) as (bodies, _):
        yield await read_body(request, most, media_type, bodies)


CellData = Annotated[bytearray, Depends(_cell_data), Refuses(*BODY_PROBLEMS, InvalidCell)]
"""The body of a request, at most one cell."""
