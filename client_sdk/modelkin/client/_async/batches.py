"""``put_chunks``: sends the chunks of a bulk upload, several at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from modelkin.client._async.flows import run_flow
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

__all__ = ["put_chunks"]


async def put_chunks(
    upload: Upload, items: AsyncItems, concurrency: int, run: AsyncRun, layouts: LayoutCache
) -> None:
    """Puts all the items.

    An error that ends the upload is raised once no chunk is in flight. The results of chunks that
    have arrived by then are recorded.

    Args:
        upload: the upload, which makes the chunks and records their results.
        items: the items, which are read one by one, when there is room for them.
        concurrency: the number of chunks in flight at a time.
        run: a function that sends a call, with retries, and reads its answer.
        layouts: the client's cache of layouts.
    """
    pool: AsyncTaskPool[Chunk, tuple[BulkResult, ...]] = AsyncTaskPool(concurrency)
    try:
        async with aclosing(_chunks(upload, items, run, layouts)) as chunks:
            async for chunk in chunks:
                while len(pool) >= concurrency or not upload.may_start(chunk):
                    upload.settle(*await pool.next_result())
                pool.start(chunk, run_flow, upload.start(chunk), run)
        while len(pool):
            upload.settle(*await pool.next_result())
    finally:
        for chunk, results in await pool.close():
            upload.settle(chunk, results)


async def _chunks(
    upload: Upload, items: AsyncItems, run: AsyncRun, layouts: LayoutCache
) -> AsyncGenerator[Chunk, None]:
    tensors: TensorOrder | None = layouts.get(upload.space)
    fresh = False
    async with aclosing(async_each(items)) as given:
        async for item in given:
            if not fresh and (needs_space(item) or (tensors is not None and tensors.blinding)):
                fresh = True
                layouts.discard(upload.space)  # another client may have made the space again
                tensors = await run_flow(tensors_of(layouts, upload.space), run)
            line = (
                await async_offload(encode_line, item, tensors)
                if is_heavy(item)
                else encode_line(item, tensors)
            )
            for chunk in upload.add(line):
                yield chunk
    for chunk in upload.rest():
        yield chunk
