"""``run_flow``: sends the calls of a flow."""

from __future__ import annotations

from typing import TypeVar

from modelkin.client._protocol.flows import AsyncRun, Flow
from modelkin.client._transport.concurrency import async_offload
from modelkin.errors import ApiError

__all__ = ["run_flow"]

T = TypeVar("T")


async def run_flow(flow: Flow[T], run: AsyncRun, *, heavy: bool = False) -> T:
    """Runs a flow to its end and returns its result.

    Args:
        flow: a flow that has not started.
        run: sends a call, with retries, and reads its answer.
        heavy: whether the first call takes long to make, as for the encoding of a support.
    """
    try:
        call = await async_offload(next, flow) if heavy else next(flow)
        while True:
            try:
                answer = await run(call)
            except ApiError as error:
                call = flow.throw(error)
            else:
                call = flow.send(answer)
    except StopIteration as finished:
        result: T = finished.value
        return result
