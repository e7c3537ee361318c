"""A TCP proxy that fails as networks do: late, silent, torn down, cut within a message, or twice.

It stands before any store that is reached by TCP or by a socket in a folder, and knows nothing of
what it carries. A fault begins with :meth:`Proxy.failing` and holds for old and new connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

__all__ = ["KINDS", "Fault", "Proxy", "proxy", "schedule"]

Kind = Literal["latency", "stall", "reset", "cut", "refuse", "replay"]
KINDS: Final[tuple[Kind, ...]] = ("latency", "stall", "reset", "cut", "refuse")
"""What can happen to a stream of bytes; ``replay`` is for protocols whose requests are repeated."""
_PIECE: Final = 1 << 16
_RST_ON_CLOSE: Final = struct.pack("ii", 1, 0)

Address = tuple[str, int] | Path


@dataclass(frozen=True)
class Fault:
    """What happens to connections.

    Attributes:
        kind: ``latency`` delays each piece; ``stall`` holds all of them back until the fault is
            over; ``reset`` tears connections down with RST, ``cut`` in the middle of a piece;
            ``refuse`` accepts and closes; ``replay`` sends what a client has sent once more, on a
            connection of its own, once the first is over.
        chance: that a piece, or a connection, meets it.
        seconds: of latency.
    """

    kind: Kind
    chance: float = 1.0
    seconds: float = 0.05


def schedule(seed: int, kinds: Sequence[Kind] = KINDS) -> Iterator[Fault]:
    """Faults drawn from a seed: each kind in turn, at any chance and latency."""
    draw = random.Random(seed)
    while True:
        for kind in draw.sample(list(kinds), len(kinds)):
            yield Fault(kind, draw.choice((0.2, 0.5, 1.0)), draw.choice((0.01, 0.05, 0.2)))


class Proxy:
    """The proxy before one address.

    Args:
        target: a host and port, or the path of a socket.
        seed: of the chances.
    """

    def __init__(self, target: Address, seed: int = 0) -> None:
        self._target = target
        self._draw = random.Random(seed)
        self._fault: Fault | None = None
        self._over = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0
        self.hits = 0
        """Pieces and connections that met a fault."""

    def start(self) -> None:
        """Listen on a free port of loopback."""
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Close all connections."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Let connections meet a fault while the block runs."""
        self._run(self._begin(fault))
        try:
            yield
        finally:
            self._run(self._end())

    async def _begin(self, fault: Fault) -> None:
        self._fault = fault
        self._over.clear()
        if fault.kind == "reset":  # those that are idle, too
            for writer in [each for each in self._writers if self._meets("reset")]:
                _reset(writer)

    async def _end(self) -> None:
        self._fault = None
        self._over.set()

    async def _close(self) -> None:
        await self._end()
        self._server.close()
        for writer in list(self._writers):
            _reset(writer)
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, task: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(task, self._loop).result(30)

    def _meets(self, *kinds: Kind) -> bool:
        fault = self._fault
        met = fault is not None and fault.kind in kinds and self._draw.random() < fault.chance
        self.hits += met
        return met

    async def _serve(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        self._writers.add(to_near)
        try:
            if self._meets("refuse"):
                return
            sent = bytearray() if self._meets("replay") else None
            async with self._connected() as (far, to_far):
                await asyncio.gather(
                    self._pump(near, to_far, to_near, sent), self._pump(far, to_near, to_far, None)
                )
            if sent:
                task = asyncio.ensure_future(self._send_again(bytes(sent)))
                self._background.add(task)
                task.add_done_callback(self._background.discard)
        except OSError:
            pass  # one of both sides has gone
        finally:
            self._writers.discard(to_near)
            to_near.close()

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        if isinstance(self._target, Path):
            reader, writer = await asyncio.open_unix_connection(self._target)
        else:
            reader, writer = await asyncio.open_connection(*self._target)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        to: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        sent: bytearray | None,
    ) -> None:
        """Carry what comes from one side to the other, until it ends or meets a fault."""
        while piece := await source.read(_PIECE):
            if sent is not None:
                sent += piece
            if self._meets("latency"):
                await asyncio.sleep(self._seconds)
            if self._meets("stall"):
                await self._over.wait()
            if self._meets("reset", "cut"):
                if self._fault is not None and self._fault.kind == "cut":
                    to.write(piece[: len(piece) // 2])
                    with contextlib.suppress(OSError):
                        await to.drain()
                    to.close()
                    back.close()
                else:
                    _reset(to)
                    _reset(back)
                return
            to.write(piece)
            await to.drain()
        if to.can_write_eof():
            to.write_eof()

    @property
    def _seconds(self) -> float:
        return 0.0 if self._fault is None else self._fault.seconds

    async def _send_again(self, data: bytes) -> None:
        async with self._connected() as (far, to_far):
            to_far.write(data)
            to_far.write_eof()
            while await far.read(_PIECE):
                pass


@contextmanager
def proxy(target: Address, seed: int = 0) -> Iterator[Proxy]:
    """A proxy that runs for as long as the block."""
    running = Proxy(target, seed)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST: what was on the way is lost."""
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.family != socket.AF_UNIX and raw.fileno() >= 0:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
    writer.transport.abort()
