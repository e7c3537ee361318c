"""Dependencies on services: ``search: Service[SearchService]`` among the parameters of an endpoint.

The container is the one of the application that answers the request (``app.main``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Request

from app.container import Container

__all__ = ["Service", "services_of"]

T = TypeVar("T")


def services_of(request: Request) -> Container:
    """The services of the application that answers this request."""
    services: Container = request.app.state.services
    return services


@cache
def _lookup(kind: type[T]) -> Callable[[Request], Awaitable[T]]:
    async def look_up(request: Request) -> T:  # async: it needs no thread
        return services_of(request)[kind]

    return look_up


if TYPE_CHECKING:
    Service = Annotated[T, "the service of this type"]
else:

    class Service:
        """``Service[T]``: the service of type T, looked up for each request."""

        def __class_getitem__(cls, kind: type[Any]) -> Any:
            return Annotated[kind, Depends(_lookup(kind))]
