"""One thread call for a request: its queries, its endpoint, its answer and its commit.

Each hand-over between the event loop and a thread waits for the interpreter's lock, behind all that
computes. FastAPI hands over for every dependency, for what each opens and closes, for the endpoint
and for the validation of its answer; here all of it is one call.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial, wraps
from typing import Any

from anyio import to_thread
from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.infra.http.dependency_plan import DependencyPlan, Unplanned
from app.infra.http.services import services_of
from app.infra.http.short_reads import ShortReads, is_short_read

__all__ = ["AnswerKeeper", "ThreadRoute", "in_endpoint_thread"]


class AnswerKeeper:
    """A parameter of an endpoint that may have the answer already, and keeps the one it gets.

    It works in the transaction of its request.
    """

    def kept(self) -> Response | None:
        """The answer; None if the endpoint is to make one."""
        raise NotImplementedError

    def keep(self, response: Response) -> None:
        """Keep the answer of the endpoint."""
        raise NotImplementedError


class ThreadRoute(APIRoute):
    """A route of a plain function, which runs in a thread with all that is left for that.

    What it returns, unless that is a response, is written as JSON there, too. It is not validated
    before: its type says what it is. A function marked as :func:`short_read` runs in one of few
    threads, which others do not take.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        @wraps(endpoint)
        def whole(**values: Any) -> Any:
            with ExitStack() as ends:
                begun: dict[_Later, Any] = {}
                given = {name: _begun(value, begun, ends) for name, value in values.items()}
                keeper = next((v for v in given.values() if isinstance(v, AnswerKeeper)), None)
                if keeper is None:
                    return self._written(endpoint(**given), given)
                kept = keeper.kept()
                if kept is None:
                    kept = self._written(endpoint(**given), given)
                    keeper.keep(kept)
                return kept

        self._whole = whole
        self._is_made = False
        super().__init__(path, whole, **options)
        self._is_made = True

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        try:
            # Once it is made, a router asks that includes it, with dependencies of its own.
            if self._is_made or self.body_field is not None or self.status_code == 204:
                return handle
            plan = DependencyPlan.of(self.dependant)
        except Unplanned:
            return handle

        is_short = is_short_read(self._whole)

        async def planned(request: Request) -> Response:
            call = services_of(request)[ShortReads].call if is_short else to_thread.run_sync

            async def in_thread(values: dict[str, Any]) -> Response:
                answer: Response = await call(partial(self._whole, **values))
                return answer

            try:
                return await plan.run(request, in_thread)
            except Unplanned:
                return await handle(request)

        return planned

    def _written(self, answer: Any, given: Mapping[str, Any]) -> Any:
        if isinstance(answer, Response) or self.response_field is None:
            return answer
        content = self.response_field.serialize_json(
            answer, exclude_unset=self.response_model_exclude_unset
        )
        written = Response(content, self.status_code or 200, media_type="application/json")
        if self.dependant.response_param_name is not None:
            changed: Response = given[self.dependant.response_param_name]
            written.status_code = changed.status_code or written.status_code
            written.headers.raw.extend(changed.headers.raw)
        return written


def in_endpoint_thread(dependency: Callable[..., Any]) -> Callable[..., Awaitable[object]]:
    """Leave a dependency to the thread of the endpoint, which calls it before the endpoint.

    A context manager that it returns is entered there and left when the answer is written, with the
    error of the endpoint if there was one. Other dependencies cannot use what it returns, unless
    they are left to that thread, too.
    """

    async def leave(**values: Any) -> _Later:
        return _Later(dependency, values)

    leave.__name__ = dependency.__name__
    # Not `wraps`: FastAPI would unwrap a generator, and enter it itself.
    signature = inspect.signature(dependency, eval_str=True)
    leave.__signature__ = signature  # type: ignore[attr-defined]
    return leave


class _Later:
    """What a dependency will return, called once for all that use it."""

    def __init__(self, call: Callable[..., Any], values: dict[str, Any]) -> None:
        self.call = call
        self.values = values


def _begun(value: Any, begun: dict[_Later, Any], ends: ExitStack) -> Any:
    """The value that an endpoint is given."""
    if not isinstance(value, _Later):
        return value
    if value not in begun:
        found = value.call(
            **{name: _begun(each, begun, ends) for name, each in value.values.items()}
        )
        if isinstance(found, AbstractContextManager):
            found = ends.enter_context(found)
        begun[value] = found
    return begun[value]
