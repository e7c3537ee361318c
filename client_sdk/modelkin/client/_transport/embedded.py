"""``EmbeddedService``: a service for this process, on a free port of the loopback interface.

The service runs in a child process, so that no package of the service is imported here. The child
ends with this process, however that ends: it watches the pipe of its standard input, and its
parent's id. Clients of one process share the service of a folder.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from modelkin._processes import PerProcess
from modelkin._server_folder import server_command, server_environment, server_folder
from modelkin._terminal_text import one_line
from modelkin.errors import ConnectionFailed, InvalidParameter

__all__ = ["MEMORY", "EmbeddedService", "embedded_service"]

MEMORY: Final = ":memory:"
"""The value in place of a URL for a service whose data is deleted with the client."""

_START_TIMEOUT_S: Final = 300.0
_STOP_TIMEOUT_S: Final = 30.0
_LOG: Final = "service.log"
_QUOTED: Final = 3
"""The last lines of the log that an error quotes."""
_REFUSED: Final = 2
"""The exit code of a service that refused its settings."""

Values = Mapping[str, str | int | float | bool | None]


class EmbeddedService:
    """The service of a folder, started when it is made; :meth:`wait` until it answers.

    Args:
        folder: the folder of the data; None for a temporary one, which the service deletes at its
            end.
        settings: the service's settings by name; by default its own defaults.

    Raises:
        MissingExtra: the service is not installed.
    """

    _shared: ClassVar[dict[tuple[int, Path], EmbeddedService]] = {}
    _sharing: ClassVar[PerProcess[threading.Lock]] = PerProcess(threading.Lock)

    def __init__(self, folder: Path | None, settings: Values | None = None) -> None:
        code = server_folder()
        self.folder = Path(tempfile.mkdtemp(prefix="modelkin-")) if folder is None else folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._temporary = folder is None
        self._settings = dict(settings or {})
        self._owner = os.getpid()
        self._users = 1
        self._ready = False
        self._said = ""
        self._waiting = threading.Lock()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            self._process = self._start_process(code, listening)

    @classmethod
    def of(cls, folder: Path | None, settings: Values | None = None) -> EmbeddedService:
        """Return the service of a folder, which other clients of this process may use already.

        Raises:
            InvalidParameter: it runs with other settings than those that are asked for.
            MissingExtra: the service is not installed.
        """
        if folder is None:
            return cls(None, settings)
        key = os.getpid(), folder.resolve()
        with cls._sharing.get():
            known = cls._shared.get(key)
            if known is not None and known._process.poll() is None:
                if settings is not None and settings != known._settings:
                    raise InvalidParameter(
                        f"another client of this process runs the service of {folder} with other "
                        f"settings: close it first",
                        field="settings",
                    )
                known._users += 1
                return known
            made = cls._shared[key] = cls(key[1], settings)
            return made

    def wait(self) -> None:
        """Return once the service answers; at once in a process that was forked from its owner.

        Raises:
            ConnectionFailed: the service could not start; gives the service's own reason.
            InvalidParameter: the service refuses its settings.
        """
        if self._ready or os.getpid() != self._owner:  # it is listening, and the owner waits
            return
        with self._waiting:
            if not self._ready:
                self._await()
            self._ready = True

    def close(self) -> None:
        """End the service, if this process owns it and no other client of it uses it."""
        if os.getpid() != self._owner:
            return
        with self._sharing.get():
            self._users -= 1
            if self._users:
                return
            key = os.getpid(), self.folder
            if self._shared.get(key) is self:
                del self._shared[key]
        _stop(self._process)
        self._log.close()
        if self._temporary:  # a killed service has not deleted it
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start_process(self, code: Path, listening: socket.socket) -> subprocess.Popen[bytes]:
        environment = server_environment(code)
        for name in list(environment):
            if name.upper().startswith("MODELKIN_"):  # for another service
                del environment[name]
        arguments = [str(self.folder), f"--listen-fd={listening.fileno()}"]
        if self._temporary:
            arguments.append("--temporary")
        with (self.folder / _LOG).open("wb") as log:
            # Open, so that it can be read where the service has deleted a temporary folder.
            self._log = (self.folder / _LOG).open("rb")
            process = subprocess.Popen(  # noqa: S603
                server_command("app.server.embedded", *arguments),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=[listening.fileno()],
                start_new_session=True,  # an interrupted notebook cell must not end it
            )
        with contextlib.suppress(OSError):  # a process that has ended says why
            # Not as arguments or variables: there may be secrets among them.
            _pipe(process.stdin).write(json.dumps(self._settings).encode() + b"\n")
            _pipe(process.stdin).flush()
        return process

    def _await(self) -> None:
        killer = threading.Timer(_START_TIMEOUT_S, self._process.kill)
        killer.start()
        try:
            self._said = self._said or _pipe(self._process.stdout).readline().decode().strip()
        finally:
            killer.cancel()
        if self._said == "ready":
            return
        if self._process.wait() == _REFUSED and self._said:
            raise InvalidParameter(self._said, field="settings")
        lines = self._said or f"it ended by itself{self._end_of_log()}"
        raise ConnectionFailed(f"the embedded service cannot start: {lines}")

    def _end_of_log(self) -> str:
        """The last lines of the log; a temporary folder is deleted with the service."""
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        said = "; ".join(one_line(line.strip()) for line in lines[-_QUOTED:])
        where = "" if self._temporary else f", see {self.folder / _LOG}"
        return f"{where}: {said}" if said else where


def embedded_service(url: Any, path: Any, settings: Any = None) -> EmbeddedService | None:
    """The embedded service that a client's arguments ask for, or None for a service at a URL.

    Raises:
        InvalidParameter: the arguments ask for both, or for settings of a service at a URL; or this
            system cannot embed a service.
        MissingExtra: the service is not installed.
    """
    if path is None and url != MEMORY:
        if settings is not None:
            raise InvalidParameter(
                "settings are of a service that the client starts, with ':memory:' or path=; who "
                "starts the service of a URL gives it its settings",
                field="settings",
            )
        return None
    if path is not None and url is not None:
        raise InvalidParameter("give url or path, not both", field="path")
    if sys.platform == "win32":
        raise InvalidParameter(
            "a service is embedded on Linux and macOS alone: start one with `modelkin serve`",
            field="path",
        )
    values = None if settings is None else _checked(settings)
    if path is None or path == MEMORY:
        return EmbeddedService.of(None, values)
    try:
        folder = Path(path).expanduser()
    except (TypeError, RuntimeError) as error:
        raise InvalidParameter(f"path is not a folder: {error}", field="path") from None
    if folder.exists() and not folder.is_dir():
        raise InvalidParameter(f"path is a folder of data, and {folder} is a file", field="path")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter(
            f"path is a folder of data, and {folder} cannot be made: {error.strerror}", field="path"
        ) from None
    return EmbeddedService.of(folder, values)


def _checked(settings: Any) -> Values:
    """Settings as the service can read them, which checks names and ranges itself.

    Raises:
        InvalidParameter: not a dictionary of plain values by name.
    """
    if not isinstance(settings, Mapping):
        raise InvalidParameter(
            f"settings is a dictionary of values by name, not {type(settings).__name__}",
            field="settings",
        )
    for name, value in settings.items():
        plain = value is None or isinstance(value, str | int | float)
        endless = isinstance(value, float) and not math.isfinite(value)
        if not isinstance(name, str) or not plain or endless:
            raise InvalidParameter(
                f"settings[{name!r}] is text, a finite number, True, False or None, not {value!r}",
                field="settings",
            )
    return dict(settings)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process by closing its input, and by force if it does not react."""
    with contextlib.suppress(OSError):
        _pipe(process.stdin).close()
    process.terminate()  # processes that were forked from this one hold its input open
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _pipe(process.stdout).close()
