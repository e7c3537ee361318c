"""``Prepared``: a small SELECT that is compiled once and read through the driver.

For what every request reads, a row or two: SQLAlchemy takes twenty times as long about it as the
database. It reads in the transaction of its session, which SQLAlchemy begins and ends.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Dialect, Select

from app.infra.db.database import Reader

__all__ = ["Prepared"]

_Processor = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement in the words of one database.

    Attributes:
        places: the names of the parameters in their order, for a driver without named ones.
        constants: the parameters that the statement sets itself.
        processors: of the columns whose values the driver gives in another form, by their place.
    """

    text: str
    places: tuple[str, ...] | None
    constants: dict[str, Any]
    processors: tuple[tuple[int, _Processor], ...]


class Prepared:
    """A SELECT of columns with named parameters, of which none is a list.

    Args:
        statement: built where it is first used, not at the import.
    """

    def __init__(self, statement: Callable[[], Select[Any]]) -> None:
        self._build = statement
        self._compiled: dict[str, _Compiled] = {}

    @cached_property
    def _statement(self) -> Select[Any]:
        return self._build()

    @cached_property
    def _row(self) -> Callable[[Any], Any]:
        names = [str(column.key) for column in self._statement.selected_columns]
        made: Any = namedtuple("PreparedRow", names)  # type: ignore[misc]  # noqa: PYI024
        make: Callable[[Any], Any] = made._make
        return make

    def all(self, session: Reader, **values: object) -> list[Any]:
        """The rows, with an attribute for each column."""
        if session.autoflush:
            session.flush()
        connection = session.view()
        compiled = self._compiled.get(connection.dialect.name)
        if compiled is None:
            compiled = self._compile(connection.dialect)
            self._compiled[connection.dialect.name] = compiled
        places = compiled.places
        named = {**compiled.constants, **values}
        given: Any = named if places is None else tuple(named[name] for name in places)
        cursor = connection.connection.cursor()
        try:
            cursor.execute(compiled.text, given)
            rows = cursor.fetchall()
        finally:
            cursor.close()
        return [self._row(_processed(row, compiled.processors)) for row in rows]

    def first(self, session: Reader, **values: object) -> Any:
        """The first row, or None."""
        rows = self.all(session, **values)
        return rows[0] if rows else None

    def _compile(self, dialect: Dialect) -> _Compiled:
        compiled = self._statement.compile(dialect=dialect)
        order = getattr(compiled, "positiontup", None)
        processors = []
        for place, column in enumerate(self._statement.selected_columns):
            processor = column.type.dialect_impl(dialect).result_processor(dialect, None)
            if processor is not None:
                processors.append((place, processor))
        places = None if order is None else tuple(order)
        constants = {name: value for name, value in compiled.params.items() if value is not None}
        return _Compiled(str(compiled), places, constants, tuple(processors))


def _processed(row: Any, processors: tuple[tuple[int, _Processor], ...]) -> Any:
    if not processors:
        return row
    values = list(row)
    for place, processor in processors:
        values[place] = processor(values[place])
    return values
