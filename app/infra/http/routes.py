"""``Routes``: the operations of a feature, declared where they are written, and made into a router.

An operation is a plain function. Its parameters are, in any order: the context of the request, what
FastAPI reads from it, and services. A router is made once a process, since FastAPI takes long to
read all those parameters; an application binds its services to the functions when it is made. A
request then has one way: FastAPI reads its parameters and its body on the event loop; it waits for
its turn; and one call in a thread does the rest, to the last byte of the answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin

from fastapi import APIRouter, Body, Depends, FastAPI, Request, Response, Security, params
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams

from app.container import Container
from app.infra.http.answers import Answer, json_answer
from app.infra.http.openapi import Documented, Refusal, Refuses, problems
from app.infra.http.request_context import RequestContext
from app.infra.http.requests.json_bodies import body_model
from app.infra.http.services import service_type, services_of
from app.infra.http.turns import TurnKind, Turns

__all__ = ["Routes", "TurnChoice"]

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Function = TypeVar("Function", bound=Callable[..., Any])

TurnChoice: TypeAlias = TurnKind | Callable[[QueryParams], TurnKind]
"""The kind of work of an operation, or a function that finds it from the query parameters."""

_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, eq=False)
class _Declared:
    """One operation: a function, with its method and path.

    Attributes:
        turn: the kind of work of its requests; None for ``reading`` of GET and HEAD,
            and ``writing`` of the others.
        refuses: the problems that it may answer beside those that its parameters declare.
    """

    endpoint: Callable[..., Any]
    method: str
    path: str
    turn: TurnChoice | None
    refuses: tuple[Refusal, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def signature(self) -> inspect.Signature:
        """The parameters of the function, and its return type."""
        return inspect.signature(self.endpoint, eval_str=True)

    @property
    def asked(self) -> list[inspect.Parameter]:
        """The parameters that are read from a request: all but services."""
        parameters = self.signature.parameters.values()
        return [each for each in parameters if service_type(each.annotation) is None]

    def bind(self, services: Container) -> Callable[..., Any]:
        """The function, called with these services beside what FastAPI has read."""
        parameters = self.signature.parameters.values()
        service_types = {each.name: service_type(each.annotation) for each in parameters}
        found = {
            name: services[wanted] for name, wanted in service_types.items() if wanted is not None
        }
        return partial(self.endpoint, **found)


class Routes:
    """The operations of one module.

    Args:
        options: the options of FastAPI's ``APIRouter``.
    """

    def __init__(self, prefix: str = "", **options: Any) -> None:
        self._prefix = prefix
        self._options = options
        self._declared: list[_Declared] = []
        self._router: APIRouter | None = None

    def get(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what ``GET`` answers.

        Args:
            path: below the prefix.
            options: ``turn``, the kind of work (:data:`TurnChoice`); ``refuses``, the problems that
                it may answer beside those of its parameters; all others are FastAPI's.
        """
        return self._declaring("GET", path, **options)

    def head(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what ``HEAD`` answers; see :meth:`get`."""
        return self._declaring("HEAD", path, **options)

    def put(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what ``PUT`` does; see :meth:`get`."""
        return self._declaring("PUT", path, **options)

    def post(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what ``POST`` does; see :meth:`get`."""
        return self._declaring("POST", path, **options)

    def patch(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what ``PATCH`` does; see :meth:`get`."""
        return self._declaring("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> Callable[[Endpoint], Endpoint]:
        """Declare what ``DELETE`` does; see :meth:`get`."""
        return self._declaring("DELETE", path, **options)

    def router(self) -> APIRouter:
        """The router of the operations, which all applications of this process share."""
        if self._router is None:
            self._router = APIRouter(prefix=self._prefix, **self._options)
            for each in self._declared:
                self._router.add_api_route(
                    each.path, _operation(each), methods=[each.method], **_options(each)
                )
        return self._router

    def add_to(self, app: FastAPI) -> None:
        """Have an application answer these operations, with its own services."""
        answers = app.state.answers = getattr(app.state, "answers", {})
        for each in self._declared:
            answers[each] = partial(_answer, each.bind(app.state.services), each.options)
        app.router.routes.extend(self.router().routes)

    def documentation_router(self) -> APIRouter:
        """The operations for the OpenAPI document; nothing calls them.

        FastAPI sees the models of their bodies here, which it does not read itself.
        """
        router = APIRouter(prefix=self._prefix, **self._options)
        for each in self._declared:
            router.add_api_route(
                each.path, _description_of(each), methods=[each.method], **_options(each)
            )
        return router

    def _declaring(
        self,
        method: str,
        path: str,
        *,
        turn: TurnChoice | None = None,
        refuses: tuple[Refusal, ...] = (),
        **options: Any,
    ) -> Callable[[Endpoint], Endpoint]:
        def declare(endpoint: Endpoint) -> Endpoint:
            self._declared.append(_Declared(endpoint, method, path, turn, refuses, options))
            return endpoint

        return declare


def _options(declared: _Declared) -> dict[str, Any]:
    """FastAPI's options of an operation: its own, and what follows from its parameters."""
    options = dict(declared.options)
    found = dict.fromkeys([*declared.refuses, *_refusals(declared.signature)])
    options["responses"] = {**problems(*found), **options.get("responses", {})}
    if "response_model" not in options:
        options["response_model"] = _model_of(declared.signature.return_annotation)
    return options


def _refusals(signature: inspect.Signature) -> Iterator[Refusal]:
    for parameter in signature.parameters.values():
        for part in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(part, Refuses):
                yield from part.problems


def _model_of(annotation: Any) -> Any:
    """The model of an answer, for the OpenAPI document; None for a function that answers itself."""
    for part in (annotation, *get_args(annotation)):
        if get_origin(part) is Answer:
            return get_args(part)[0]
    is_response = isinstance(annotation, type) and issubclass(annotation, Response)
    return None if annotation is None or is_response else annotation


def _description_of(declared: _Declared) -> Callable[..., None]:
    """A function with the parameters of an operation, and the model of its body."""

    def refuse_call(**_: Any) -> None:
        raise AssertionError("this is a description of an operation")

    return _like(refuse_call, declared.endpoint, map(_as_described, declared.asked))


def _as_described(parameter: inspect.Parameter) -> inspect.Parameter:
    body_type = body_model(parameter.annotation)
    if body_type is not None:
        return parameter.replace(annotation=Annotated[body_type, Body()])
    metadata = getattr(parameter.annotation, "__metadata__", ())
    for part in metadata:
        if isinstance(part, params.Security) and isinstance(part.dependency, Documented):
            shown = Security(part.dependency.shown, scopes=part.scopes)
            return parameter.replace(annotation=Annotated[Any, shown])
    if not any(isinstance(part, params.Path) for part in metadata):
        return parameter

    def read(**_: Any) -> None:
        raise AssertionError("this is a description of a parameter")

    # FastAPI lists the parameters of an operation itself before all others: as one of a dependency
    # it stands where the function names it.
    named = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    read.__signature__ = inspect.Signature([named])  # type: ignore[attr-defined]
    return parameter.replace(annotation=Annotated[Any, Depends(read)])


def _operation(declared: _Declared) -> Callable[..., Awaitable[Response]]:
    """Return the function that FastAPI calls with the parameters of a request.

    Raises:
        TypeError: the function takes neither a context nor the request, so no application is known.
    """
    asked = declared.asked
    context = next((each.name for each in asked if _is_context(each.annotation)), None)
    request = next((each.name for each in asked if each.annotation is Request), None)
    known = context or request
    if known is None:
        raise TypeError(f"{declared.endpoint.__name__} takes neither a context nor the Request")

    async def operation(**values: Any) -> Response:
        own: Request = values[known].request if context else values[known]
        answer = own.app.state.answers[declared]
        if not context:
            return await run_in_threadpool(answer, values)
        kind = _turn_kind(declared, own.query_params)
        async with services_of(own)[Turns].turn(own, kind) as values[context].deadline:
            return await run_in_threadpool(answer, values)

    # A caller whose key lacks a scope is refused before anything else of its request is read.
    asked.sort(key=lambda each: each.name != context)
    return _like(operation, declared.endpoint, asked)


def _like(
    function: Function, endpoint: Callable[..., Any], parameters: Iterable[inspect.Parameter]
) -> Function:
    """A function by the name of an endpoint, with these parameters."""
    function.__name__ = endpoint.__name__
    function.__doc__ = endpoint.__doc__
    function.__module__ = endpoint.__module__
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    function.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return function


def _is_context(annotation: Any) -> bool:
    context_type = next(iter(get_args(annotation)), annotation)
    return isinstance(context_type, type) and issubclass(context_type, RequestContext)


def _turn_kind(declared: _Declared, query: QueryParams) -> TurnKind:
    """The kind of work of a request."""
    if declared.turn is None:
        return "reading" if declared.method in _SAFE_METHODS else "writing"
    return declared.turn(query) if callable(declared.turn) else declared.turn


def _answer(
    endpoint: Callable[..., Any], options: Mapping[str, Any], values: Mapping[str, Any]
) -> Response:
    """The answer of an endpoint, made in this thread: on the event loop it would hold up others."""
    made = endpoint(**values)
    if isinstance(made, Response):
        return made
    status = options.get("status_code") or 200
    if made is None:
        return Response(status_code=status)
    whole = made if isinstance(made, Answer) else Answer(made)
    return json_answer(
        whole.model,
        whole.status or status,
        whole.headers,
        exclude_unset=options.get("response_model_exclude_unset", False),
    )
