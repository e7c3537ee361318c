"""Sends the chunks of a bulk upload, several at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from modelkin.client._async.flows import run_flow
from modelkin.client._protocol import fingerprints
from modelkin.client._protocol.calls.flows import AsyncRun
from modelkin.client._protocol.uploads.batches import Upload
from modelkin.client._protocol.uploads.lines import (
    AsyncItems,
    Chunk,
    encode_line,
    is_heavy,
    needs_space,
)
from modelkin.client._protocol.uploads.tensor_order import LayoutCache, tensors_of
from modelkin.client._transport.concurrency import AsyncTaskPool, async_each, async_offload
from modelkin.core.tensor_order import TensorOrder
from modelkin.types.models import BulkResult

__all__ = ["fingerprint_chunks", "model_chunks", "put_chunks"]


async def put_chunks(
    upload: Upload, chunks: AsyncGenerator[Chunk, None], concurrency: int, run: AsyncRun
) -> None:
    """Puts all chunks.

    An error that ends the upload is raised once no chunk is in flight. The results of chunks that
    have arrived by then are recorded.

    Args:
        upload: the upload, which records the results of the chunks.
        chunks: are made one by one, when there is room for them.
        concurrency: the number of chunks in flight at a time.
        run: a function that sends a call, with retries, and reads its answer.
    """
    pool: AsyncTaskPool[Chunk, tuple[BulkResult, ...]] = AsyncTaskPool(concurrency)
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                while len(pool) >= concurrency or not upload.may_start(chunk):
                    upload.settle(*await pool.next_result())
                pool.start(chunk, run_flow, upload.start(chunk), run)
        while len(pool):
            upload.settle(*await pool.next_result())
    finally:
        for chunk, results in await pool.close():
            upload.settle(chunk, results)


async def model_chunks(
    upload: Upload, space: str, items: AsyncItems, run: AsyncRun, layouts: LayoutCache
) -> AsyncGenerator[Chunk, None]:
    """Yields the chunks of models for a space, whose layout the client's cache may know."""
    tensors: TensorOrder | None = layouts.get(space)
    fresh = False
    async with aclosing(async_each(items)) as given:
        async for item in given:
            if not fresh and (needs_space(item) or (tensors is not None and tensors.blinding)):
                fresh = True
                layouts.discard(space)  # another client may have made the space again
                tensors = await run_flow(tensors_of(layouts, space), run)
            line = (
                await async_offload(encode_line, item, tensors)
                if is_heavy(item)
                else encode_line(item, tensors)
            )
            for chunk in upload.add(line):
                yield chunk
    for chunk in upload.rest():
        yield chunk


async def fingerprint_chunks(
    upload: Upload, items: fingerprints.AsyncItems
) -> AsyncGenerator[Chunk, None]:
    """Yields the chunks of fingerprints."""
    async with aclosing(async_each(items)) as given:
        async for item in given:
            for chunk in upload.add(await async_offload(fingerprints.encode_line, item)):
                yield chunk
    for chunk in upload.rest():
        yield chunk
