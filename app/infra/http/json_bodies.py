"""JSON bodies: strict, parsed and validated once, the long ones elsewhere, two at a time.

A parser holds the interpreter's lock while it works, and a small request waits for it some twenty
times. So a body beyond a few kilobytes leaves the event loop, and one beyond :data:`QUICK_BYTES`
this process: it waits for its turn among the tenants', and a child process of lower priority reads
it. So do bodies and lines that are read by a thread of their request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from anyio import from_thread
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.infra.http.bodies import BodyLimits, media_type_of, read_body
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.json_reading import Validation, validated
from app.infra.http.memory_budget import Budgets, Reservation
from app.infra.http.services import services_of
from app.infra.http.turns import Pool, tenant_of
from app.infra.subprocesses import Helper
from modelkin import wire
from modelkin.errors import InvalidParameter, ModelkinError, UnsupportedMediaType

__all__ = [
    "DECODED_BYTES_PER_BYTE",
    "JsonParsers",
    "JsonRoute",
    "QUICK_BYTES",
    "JsonReading",
    "Run",
    "received_body",
    "run_here",
]

T = TypeVar("T")

DECODED_BYTES_PER_BYTE: Final = 32
"""Memory for what a byte of JSON becomes, at most: ``{"a":0},`` takes 232."""

_BYTES_OF_A_VALUE: Final = 128
"""Memory of an element, a name or a value of it, beside the characters, which take 4 at most."""
_PARSERS: Final = 2
"""Long bodies that are read at a time, each by a process; a tenant gets one of the two at most."""
_INLINE_BYTES: Final = 4 << 10
"""A shorter body is parsed on the loop: a thread would take longer than its millisecond."""
QUICK_BYTES: Final = 32 << 10
"""A shorter text is parsed here, without a turn: it takes a millisecond, and a megabyte."""
_INVALID: Final = object()
"""Handed to FastAPI in place of an invalid body: no model accepts it."""


class Run(Protocol):
    """Calls a module's function, here or in another process: arguments and result are pickled."""

    def __call__(self, function: Callable[..., T], /, *arguments: Any) -> T: ...


JsonReading: TypeAlias = Callable[[int], AbstractContextManager[Run]]
"""Holds what reads so many bytes of JSON: :meth:`JsonParsers.reading_on_thread` of a tenant."""


class JsonParsers(Pool):
    """The processes that read long JSON, and the turns of the tenants at them.

    A process starts beside the first text that finds none that is free; while it starts, which
    takes a second, texts are read here. One that is killed is replaced likewise: the text that it
    read is refused, and the next one is read.

    Args:
        share: of them that one tenant may hold while others wait.
        timeout: seconds that a body waits.
    """

    def __init__(self, *, share: float, timeout: float) -> None:
        super().__init__(_PARSERS, share=share, timeout=timeout, work="the bodies of others are")
        self._cold = [Helper("reading a long JSON text") for _ in range(_PARSERS)]
        self._warm: list[Helper] = []
        self._starting = threading.Lock()

    async def read(self, tenant: str, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a module's function, in a turn of the tenant's.

        Raises:
            Unavailable: there is no turn in time, or the process that computed it was killed.
        """
        async with self.turn(tenant):
            return await run_in_threadpool(self.run, function, *arguments)

    @contextmanager
    def reading_on_thread(self, tenant: str, size: int) -> Iterator[Run]:
        """Hold what reads JSON for the duration of the block, on the thread of a request.

        Args:
            tenant: whose turn it is.
            size: bytes of JSON; few are read here, without a turn.

        Raises:
            Unavailable: none became free in time.
        """
        if size <= QUICK_BYTES:
            yield run_here
            return
        from_thread.run(self._take, tenant, None)
        try:
            yield self.run
        finally:
            from_thread.run_sync(self._give_back, tenant)

    def run(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Call a function in a process; here, while one starts."""
        try:
            helper = self._warm.pop()  # atomic, as all that threads do to these lists
        except IndexError:
            self._start(function, arguments)
            return function(*arguments)
        try:
            return helper.call(function, *arguments)
        finally:
            (self._cold if helper.pid is None else self._warm).append(helper)

    def _start(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> None:
        """Start a process beside this thread, unless one starts or all of them have.

        It does the same work first, so that it has imported what that needs.
        """
        if not self._starting.acquire(blocking=False):
            return
        if not self._cold:
            self._starting.release()
            return
        helper = self._cold.pop()

        def start() -> None:
            try:
                with suppress(ModelkinError, RuntimeError):
                    helper.call(function, *arguments)
            finally:
                (self._cold if helper.pid is None else self._warm).append(helper)
                self._starting.release()

        try:
            threading.Thread(target=start, name="json-reader-start", daemon=True).start()
        except RuntimeError:  # there is no room for a thread: a later text tries again
            self._cold.append(helper)
            self._starting.release()


def run_here(function: Callable[..., T], /, *arguments: Any) -> T:
    """The :class:`Run` of this process."""
    return function(*arguments)


class JsonRoute(ThreadRoute):
    """A route whose body is strict JSON: no NaN, no lone surrogates, limited nesting.

    Its body holds memory until it is answered. FastAPI is handed the validated model.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        field = self.body_field
        kind = None if field is None else field.field_info.annotation

        async def strictly(request: Request) -> Response:
            await self.before_body(request)
            if kind is None:
                return await handle(request)
            with services_of(request)[Budgets].holding(tenant_of(request)) as holds:
                body = _JsonRequest(request, kind, *holds)
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
        kind: Any,
        bodies: Reservation,
        decoded: Reservation,
    ) -> None:
        super().__init__(request.scope, request.receive)
        self._kind = kind
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
        return _INVALID if self._errors else model

    async def _validation(self, body: bytes) -> Validation:
        if len(body) <= _INLINE_BYTES:
            return validated(self._kind, body)
        if len(body) <= QUICK_BYTES:
            return await run_in_threadpool(validated, self._kind, body)
        parsers = services_of(self)[JsonParsers]
        return await parsers.read(tenant_of(self), validated, self._kind, body)

    def explained(self, error: RequestValidationError) -> RequestValidationError:
        """What FastAPI found, with what was found in the body in place of its own finding."""
        if not self._errors:
            return error
        others = [entry for entry in error.errors() if entry["loc"][:1] != ("body",)]
        return RequestValidationError([*others, *self._errors])


def received_body(request: Request) -> bytes:
    """The JSON body of a request, once it was read; empty where its operation takes none."""
    return request._body if isinstance(request, _JsonRequest) else b""


def _validated_bytes(body: bytes) -> int:
    """Memory for what remains of a body once it is validated, at most what was reserved."""
    values = sum(map(body.count, (b",", b":", b"[", b"{")))
    return min(DECODED_BYTES_PER_BYTE * len(body), 4 * len(body) + _BYTES_OF_A_VALUE * values)
