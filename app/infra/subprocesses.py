"""Run a GIL-bound computation in a child process.

In the process of a service or a worker it would block requests, cancellations and heartbeats, so
that other workers took this one for dead. The child ends when its caller stops waiting.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from app.errors import Unavailable
from modelkin.errors import ModelkinError

__all__ = ["run_in_subprocess"]

T = TypeVar("T")

_POLL_INTERVAL_S = 0.25
"""Seconds between two calls of ``meanwhile``."""

_spawn = multiprocessing.get_context("spawn")  # threads and connections survive no fork


def run_in_subprocess(
    function: Callable[..., T], *arguments: Any, meanwhile: Callable[[], None]
) -> T:
    """Compute ``function(*arguments)`` in a child process.

    A child takes about a second to start: worth it for computations of several seconds.

    Args:
        function: a module's function, since the child imports it.
        arguments: picklable values: numbers, texts, arrays.
        meanwhile: called again and again; an error that it raises ends the computation.

    Raises:
        ModelkinError: the function raised it.
        Unavailable: the child was killed, for example because memory ran out.
        RuntimeError: the function raised any other error.
    """
    receiver, sender = _spawn.Pipe(duplex=False)
    process = _spawn.Process(target=_compute, args=(sender, function, arguments), daemon=True)
    process.start()
    sender.close()  # so that the end of the child closes the pipe
    try:
        while not receiver.poll(_POLL_INTERVAL_S):
            meanwhile()
        succeeded, answer = receiver.recv()
    except EOFError:
        process.join()
        raise Unavailable(
            f"a computation ended early, exit code {process.exitcode}: -9 is a lack of memory"
        ) from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if succeeded:
        result: T = answer
        return result
    if isinstance(answer, ModelkinError):
        raise answer
    raise RuntimeError(answer)


def _compute(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Compute in the child, and send the result or the error."""
    try:
        outcome: tuple[bool, Any] = True, function(*arguments)
    except ModelkinError as error:
        outcome = False, error
    except Exception as error:
        outcome = False, f"{type(error).__name__}: {error}"
    with contextlib.suppress(BrokenPipeError):  # the parent no longer waits
        sender.send(outcome)
