"""The SQL of a released version, recorded: what that version asks of a newer database.

``python -m tests.support.app.recorded_statements`` is a step of a release: it records a workload of
the present code on SQLite and on Postgres. The tests of later versions repeat it on a database that
their migrations have made. Statements that go past SQLAlchemy are not recorded.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from psycopg import Binary
from psycopg.types.json import Json
from sqlalchemy import Connection, Engine, event

from app.infra.db.database import Database
from modelkin import Support
from modelkin._version import __version__
from modelkin.wire import SIGNATURE
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.servers.postgres import postgres_server
from tests.support.servers.webhook_receiver import receiving

__all__ = ["FOLDER", "Step", "of_version", "replay"]

FOLDER: Final = Path(__file__).resolve().parents[2] / "app/infra/recorded"
_REPEATED: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
M: Final = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """A statement as a driver gets it.

    Attributes:
        statement: its text.
        parameters: of one execution, or of each.
        many: whether it is executed for each of them.
        rows: that it returned, or changed.
    """

    statement: str
    parameters: Any
    many: bool
    rows: int = 0


def of_version(path: Path) -> list[Step]:
    """The steps of a recording."""
    found = json.loads(path.read_text(), object_hook=_decoded)
    texts = found["statements"]
    return [
        Step(texts[at], list(map(_tuples, what)) if many else _tuples(what), many, rows)
        for at, what, many, rows in found["steps"]
    ]


def replay(database: Database, steps: Sequence[Step]) -> list[int]:
    """Execute all steps; how many rows each returned or changed."""
    with database.writing() as session:
        return [_execute(session.connection(), step) for step in steps]


def _execute(connection: Connection, step: Step) -> int:
    result = connection.exec_driver_sql(step.statement, step.parameters)
    return len(result.all()) if result.returns_rows else result.rowcount


@contextmanager
def _recording() -> Iterator[list[Step]]:
    """What all engines execute in transactions that are committed, and all that they read."""
    steps: list[Step] = []
    open_steps: dict[Connection, list[Step]] = {}

    def execute(*heard: Any) -> None:
        connection, _, statement, parameters, _, many = heard
        if statement.lstrip().upper().startswith(_REPEATED):
            open_steps.setdefault(connection, []).append(Step(statement, parameters, many))

    def commit(connection: Connection) -> None:
        steps.extend(open_steps.pop(connection, []))

    def rollback(connection: Connection) -> None:
        undone = open_steps.pop(connection, [])
        steps.extend(step for step in undone if step.statement.lstrip().startswith("SELECT"))

    heard = {"before_cursor_execute": execute, "commit": commit, "rollback": rollback}
    for name, function in heard.items():
        event.listen(Engine, name, function)
    try:
        yield steps
    finally:
        for name, function in heard.items():
            event.remove(Engine, name, function)


def _work(app: AppHarness, receiver: str) -> None:
    """Call most of what writes, and reads of it."""
    random = np.random.default_rng(1)
    space = app.create_space("s", M)
    supports = [
        Support.from_indices(np.sort(random.choice(M, 200, replace=False)), M) for _ in range(4)
    ]
    for number, support in enumerate(supports):
        app.put_support(space, f"org/m{number}", support, tag=["a", f"t{number}"])
    app.put_support(space, "org/m0", supports[3])
    path = f"/v1/spaces/{space}"
    signed = supports[1].signature().to_bytes()
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", f"{path}/signatures/org/signed", {"content": signed, "headers": _TYPE}),
        ("PATCH", f"{path}/models/org/m1", {"json": {"tags": ["b"], "attributes": {"n": 1}}}),
        ("GET", f"{path}/models/org/m1", {}),
        ("GET", f"{path}/models", {"params": {"limit": 2}}),
        ("GET", f"{path}/models", {"params": {"tag": "a"}}),
        ("GET", f"{path}/revisions/org/m0", {}),
        ("GET", f"{path}/neighbors", {"params": {"model": "org/m1"}}),
        ("GET", f"{path}/neighbors", {"params": {"model": "org/m1", "method": "lsh"}}),
        ("GET", f"{path}/donors", {"params": {"target": "org/m1"}}),
        ("GET", f"{path}/lineage", {"params": {"model": "org/m1"}}),
        ("POST", "/v1/sources", {"json": _SOURCE}),
        ("GET", "/v1/sources", {}),
        ("GET", f"{path}/graph", {}),
        ("POST", "/v1/subscriptions", {"json": {"url": receiver, "events": ["support.stored"]}}),
        ("GET", "/v1/subscriptions", {}),
        ("PUT", f"{path}/supports/org/m2", {"content": supports[0].to_bytes(), "headers": _OWN}),
        ("POST", f"{path}/jobs", {"json": {"kind": "rebuild_buckets"}}),
        ("POST", f"{path}/clusterings", {"json": {}}),
        ("GET", "/v1/jobs", {}),
        ("DELETE", f"{path}/models/org/m3", {}),
        ("POST", "/v1/keys", {"json": {"label": "k"}}),
        ("GET", "/v1/keys", {}),
        ("GET", "/v1/spaces", {}),
        ("PUT", f"{path}/public", {"json": {}}),
        ("GET", f"{path}/public", {}),
        ("GET", "/v1/public", {}),
        ("GET", f"/v1/public/default/{path.rpartition('/')[2]}", {}),
        ("DELETE", f"{path}/public", {}),
    ]
    for method, at, more in calls:
        answer = app.http.request(method, at, **more)
        assert answer.is_success, f"{method} {at}: {answer.text}"
    app.worker.run_all()
    app.worker.tick()
    app.http.get(f"{path}/clusterings")
    app.http.get("/metrics")


_SOURCE: Final = {"kind": "huggingface", "space": "hub", "secret": "s" * 20}
_TYPE: Final = {"Content-Type": SIGNATURE}
_OWN: Final = {"Content-Type": "application/vnd.modelkin.support"}


def _record(backend: Backend, folder: Path) -> list[Step]:
    """Record the workload, and repeat it to count the rows."""
    (first := folder / "first").mkdir()
    backend.migrated_url(first)
    with _recording() as steps, receiving() as receiver, open_app(first, backend) as app:
        _work(app, f"{receiver.url}/ok")
    (second := folder / "second").mkdir()
    with closing(Database(backend.migrated_url(second), timeout=30)) as database:
        rows = replay(database, steps)
    return [
        Step(step.statement, step.parameters, step.many, n)
        for step, n in zip(steps, rows, strict=True)
    ]


def _write(path: Path, steps: Sequence[Step]) -> None:
    statements = list(dict.fromkeys(step.statement for step in steps))
    places = {statement: at for at, statement in enumerate(statements)}
    lines = [
        json.dumps([places[s.statement], s.parameters, s.many, s.rows], default=_encoded)
        for s in steps
    ]
    texts = ",\n".join(map(json.dumps, statements))
    joined = ",\n".join(lines)
    path.write_text(f'{{"statements": [\n{texts}\n], "steps": [\n{joined}\n]}}\n')


def _encoded(value: Any) -> dict[str, Any]:
    if isinstance(value, Binary):
        value = value.obj
    if isinstance(value, bytes | memoryview):
        return {"bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, datetime):
        return {"time": value.isoformat()}
    if isinstance(value, Json):
        return {"json": value.obj}
    raise TypeError(f"no recording has a {type(value).__name__}: {value!r}")


def _decoded(found: dict[str, Any]) -> Any:
    if found.keys() == {"bytes"}:
        return base64.b64decode(found["bytes"])
    if found.keys() == {"time"}:
        return datetime.fromisoformat(found["time"])
    if found.keys() == {"json"}:
        return Json(found["json"])
    return found


def _tuples(parameters: Any) -> Any:
    """As a driver takes them: JSON has lists for tuples."""
    return tuple(parameters) if isinstance(parameters, list) else parameters


def main() -> None:
    """Record this version, in place of what was recorded of others."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    with postgres_server() as server, tempfile.TemporaryDirectory() as root:
        for backend in (SQLITE, PostgresBackend(server)):
            (folder := Path(root) / backend.name).mkdir()
            steps = _record(backend, folder)
            _write(FOLDER / f"{backend.name}-{__version__}.json", steps)
            sys.stdout.write(f"{backend.name}: {len(steps)} statements of {__version__}\n")


if __name__ == "__main__":
    main()
