"""``DependencyPlan``: what the dependencies of an operation call, laid flat once.

FastAPI walks their tree for every request, and finds out each time what a dependency is and
whether it was called. The plan knows; it calls the same in the same order. It reads all parameters
first, and leaves a request whose parameters are invalid to FastAPI, which says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.security import SecurityScopes
from starlette.datastructures import Headers, QueryParams

__all__ = ["DependencyPlan", "Unplanned"]

_UNCHANGING: Final = (str, int, float, bool, tuple, type(None))
"""Types of defaults that requests can share."""


class Unplanned(Exception):
    """An operation, or a request, that FastAPI is to solve."""


@dataclass(slots=True)
class _Parameters:
    """The parameters of one dependency that come from one part of a request."""

    fields: list[Any]
    defaults: dict[str, Any] | None
    """What they are in a request that has none of them; None if it needs them."""
    names: frozenset[bytes] = frozenset()
    """Of headers."""

    @classmethod
    def of(cls, fields: list[Any], nothing: QueryParams | Headers) -> _Parameters:
        defaults, errors = request_params_to_args(fields, nothing)
        shared = all(isinstance(value, _UNCHANGING) for value in defaults.values())
        names = {name for each in fields for name in (each.alias, each.name.replace("_", "-"))}
        lower = frozenset(name.lower().encode() for name in names)
        return cls(fields, None if errors or not shared else defaults, lower)

    def read(self, given: Mapping[str, Any], into: dict[str, Any]) -> None:
        values, errors = request_params_to_args(self.fields, given)
        if errors:
            raise Unplanned
        into.update(values)


@dataclass(slots=True)
class _Call:
    """A dependency, or the operation itself.

    Attributes:
        results: the parameters that take what earlier calls returned, and which calls these are.
        constant: parameters that are the same for all requests.
        texts: path parameters that are any text.
    """

    call: Callable[..., Any]
    results: list[tuple[str, int]]
    constant: dict[str, Any]
    path: list[Any]
    texts: list[tuple[str, str]]
    query: _Parameters | None
    headers: _Parameters | None
    request: str | None
    response: str | None
    reads: bool = False
    """It has parameters that come from the request."""
    opens: bool = False
    """It is an asynchronous generator, left when the answer is made."""
    stays_open: bool = False
    """Left when the answer is sent."""

    def values(self, request: Request, names: frozenset[bytes]) -> dict[str, Any]:
        """What it takes from the request; :class:`Unplanned` if that is invalid."""
        if not self.reads:
            return self.constant.copy()
        values = self.constant.copy()
        for name, alias in self.texts:
            text = request.path_params[alias]
            if not text.isascii():
                raise Unplanned
            values[name] = text
        if self.path:
            _Parameters(self.path, None).read(request.path_params, values)
        if self.query is not None:
            if request.scope["query_string"] or self.query.defaults is None:
                self.query.read(request.query_params, values)
            else:
                values.update(self.query.defaults)
        if self.headers is not None:
            if self.headers.defaults is None or not names.isdisjoint(self.headers.names):
                self.headers.read(request.headers, values)
            else:
                values.update(self.headers.defaults)
        return values


@dataclass(slots=True)
class DependencyPlan:
    """The calls before an operation, and what it is given then.

    Use :meth:`of`.
    """

    _calls: list[_Call] = field(default_factory=list)
    _known: dict[tuple[Any, ...], int] = field(default_factory=dict)

    @classmethod
    def of(cls, dependant: Dependant) -> DependencyPlan:
        """The plan of an operation.

        Raises:
            Unplanned: it needs what plans do not know: a body that FastAPI reads, cookies,
                dependencies that run in threads.
        """
        plan = cls()
        plan._add(dependant)
        return plan

    def _add(self, dependant: Dependant, *, last: bool = True) -> None:
        results = []
        for each in dependant.dependencies:
            place = self._place(each)
            if each.name is not None:
                results.append((each.name, place))
        call = _call(dependant, results, last=last)
        if call.response is not None and not last:
            raise Unplanned  # it would have to be the operation's, too
        self._calls.append(call)

    def _place(self, dependant: Dependant) -> int:
        """Which call a dependency is; added unless it is among them."""
        key = _key(dependant)
        if key not in self._known:
            self._add(dependant, last=False)
            self._known[key] = len(self._calls) - 1
        return self._known[key]

    async def run(
        self, request: Request, finish: Callable[[dict[str, Any]], Awaitable[Response]]
    ) -> Response:
        """The answer of an operation.

        Args:
            request: whose parameters they read.
            finish: called with what the operation is given; what was opened for it is left then.

        Raises:
            Unplanned: a parameter is invalid, before anything is called.
        """
        names = frozenset([name for name, _ in request.scope["headers"]])
        given = [call.values(request, names) for call in self._calls]
        return await self._go_on(request, given, [], finish)

    async def _go_on(
        self,
        request: Request,
        given: list[dict[str, Any]],
        results: list[Any],
        finish: Callable[[dict[str, Any]], Awaitable[Response]],
    ) -> Response:
        """Call what has not been called yet."""
        last = len(given) - 1
        while (place := len(results)) < last:
            call = self._calls[place]
            values = self._completed(call, request, given[place], results)
            if not call.opens:
                results.append(await call.call(**values))
                continue
            opened = asynccontextmanager(call.call)(**values)
            if call.stays_open:
                until: AsyncExitStack = request.scope["fastapi_inner_astack"]
                results.append(await until.enter_async_context(opened))
                continue
            async with opened as result:
                results.append(result)
                return await self._go_on(request, given, results, finish)
        return await finish(self._completed(self._calls[last], request, given[last], results))

    def _completed(
        self, call: _Call, request: Request, values: dict[str, Any], results: list[Any]
    ) -> dict[str, Any]:
        for name, place in call.results:
            values[name] = results[place]
        if call.request is not None:
            values[call.request] = request
        if call.response is not None:
            values[call.response] = _empty()
        return values


def _empty() -> Response:
    """What operations set headers of, as FastAPI makes it."""
    response = Response()
    del response.headers["content-length"]
    response.status_code = None  # type: ignore[assignment]
    return response


def _call(dependant: Dependant, results: list[tuple[str, int]], *, last: bool) -> _Call:
    call = dependant.call
    assert call is not None
    function = call if inspect.isroutine(call) else type(call).__call__
    opens = inspect.isasyncgenfunction(function)
    if not (last or opens or inspect.iscoroutinefunction(function)):
        raise Unplanned
    others = dependant.body_params, dependant.cookie_params
    named = dependant.websocket_param_name, dependant.background_tasks_param_name
    if any(others) or any(named) or dependant.concurrency is not None or not dependant.use_cache:
        raise Unplanned
    constant: dict[str, Any] = {}
    if dependant.security_scopes_param_name is not None:
        constant[dependant.security_scopes_param_name] = SecurityScopes(list(_scopes(dependant)))
    plain = [each for each in dependant.path_params if _is_any_text(each)]
    query, headers = dependant.query_params, dependant.header_params
    return _Call(
        call,
        results,
        constant,
        path=[each for each in dependant.path_params if not _is_any_text(each)],
        texts=[(each.name, each.alias) for each in plain],
        query=_Parameters.of(query, QueryParams()) if query else None,
        headers=_Parameters.of(headers, Headers()) if headers else None,
        request=dependant.request_param_name or dependant.http_connection_param_name,
        response=dependant.response_param_name,
        reads=bool(dependant.path_params or query or headers),
        opens=opens,
        stays_open=dependant.scope != "function",
    )


def _is_any_text(parameter: Any) -> bool:
    info = parameter.field_info
    return info.annotation is str and not info.metadata


def _scopes(dependant: Dependant) -> dict[str, None]:
    """Those that the key needs, in their order."""
    return dict.fromkeys(
        [*(dependant.parent_oauth_scopes or ()), *(dependant.own_oauth_scopes or ())]
    )


def _key(dependant: Dependant) -> tuple[Any, ...]:
    """What makes two dependencies one call, as for FastAPI."""
    scopes = tuple(sorted(_scopes(dependant))) if _asks_for_scopes(dependant) else ()
    return id(dependant.call), scopes, dependant.scope


def _asks_for_scopes(dependant: Dependant) -> bool:
    return bool(
        dependant.own_oauth_scopes
        or dependant.security_scopes_param_name is not None
        or any(map(_asks_for_scopes, dependant.dependencies))
    )
