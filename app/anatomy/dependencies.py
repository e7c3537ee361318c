"""What the endpoints of anatomies read of a request."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from app.infra.http.openapi import Refuses
from modelkin._validation import check_model_name
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["Excluded"]


async def _excluded(
    exclude: Annotated[
        list[str] | None,
        Query(max_length=20, description="a model that is left out; repeat for several"),
    ] = None,
) -> tuple[str, ...]:
    names = enumerate(exclude or ())
    return tuple(check_model_name(name, field=f"exclude[{at}]") for at, name in names)


Excluded = Annotated[tuple[str, ...], Depends(_excluded), Refuses(InvalidName, InvalidParameter)]
