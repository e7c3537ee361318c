"""A container of services by type: bootstrap fills it, endpoints look up what they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

__all__ = ["Container"]

T = TypeVar("T")


class Container:
    """The services of one process, one of each type.

    Args:
        services: the first services; each is found by its own class, not by its base classes.
    """

    def __init__(self, *services: object) -> None:
        self._services: dict[type, object] = {}
        for service in services:
            self.add(service)

    def add(self, service: T) -> T:
        """Add a service, and return it.

        Raises:
            ValueError: the container has a service of this type.
        """
        if type(service) in self._services:
            raise ValueError(f"the container has a {type(service).__name__} already")
        self._services[type(service)] = service
        return service

    def __getitem__(self, service_type: type[T]) -> T:
        """The service of this type; KeyError where there is none."""
        return cast(T, self._services[service_type])

    def find(self, service_type: type[T]) -> T | None:
        """The service of this type, where there may be none."""
        return cast(T | None, self._services.get(service_type))

    def __iter__(self) -> Iterator[object]:
        return iter(self._services.values())
