"""The chunks of an upload, sent by threads; ``_bulk`` says what they are and what came of them.

The caller's thread takes the items and keeps the account; the others only send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from modelkin.client._protocol.batches import Chunk, Given, Upload, encoded
from modelkin.client._protocol.flows import perform
from modelkin.client._protocol.spaces import Call
from modelkin.types.models import BulkResult

__all__ = ["put_chunks"]

Run = Callable[[Call[Any]], Any]


def put_chunks(upload: Upload, items: Iterable[Given], concurrency: int, run: Run) -> None:
    """Put all the items, ``concurrency`` chunks at a time.

    What ends it is raised when the chunks under way are over: those that arrived are settled.

    Args:
        upload: keeps the account.
        items: taken one by one, as there is room.
        concurrency: chunks under way at a time.
        run: sends a call, again where that helps, and reads its answer.
    """
    under_way: dict[Future[tuple[BulkResult, ...]], Chunk] = {}

    def settle_first() -> None:
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            results = future.result()
            upload.settle(under_way.pop(future), results)

    with ThreadPoolExecutor(concurrency, "modelkin-put-many") as pool:
        try:
            for chunk in _chunks(upload, items):
                while len(under_way) >= concurrency or not upload.may_start(chunk):
                    settle_first()
                under_way[pool.submit(perform, upload.start(chunk), run)] = chunk
            while under_way:
                settle_first()
        finally:
            for future in wait(under_way).done:
                if future.exception() is None:
                    upload.settle(under_way[future], future.result())


def _chunks(upload: Upload, items: Iterable[Given]) -> Iterator[Chunk]:
    for given in items:
        yield from upload.add(encoded(given))
    yield from upload.rest()
