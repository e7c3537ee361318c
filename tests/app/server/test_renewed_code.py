"""The names that a running supervisor hands to processes of code that was installed since."""

from __future__ import annotations

import io
import pickle
from functools import partial
from operator import itemgetter
from pathlib import Path
from socket import socket
from typing import Any, cast
from unittest.mock import Mock

from app.bootstrap import register_jobs
from app.operations.observability.shared_values import SharedValues
from app.server.server import serve_one
from app.server.supervisor import ChildProcess, Place
from app.settings import Settings

NAMES = {
    "app.bootstrap register_jobs",
    "app.operations.observability.shared_values SharedValues",
    "app.server.server serve_one",
    "app.server.supervisor Place",
    "app.server.supervisor _work",
    "app.settings _restore",
}
"""Names since 0.2.0. A renamed one keeps its old name beside the new one for one release, or SIGHUP
no longer renews the processes of a service whose next version is installed over it.
"""


class Reader(pickle.Unpickler):
    """What a new process does with what it is handed, and the names that it looks up."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.names: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Note a name, and look it up."""
        self.names.add(f"{module} {name}")
        return super().find_class(module, name)


def test_a_supervisor_names_what_its_version_named(tmp_path: Path) -> None:
    """A process that SIGHUP starts imports the new code, and is told by the old what to do."""
    settings = Settings(database_url=f"sqlite:///{tmp_path}/m.db", processes=2)
    serve = partial(serve_one, register=register_jobs)
    place = Place(cast(socket, None), SharedValues(tmp_path, "0"))  # it is handed over by number
    context = Mock()
    context.Pipe.return_value = Mock(), Mock()
    ChildProcess(context, serve, settings, place)
    asked = context.Process.call_args.kwargs
    reader = Reader(pickle.dumps((asked["target"], *asked["args"][:-1])))  # less the pipe
    assert (asked["target"], settings, place) == itemgetter(0, 2, 3)(reader.load())
    assert NAMES == {name for name in reader.names if name.startswith("app.")}
