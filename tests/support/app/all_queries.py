"""Every query of the service, called: the functions of ``app`` that take a session, and their SQL.

Arguments are made of the types that a function declares. They need not fit together: what counts
is the statements that a function sends before it finds that out.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import psycopg
import pytest

import app
from app.infra.db.database import Database, Reader, Writer

__all__ = ["Sent", "found_by", "queries", "recording", "sent_by"]

_TABLES = "app.infra.db.tables"
_REPEATED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """A statement as the driver got it: once, or for each of many parameters."""

    statement: str
    parameters: Any
    many: bool

    @property
    def words(self) -> frozenset[str]:
        """What it names, tables among it."""
        return frozenset(re.findall(r"\w+", self.statement))

    @property
    def is_of_tenants(self) -> bool:
        """Whether it reads the table of tenants, in which each sees its own row."""
        return re.search(r"FROM tenants\b", self.statement) is not None


class _Enough(Exception):
    """Ends the transaction of a query, so that nothing of it stays."""


def queries() -> dict[str, Callable[..., Any]]:
    """The public functions that take a session, of all modules that name tables."""
    found: dict[str, Callable[..., Any]] = {}
    root = Path(app.__file__).parent
    for file in sorted(root.rglob("*.py")):
        if f"from {_TABLES}" not in file.read_text():
            continue
        module = ".".join(("app", *file.relative_to(root).with_suffix("").parts))
        for name, function in inspect.getmembers(import_module(module), inspect.isfunction):
            is_own = function.__module__ == module and not name.startswith("_")
            if is_own and {"Reader", "Writer"} & set(function.__annotations__.values()):
                found[f"{module}.{name}"] = function
    return found


def sent_by(
    database: Database, query: Callable[..., Any], given: Mapping[str, Any], **more: Any
) -> list[Sent]:
    """The statements that a query sends on Postgres; nothing that it changes stays.

    Args:
        given: values by the names of types, or of arguments and fields.
        more: arguments as they are.
    """
    hints = get_type_hints(query)
    with recording() as sent, suppress(_Enough), database.writing() as session:
        names = [name for name in inspect.signature(query).parameters if name in hints]
        arguments = {
            name: session if hints[name] in {Reader, Writer} else _made(hints[name], name, given)
            for name in names
            if hints[name] is not Any and name not in more
        }
        with suppress(Exception):
            result = query(**arguments, **more)
            if isinstance(result, Iterator):
                list(result)
            session.flush()
        raise _Enough
    return sent


def found_by(
    connection: psycopg.Connection[Any], sent: Sequence[Sent], tenant_id: int
) -> list[str]:
    """Those statements that find or change a row of another tenant, as a tenant sends them.

    Args:
        connection: in a transaction that sees what the tenant sees.
    """
    return [each.statement for each in sent if _finds(connection, each, tenant_id)]


def _finds(connection: psycopg.Connection[Any], sent: Sent, tenant_id: int) -> bool:
    try:
        with connection.transaction(force_rollback=True), connection.cursor() as cursor:
            (cursor.executemany if sent.many else cursor.execute)(sent.statement, sent.parameters)
            if cursor.description is None:
                return cursor.rowcount > 0
            rows = cursor.fetchall()
    except psycopg.errors.InsufficientPrivilege:
        return False  # a new row, which the policy refuses
    except psycopg.errors.IntegrityError:
        return True  # there is another one
    if sent.is_of_tenants:
        rows = [row for row in rows if row[0] != tenant_id]
    return any(any(row) for row in rows)


@contextmanager
def recording() -> Iterator[list[Sent]]:
    """What this process asks Postgres in the block, whatever sends it."""
    sent: list[Sent] = []
    with pytest.MonkeyPatch.context() as patch:
        for kind in (psycopg.Cursor, psycopg.ServerCursor):
            for name in ("execute", "executemany"):
                patch.setattr(kind, name, _noting(getattr(kind, name), sent, name != "execute"))
        yield sent


def _noting(run: Callable[..., Any], sent: list[Sent], many: bool) -> Callable[..., Any]:
    def note(query: Any, params: Any) -> None:
        if str(query).lstrip().upper().startswith(_REPEATED):
            sent.append(Sent(str(query), list(params) if many else params, many))

    def noting(cursor: Any, query: Any, params: Any = None, **options: Any) -> Any:
        try:
            done = run(cursor, query, params, **options)
        except psycopg.errors.IntegrityError:
            note(query, params)
            raise
        note(query, params)
        return done

    return noting


def _made(hint: Any, name: str, given: Mapping[str, Any]) -> Any:
    """A value of a type: that which is given for the name of its type, or for its own name."""
    if name in given and given[name] is None:
        return None
    if isinstance(hint, type) and hint.__name__ in given:
        return given[hint.__name__]
    origin, parts = get_origin(hint) or hint, list(get_args(hint))
    if origin in {Union, types.UnionType}:
        return _made(next(each for each in parts if each is not type(None)), name, given)
    if origin is Literal:
        return parts[0]
    if origin is tuple:
        return tuple(_made(each, name, given) for each in parts if each is not ...)
    if origin in {dict, Mapping}:
        return {_made(parts[0], name, given): _made(parts[1], name, given)}
    if origin in {list, Sequence, Iterable, Collection, Iterator}:
        return [_made(parts[0], name.removesuffix("s"), given)]
    if origin in {set, frozenset, AbstractSet}:
        return frozenset({_made(parts[0], name.removesuffix("s"), given)})
    if name in given and type(given[name]) is origin:
        return given[name]
    return _plain(origin, name, given)


def _plain(kind: Any, name: str, given: Mapping[str, Any]) -> Any:
    plain = {
        int: 1,
        str: "full",
        bool: True,
        float: 0.5,
        bytes: b"\0" * 8,
        datetime: datetime.now(UTC),
        object: "full",
    }
    if kind in plain:
        return plain[kind]
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        fields = (field.name for field in dataclasses.fields(kind) if field.init)
        return kind(**{each: _made(hints[each], each, given) for each in fields})  # type: ignore[operator]
    return given.get(str(getattr(kind, "__name__", kind)))
