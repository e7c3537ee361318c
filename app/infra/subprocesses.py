"""Computing in a process of its own what would hold the interpreter's lock for long.

Such a computation, in the process of a service or a worker, would answer no request, hear of no
cancelling, and let other workers believe that this one is dead. Here it does none of that, and ends
when nobody waits for it any more. This module knows no job.
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

_LOOK = 0.25
"""Seconds between two calls of ``meanwhile``."""

_spawn = multiprocessing.get_context("spawn")  # threads and connections survive no fork


def run_in_subprocess(
    function: Callable[..., T], *arguments: Any, meanwhile: Callable[[], None]
) -> T:
    """What ``function(*arguments)`` answers, computed in a process of its own.

    That takes about a second to start: worth it for what takes several.

    Args:
        function: of a module, since the other process imports it anew.
        arguments: what can be sent there: numbers, texts, arrays.
        meanwhile: called again and again; what it raises ends the computation, and is raised.

    Raises:
        ModelkinError: the function raised it.
        Unavailable: the process was killed, as it is where memory runs out.
        RuntimeError: the function raised anything else.
    """
    hears, says = _spawn.Pipe(duplex=False)
    process = _spawn.Process(target=_compute, args=(says, function, arguments), daemon=True)
    process.start()
    says.close()  # so that its end is heard here
    try:
        while not hears.poll(_LOOK):
            meanwhile()
        succeeded, answer = hears.recv()
    except EOFError:
        process.join()
        raise Unavailable(
            f"a computation ended early, exit code {process.exitcode}: -9 is a lack of memory"
        ) from None
    finally:
        process.kill()
        process.join()
        hears.close()
    if succeeded:
        result: T = answer
        return result
    if isinstance(answer, ModelkinError):
        raise answer
    raise RuntimeError(answer)


def _compute(says: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """The life of the other process."""
    try:
        told: tuple[bool, Any] = True, function(*arguments)
    except ModelkinError as error:
        told = False, error
    except Exception as error:
        told = False, f"{type(error).__name__}: {error}"
    with contextlib.suppress(BrokenPipeError):  # nobody waits any more
        says.send(told)
