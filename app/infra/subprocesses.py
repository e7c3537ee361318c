"""Run GIL-bound computations in child processes.

In the process of a service or a worker they would block requests, cancellations and heartbeats, so
that other workers took this one for dead. A child ends when its caller stops waiting, or ends.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import pickle  # noqa: TID251 - a child reads what its parent writes, on a pipe of theirs
import signal
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, TypeVar

from app.infra.errors import Unavailable
from modelkin.errors import ModelkinError

__all__ = ["CallProcess", "run_in_subprocess"]

T = TypeVar("T")

_POLL_INTERVAL_S = 0.25
"""Seconds between two calls of ``meanwhile``."""
_MAX_CALL_S: Final = 60.0
_NICENESS: Final = 5
"""The niceness of a child beyond this process's, which goes first where both want a core."""

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
    result: T = _result_or_raise(succeeded, answer)
    return result


class _Ended(Exception):
    """A helper has ended."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


class CallProcess:
    """A child process that computes again and again, for one caller at a time.

    The child starts with the first call, in about a second, and again after it has ended. Its
    priority is lower than that of this process. It ends when this process does, in whatever way: it
    reads a pipe whose other end no other process has. It inherits no socket.

    Args:
        work: its work, for messages.
        timeout: the seconds that a call may take.
    """

    def __init__(self, work: str, timeout: float = _MAX_CALL_S) -> None:
        self._work = work
        self.timeout = timeout
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process; None where there is none."""
        return None if self._process is None else self._process.pid

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Compute ``function(*arguments)`` there.

        Args:
            function: a module's function, since the child imports it.
            arguments: picklable values.

        Raises:
            ModelkinError: the function raised it.
            Unavailable: the child was killed, for example because memory ran out, or takes too
                long. The next call has another one. Only after SIGTERM, which supervisors send to
                all processes of a service, another one computes this call.
            RuntimeError: the function raised any other error.
        """
        request = pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL)
        result: T
        try:
            result = self._answer(request)
            return result
        except _Ended as ended:
            code = ended.code
        if code == -signal.SIGTERM:  # sent to the group of this process, which ends its work first
            with contextlib.suppress(_Ended):
                result = self._answer(request)
                return result
        raise Unavailable(
            f"{self._work} ended early, exit code {code}: -9 is a lack of memory; "
            f"try again, or send less at a time"
        )

    def _answer(self, request: bytes) -> Any:
        """The result of a request; :class:`_Ended` if the process ends before."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            if self._process is not None:
                self._process.kill()

        # No time limit of the pipe does it: a process that stands still takes no request in either.
        watch = threading.Timer(self.timeout, give_up)
        watch.start()
        try:
            connection = self._send(request)
            if late.is_set():  # else the new process would compute an answer that no caller awaits
                raise EOFError
            succeeded, answer = connection.recv()
        except (EOFError, OSError):
            code = self.close()
            if late.is_set():
                raise Unavailable(
                    f"{self._work} takes longer than {self.timeout:g} s: send less at a time"
                ) from None
            raise _Ended(code) from None
        except BaseException:  # its answer would be taken for that of the next call
            self.close()
            raise
        finally:
            watch.cancel()
        return _result_or_raise(succeeded, answer)

    def close(self) -> int | None:
        """End the process; return its exit code, None if there was none."""
        if self._process is None or self._connection is None:
            return None
        self._connection.close()
        self._process.join(_POLL_INTERVAL_S)
        self._process.kill()
        self._process.join()
        code = self._process.exitcode
        self._process = self._connection = None
        return code

    def _send(self, request: bytes) -> Connection:
        """Send the request to the child, replaced if it has ended; return the connection."""
        if self._connection is not None and self._process is not None and self._process.is_alive():
            with contextlib.suppress(OSError):
                self._connection.send_bytes(request)
                return self._connection
        self.close()
        self._connection, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=_help, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the child closes the pipe
        self._connection.send_bytes(request)
        return self._connection


def _result_or_raise(succeeded: bool, answer: Any) -> Any:
    """The result that a child sent; raises the error if it sent that."""
    if succeeded:
        return answer
    if isinstance(answer, ModelkinError):
        raise answer
    raise RuntimeError(answer)


def _compute(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Compute in the child, and send the result or the error."""
    outcome = _outcome(partial(function, *arguments))
    with contextlib.suppress(BrokenPipeError):  # the parent no longer waits
        sender.send(outcome)


def _help(connection: Connection) -> None:
    """The main function of a helper: compute until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the parent, which ends this process
    gc.disable()
    with contextlib.suppress(EOFError, OSError):
        for call in itertools.count():
            request = connection.recv_bytes()
            connection.send(_outcome(partial(_call, request)))
            if call == 0:
                os.nice(_NICENESS)  # only now: the first call imports its needs
            gc.collect()  # between two calls; modules and caches are collected once
            gc.freeze()


def _call(request: bytes) -> Any:
    function, arguments = pickle.loads(request)  # noqa: S301 - of this process's parent
    return function(*arguments)


def _outcome(compute: Callable[[], Any]) -> tuple[bool, Any]:
    try:
        return True, compute()
    except ModelkinError as error:
        return False, error
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"
