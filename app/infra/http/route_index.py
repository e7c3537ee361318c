"""``RouteIndex``: the route of a path, found among those that can match it.

FastAPI asks every route of every router in turn, and the one that matches twice. Most paths differ
in two or three words: the index asks only routes that have the same words at these places. A
request that none of them answers is the router's, which finds out what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["RouteIndex", "install"]

_PLACES: Final = (1, 2, 4)
"""Of the words in ``/v1/spaces/{space}/models/{model}`` that distinguish routes."""

_Key: TypeAlias = tuple[str, ...]


class RouteIndex:
    """Passes requests on to the routes that they name, all others to ``router``.

    Args:
        router: knows all routes.
        routes: of them, in their order, those that are to be found sooner.
    """

    def __init__(self, router: ASGIApp, routes: Iterable[APIRoute]) -> None:
        self._router = router
        self._routes = list(routes)
        self._words = {word for each in self._routes for word in _words(each.path)}
        self._found: dict[_Key, list[APIRoute]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = scope["type"] == "http" and not scope.get("root_path")
        route = self.find(scope) if known else None
        await (self._router if route is None else route.app)(scope, receive, send)

    def find(self, scope: Scope) -> APIRoute | None:
        """The first route that answers a request, which is noted in its scope; None without one."""
        path, method = scope["path"], scope["method"]
        for route in self._candidates(path):
            match = route.path_regex.match(path) if method in (route.methods or ()) else None
            if match is not None:
                scope["path_params"] = {
                    name: route.param_convertors[name].convert(text)
                    for name, text in match.groupdict().items()
                }
                scope["endpoint"] = route.endpoint
                scope["route"] = route
                return route
        return None

    def methods(self, path: str) -> list[str]:
        """The methods that a path takes, in order; none where no route has it."""
        found = {
            method
            for route in self._candidates(path)
            if route.path_regex.match(path)
            for method in route.methods or ()
        }
        return sorted(found)

    def _candidates(self, path: str) -> list[APIRoute]:
        words = path.split("/", _PLACES[-1] + 1)
        asked = (words[place] if place < len(words) else "" for place in _PLACES)
        key = tuple(word if word in self._words else "" for word in asked)
        found = self._found.get(key)
        if found is None:  # as many as there are combinations of known words, at most
            found = [route for route in self._routes if _may_match(route.path, key)]
            self._found[key] = found
        return found


def install(router: APIRouter, routers: Iterable[APIRouter]) -> None:
    """Find the routes of these routers, which ``router`` includes without a prefix, by an index."""
    routes = [route for each in routers for route in each.routes if isinstance(route, APIRoute)]
    router.middleware_stack = RouteIndex(router.app, routes)


def _words(path: str) -> list[str]:
    """Those at the places of the key; empty ones for what a path may have any text at."""
    words = path.split("/")
    # A parameter that takes the rest of a path has any number of words.
    rest = next((i for i, word in enumerate(words) if ":" in word), len(words))
    return [
        words[place] if place < min(rest, len(words)) and not words[place].startswith("{") else ""
        for place in _PLACES
    ]


def _may_match(path: str, key: _Key) -> bool:
    return all(not word or word == asked for word, asked in zip(_words(path), key, strict=True))
