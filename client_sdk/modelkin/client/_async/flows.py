"""``run_flow``: sends the calls of a flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from modelkin.client._protocol.calls.flows import AsyncRun, Flow, next_step
from modelkin.client._transport.concurrency import async_offload
from modelkin.errors import ApiError

__all__ = ["run_flow"]

T = TypeVar("T")


async def run_flow(flow: Flow[T], run: AsyncRun, *, heavy: bool = False) -> T:
    """Runs a flow to its end and returns its result.

    Args:
        flow: a flow that has not started.
        run: a function that sends a call, with retries, and reads its answer.
        heavy: whether the flow's calls take long to make, as for the encoding of a support.
    """
    proceed: Callable[..., Any] = flow.send
    sent: Any = None
    while True:
        step = await async_offload(next_step, proceed, sent) if heavy else next_step(proceed, sent)
        if step.call is None:
            result: T = step.result
            return result
        try:
            proceed, sent = flow.send, await run(step.call)
        except ApiError as error:
            proceed, sent = flow.throw, error
