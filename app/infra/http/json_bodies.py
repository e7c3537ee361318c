"""JSON bodies: strict, parsed and validated once, in a thread, a few at a time.

A parser holds the interpreter's lock while it works. So a body beyond a few kilobytes leaves the
event loop, and waits for its turn among the tenants'; so do bodies and lines that are read by a
thread of their request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from anyio import from_thread
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from app.infra.http.bodies import BodyLimits, media_type_of, read_body
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.memory_budget import Budgets, Reservation
from app.infra.http.services import services_of
from app.infra.http.turns import Pool, tenant_of
from modelkin import wire
from modelkin.errors import InvalidParameter, ModelkinError, UnsupportedMediaType
from modelkin.wire.json import parse_json

__all__ = [
    "DECODED_BYTES_PER_BYTE",
    "JsonParsers",
    "JsonRoute",
    "QUICK_BYTES",
    "parse_strictly",
]

DECODED_BYTES_PER_BYTE: Final = 32
"""Memory for what a byte of JSON becomes, at most: ``{"a":0},`` takes 232."""

_BYTES_OF_A_VALUE: Final = 128
"""Memory of an element, a name or a value of it, beside the characters, which take 4 at most."""
_PARSERS: Final = 2
"""Bodies that are parsed at a time; a tenant gets no more than one of the two."""
_INLINE_BYTES: Final = 4 << 10
"""A shorter body is parsed on the loop: a thread would take longer than its millisecond."""
QUICK_BYTES: Final = 32 << 10
"""On a thread a shorter text is parsed without a turn: it takes a millisecond, and a megabyte."""
_MAX_NAMES: Final = 256
"""Names in an object. No operation takes more, and each unknown one is a mistake to list."""
_MAX_ERRORS: Final = 100
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_INVALID: Final = object()
"""Handed to FastAPI in place of an invalid body: no model accepts it."""

_Validation: TypeAlias = tuple[Any, list[Any]]
"""The model, or what is wrong with it by pydantic."""


class JsonParsers(Pool):
    """Turns of the bodies that are parsed in threads.

    Args:
        share: of them that one tenant may hold while others wait.
        timeout: seconds that a body waits.
    """

    def __init__(self, *, share: float, timeout: float) -> None:
        super().__init__(_PARSERS, share=share, timeout=timeout, work="the bodies of others are")

    @contextmanager
    def turn_on_thread(self, tenant: str, size: int) -> Iterator[None]:
        """Hold a turn for the duration of the block, on the thread of a request.

        Args:
            tenant: whose turn it is.
            size: bytes of JSON; few need no turn.

        Raises:
            Unavailable: none became free in time.
        """
        if size <= QUICK_BYTES:
            yield
            return
        from_thread.run(self._take, tenant, None)
        try:
            yield
        finally:
            from_thread.run_sync(self._give_back, tenant)


def parse_strictly(body: bytes) -> Any:
    """Parse JSON; ValueError says why it is invalid, or why it is refused."""
    document = parse_json(body, InvalidParameter, max_names=_MAX_NAMES)
    if _SURROGATE.search(body):  # of most pairs both halves are there: a character
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidParameter("this is not valid JSON: half a surrogate pair") from None
    return document


class JsonRoute(ThreadRoute):
    """A route whose body is strict JSON: no NaN, no lone surrogates, limited nesting.

    Its body holds memory until it is answered. FastAPI is handed the validated model.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        field = self.body_field
        read = (
            None if field is None else _reader(TypeAdapter[Any](field.field_info.annotation or Any))
        )

        async def strictly(request: Request) -> Response:
            await self.before_body(request)
            if read is None:
                return await handle(request)
            with services_of(request)[Budgets].holding(tenant_of(request)) as holds:
                body = _JsonRequest(request, read, *holds)
                try:
                    return await handle(body)
                except _Refused as refused:
                    raise refused.reason from None
                except RequestValidationError as error:
                    raise body.explained(error) from None

        return strictly

    async def before_body(self, request: Request) -> None:
        """Refuse a request before its body is read; this refuses none."""


class _Refused(HTTPException):
    """Carries an error through FastAPI, which lets only HTTP exceptions pass from a body."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(400)
        self.reason = reason


class _JsonRequest(Request):
    def __init__(
        self,
        request: Request,
        read: Callable[[bytes], _Validation],
        bodies: Reservation,
        decoded: Reservation,
    ) -> None:
        super().__init__(request.scope, request.receive)
        self._read = read
        self._bodies = bodies
        self._decoded = decoded
        self._errors: list[Any] = []

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            try:
                if media_type_of(self) != wire.JSON:
                    raise UnsupportedMediaType("this takes Content-Type: application/json")
                limits = services_of(self)[BodyLimits]
                self._body = bytes(await read_body(self, limits, wire.JSON, self._bodies))
            except ModelkinError as error:
                raise _Refused(error) from error
        return self._body

    async def json(self) -> Any:
        """The validated model."""
        body = await self.body()
        try:
            await self._decoded.take_in_turn(DECODED_BYTES_PER_BYTE * len(body))
            model, self._errors = await self._validation(body)
            self._decoded.keep(_validated_bytes(body))
        except InvalidParameter as error:
            entry = {"type": "json_invalid", "loc": ("body",), "msg": str(error)}
            raise _Refused(RequestValidationError([entry])) from error
        except ModelkinError as error:
            raise _Refused(error) from error
        return model

    async def _validation(self, body: bytes) -> _Validation:
        if len(body) <= _INLINE_BYTES:
            return self._read(body)
        async with services_of(self)[JsonParsers].turn(tenant_of(self)):
            return await run_in_threadpool(self._read, body)

    def explained(self, error: RequestValidationError) -> RequestValidationError:
        """What FastAPI found, with what was found in the body in place of its own finding."""
        if not self._errors:
            return error
        others = [entry for entry in error.errors() if entry["loc"][:1] != ("body",)]
        return RequestValidationError([*others, *self._errors])


def _reader(adapter: TypeAdapter[Any]) -> Callable[[bytes], _Validation]:
    """How the bodies of an operation are read: parsed, then validated."""

    def read(body: bytes) -> _Validation:
        document = parse_strictly(body)
        try:
            return adapter.validate_python(document), []
        except ValidationError as error:
            return _INVALID, _listed(error)

    return read


def _validated_bytes(body: bytes) -> int:
    """Memory for what remains of a body once it is validated, at most what was reserved."""
    values = sum(map(body.count, (b",", b":", b"[", b"{")))
    return min(DECODED_BYTES_PER_BYTE * len(body), 4 * len(body) + _BYTES_OF_A_VALUE * values)


def _listed(error: ValidationError) -> list[Any]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [{**entry, "loc": ("body", *entry["loc"])} for entry in found[:_MAX_ERRORS]]
