"""``python -m app.server.embedded``: the service of one other process, such as a notebook.

It serves a folder on a socket that its parent made, and says ``ready`` on its standard output once
it answers. The first line of its standard input has its settings as JSON. It ends when its parent
does: at the end of its standard input, or when its parent changes. One process at a time embeds the
service of a folder.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import select
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from app.infra.errors import Unavailable, explain
from app.infra.fd_limits import raise_limit
from app.infra.garbage import without_collection
from app.infra.private_files import keep_private
from modelkin.errors import InvalidParameter, ModelkinError

__all__ = ["main"]

_LOCK: Final = "embedded.lock"
_POLL_INTERVAL_S: Final = 1.0
_REFUSED: Final = 2


def main(arguments: list[str]) -> int:
    """Exit 0 after the end of the parent, 1 where the service could not start.

    Exit 2 where a setting is refused.
    """
    options = _options(arguments)
    folder: Path = options.folder
    keep_private()
    parent = _Parent(os.getppid())
    given = parent.settings()
    parent.follow()
    try:
        return _serve(folder, socket.socket(fileno=options.listen_fd), given)
    except ModelkinError as error:
        _say(explain(error))
        refused = isinstance(error, InvalidParameter) and error.field == "settings"
        return _REFUSED if refused else 1
    finally:
        if options.temporary:
            shutil.rmtree(folder, ignore_errors=True)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m app.server.embedded")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--temporary", action="store_true", help="delete the folder at the end")
    return parser.parse_args(arguments)


def _serve(folder: Path, listening: socket.socket, given: dict[str, Any]) -> int:
    lock = FileLock(folder / _LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise Unavailable(
            f"another process embeds the service of {folder}: close its client, or run one service "
            f"for both with `modelkin serve` and give its URL"
        ) from None
    except OSError as error:
        raise Unavailable(f"{error.filename}: {error.strerror}") from error
    with lock:
        return _serve_alone(folder, listening, given)


def _serve_alone(folder: Path, listening: socket.socket, given: dict[str, Any]) -> int:
    with without_collection():
        from sqlalchemy import URL

        from app.bootstrap import open_services
        from app.operations.observability.logging import configure
        from app.server.server import serve_all
        from app.setting_messages import dbos_leftovers, settings_from_values
    port = listening.getsockname()[1]
    url = URL.create("sqlite", database=str(folder.absolute() / "modelkin.db"))
    fixed = {
        "auth": "off",
        "database_url": url.render_as_string(),
        "host": "127.0.0.1",
        "port": port,
        "processes": 1,
    }
    settings = settings_from_values({"log_level": "warning", **given}, fixed)
    configure(settings)
    for line in dbos_leftovers(settings):
        logging.getLogger("app").warning(line)
    raise_limit()
    with open_services(settings) as services:
        return serve_all(services, settings, listening, _announce)


def _announce() -> None:
    _say("ready")


def _say(line: str) -> None:
    """Write a line to the parent, which reads one line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class _Parent:
    """The process that started this one, and holds its standard input open while it lives."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def settings(self) -> dict[str, Any]:
        """The settings in the first line, or none where the parent has ended."""
        line = b""
        while not line.endswith(b"\n") and (piece := self._read()):
            line += piece
        found: dict[str, Any] = json.loads(line or "{}")
        return found

    def follow(self) -> None:
        """Stop this process when the parent closes its end of the pipe, or is gone."""

        def wait() -> None:
            while self._read():
                pass
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=wait, name="parent", daemon=True).start()

    def _read(self) -> bytes:
        """The next bytes from the parent; none once it has ended."""
        while os.getppid() == self._pid:
            readable, _, _ = select.select([sys.stdin], [], [], _POLL_INTERVAL_S)
            if readable:
                return os.read(sys.stdin.fileno(), 1 << 16)
        return b""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
