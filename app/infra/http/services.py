"""Services as parameters of endpoints: ``search: Service[SearchService]``.

An application binds them when it is made (see ``routes``), from its container.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Request
from fastapi.params import Depends

from app.container import Container

__all__ = ["Service", "service_type", "services_of"]

T = TypeVar("T")


def services_of(request: Request) -> Container:
    """The services of the application that answers this request."""
    services: Container = request.app.state.services
    return services


class _Lookup:
    """An annotation of a parameter that is a service."""

    def __init__(self, service_type: type[Any]) -> None:
        self.service_type = service_type

    async def __call__(self, request: Request) -> Any:
        return services_of(request)[self.service_type]


@cache
def _lookup(service_type: type[Any]) -> _Lookup:
    return _Lookup(service_type)


if TYPE_CHECKING:
    Service = Annotated[T, "the service of this type"]
else:

    class Service:
        """``Service[T]``: the service of type T."""

        def __class_getitem__(cls, service_type: type[Any]) -> Any:
            return Annotated[service_type, Depends(_lookup(service_type))]


def service_type(annotation: Any) -> type[Any] | None:
    """The type of the service that a parameter is; None for any other parameter."""
    for part in getattr(annotation, "__metadata__", ()):
        if isinstance(part, Depends) and isinstance(part.dependency, _Lookup):
            return part.dependency.service_type
    return None
