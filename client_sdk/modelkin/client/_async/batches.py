"""The chunks of an upload, sent by tasks: ``_bulk_sync`` for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

from modelkin.client._protocol.batches import Chunk, Given, Upload, encoded, is_heavy
from modelkin.client._protocol.flows import perform_async
from modelkin.client._protocol.spaces import Call
from modelkin.types.models import BulkResult

__all__ = ["put_chunks"]

Run = Callable[[Call[Any]], Awaitable[Any]]
Items = Iterable[Given] | AsyncIterable[Given]


async def put_chunks(upload: Upload, items: Items, concurrency: int, run: Run) -> None:
    """Put all the items, ``concurrency`` chunks at a time.

    What ends it ends the chunks under way too; those that have arrived are settled.

    Args:
        upload: keeps the account.
        items: taken one by one, as there is room.
        concurrency: chunks under way at a time.
        run: sends a call, again where that helps, and reads its answer.
    """
    under_way: dict[asyncio.Task[tuple[BulkResult, ...]], Chunk] = {}

    async def settle_first() -> None:
        done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            results = task.result()
            upload.settle(under_way.pop(task), results)

    try:
        async with aclosing(_chunks(upload, items)) as ready:
            async for chunk in ready:
                while len(under_way) >= concurrency or not upload.may_start(chunk):
                    await settle_first()
                under_way[asyncio.create_task(perform_async(upload.start(chunk), run))] = chunk
        while under_way:
            await settle_first()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for task, chunk in under_way.items():
            if not task.cancelled() and task.exception() is None:
                upload.settle(chunk, task.result())


async def _chunks(upload: Upload, items: Items) -> AsyncGenerator[Chunk, None]:
    async with aclosing(_each(items)) as every:
        async for given in every:
            # The event loop has others to serve while a large support is encoded.
            heavy = is_heavy(given)
            line = await asyncio.to_thread(encoded, given) if heavy else encoded(given)
            for chunk in upload.add(line):
                yield chunk
    for chunk in upload.rest():
        yield chunk


async def _each(items: Items) -> AsyncGenerator[Given, None]:
    if isinstance(items, AsyncIterable):
        async for given in items:
            yield given
    else:
        for given in items:
            yield given
