"""JSON bodies: strict, parsed and validated once, the long ones elsewhere, two at a time.

A parser holds the interpreter's lock while it works, and a small request waits for it some twenty
times. So a body beyond a few kilobytes leaves the event loop, and one beyond :data:`QUICK_BYTES`
this process: it waits for its turn among the tenants', and a child process of lower priority reads
it. So do bodies and lines that are read by a thread of their request.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from anyio import from_thread
from fastapi import Depends, Request, params
from fastapi.exceptions import RequestValidationError

from app.infra.http.openapi import Refuses
from app.infra.http.requests.bodies import BODY_PROBLEMS, BodyLimits, media_type_of, read_body
from app.infra.http.requests.json_reading import validate_body
from app.infra.http.requests.memory_budget import Budgets, Reservation
from app.infra.http.services import services_of
from app.infra.http.turns import Pool, tenant_of
from app.infra.subprocesses import CallProcess
from modelkin import wire
from modelkin.errors import InvalidParameter, ModelkinError, UnsupportedMediaType

__all__ = [
    "DECODED_BYTES_PER_BYTE",
    "JsonBody",
    "JsonReader",
    "JsonParsers",
    "QUICK_BYTES",
    "JsonReading",
    "Run",
    "body_model",
    "received_body",
    "run_here",
]

T = TypeVar("T")

DECODED_BYTES_PER_BYTE: Final = 32
"""The most bytes of memory for a byte of JSON: ``{"a":0},`` takes 232."""

_BYTES_OF_A_VALUE: Final = 128
"""Memory of an element, a name or a value of it, beside the characters, which take 4 at most."""
_PARSERS: Final = 2
"""Long bodies that are read at a time, each by a process; a tenant gets one of the two at most."""
QUICK_BYTES: Final = 32 << 10
"""A shorter text is parsed here, without a turn: it takes a millisecond, and a megabyte."""


class Run(Protocol):
    """Calls a module's function, here or in another process: arguments and result are pickled."""

    def __call__(self, function: Callable[..., T], /, *arguments: Any) -> T: ...


JsonReading: TypeAlias = Callable[[int], AbstractContextManager[Run]]
"""A context for reading a number of bytes of JSON: :meth:`JsonParsers.reading_on_thread`."""


class JsonParsers(Pool):
    """The processes that read long JSON, and the turns of the tenants at them.

    A process starts beside the first text that finds no free process. Starting takes a second, in
    which texts are read in this process. A killed process is replaced in the same way: its text is
    refused, and the next text is read.

    Args:
        share: the share of the processes that one tenant may hold while others wait.
        timeout: the seconds that a body waits.
    """

    def __init__(self, *, share: float, timeout: float) -> None:
        super().__init__(_PARSERS, share=share, timeout=timeout, work="the bodies of others are")
        self._cold = [CallProcess("reading a long JSON text") for _ in range(_PARSERS)]
        self._warm: list[CallProcess] = []
        self._starting = threading.Lock()

    @contextmanager
    def reading_on_thread(self, tenant: str, size: int) -> Iterator[Run]:
        """Hold a reader of JSON for the duration of the block, on the thread of a request.

        Args:
            size: the bytes of JSON; a short text is read here, without a turn.

        Raises:
            Unavailable: no reader became free in time.
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

        The process does the same work first, so that it has imported all that the work needs.
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


class JsonBody(Generic[T]):
    """The JSON body of a request, read but not parsed: that waits for its turn, and a thread.

    The parameter of an endpoint, ``body: JsonBody[SpaceIn]``, is in the OpenAPI document.
    """

    def __init__(
        self, body_type: type[T], data: bytes, hold: Reservation, reading: JsonReading
    ) -> None:
        self._body_type = body_type
        self._data = data
        self._hold = hold
        self._reading = reading
        self._read: T | None = None

    if not TYPE_CHECKING:

        def __class_getitem__(cls, body_type: type[Any]) -> Any:
            return Annotated[
                cls,
                Depends(_json_reader(body_type), scope="function"),
                Refuses(*BODY_PROBLEMS, InvalidParameter),
            ]

    def read(self) -> T:
        """Parse and validate the body, in memory that its request holds until it is answered.

        Raises:
            RequestValidationError: the body is not JSON, or does not fit the operation.
            Unavailable: there is no memory for the decoded body.
        """
        if self._read is not None:
            return self._read
        self._hold.take(DECODED_BYTES_PER_BYTE * len(self._data))
        with self._reading(len(self._data)) as run:
            try:
                model, wrong = run(validate_body, self._body_type, self._data)
            except InvalidParameter as error:
                wrong = [{"type": "json_invalid", "loc": ("body",), "msg": str(error)}]
        if wrong:
            raise RequestValidationError(wrong)
        self._hold.keep(_validated_bytes(self._data))
        self._read = model
        return self._read


class JsonReader:
    """A reader of bodies of one model.

    Args:
        body_type: the class of the model.
    """

    def __init__(self, body_type: type[Any]) -> None:
        self.body_type = body_type

    async def __call__(self, request: Request) -> AsyncIterator[JsonBody[Any]]:
        if media_type_of(request) != wire.JSON:
            raise UnsupportedMediaType("this takes Content-Type: application/json")
        services, tenant = services_of(request), tenant_of(request)
        with services[Budgets].holding(tenant) as (bodies, decoded):
            data = bytes(await read_body(request, services[BodyLimits], wire.JSON, bodies))
            request.state.received = data
            reading = partial(services[JsonParsers].reading_on_thread, tenant)
            yield JsonBody(self.body_type, data, decoded, reading)


@cache
def _json_reader(body_type: type[Any]) -> JsonReader:
    return JsonReader(body_type)


def body_model(annotation: Any) -> type[Any] | None:
    """The model of a parameter that is a :class:`JsonBody`; None of any other parameter."""
    for part in getattr(annotation, "__metadata__", ()):
        if isinstance(part, params.Depends) and isinstance(part.dependency, JsonReader):
            return part.dependency.body_type
    return None


def received_body(request: Request) -> bytes:
    """The JSON body of a request, once it was read; empty where its operation takes none."""
    received: bytes = getattr(request.state, "received", b"")
    return received


def _validated_bytes(body: bytes) -> int:
    """Memory of a validated body, at most the reserved bytes."""
    values = sum(map(body.count, (b",", b":", b"[", b"{")))
    return min(DECODED_BYTES_PER_BYTE * len(body), 4 * len(body) + _BYTES_OF_A_VALUE * values)
