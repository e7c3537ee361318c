"""Pages of listings: their bounds, and the opaque cursor of the next page.

A page has a size as well as a length. So no listing takes more memory than a page may have,
whatever its rows hold.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, Final, TypeVar

from sqlalchemy import (
    JSON,
    ColumnElement,
    Dialect,
    LargeBinary,
    Select,
    String,
    Text,
    cast,
    func,
    inspect,
    literal,
)
from sqlalchemy.orm import Mapper

from app.infra.db.database import Reader
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page

__all__ = [
    "MAX_PAGE_BYTES",
    "decode_cursor",
    "decode_number_cursor",
    "decode_pair_cursor",
    "encode_cursor",
    "page_length",
    "page_of",
]

T = TypeVar("T")

MAX_PAGE_BYTES: Final = 4 << 20
"""A page ends before the entry that would make it longer; it has one entry at least."""

_MAX_DIGITS: Final = 19
"""The most digits of a number in a cursor: a column holds no larger number."""

_ENTRY_BYTES: Final = 600
"""Bytes of an entry in an answer beside its texts: names of fields, numbers, times."""


def page_length(
    session: Reader, query: Select[*tuple[Any, ...]], limit: int, *sizes: ColumnElement[int]
) -> tuple[int, bool]:
    """Return the number of rows of an ordered query on a page, and whether other rows follow.

    The database measures the rows; none of them is loaded.

    Args:
        session: the transaction of the query that loads the page.
        query: a query of a mapped class, named before the classes that it joins.
        limit: the most rows.
        sizes: the bytes of an entry from other tables.
    """
    entity = query.column_descriptions[0]["entity"]
    own = _sizes(inspect(entity), session.get_bind().dialect)
    size = sum((*own, *sizes), literal(_ENTRY_BYTES))
    measured = query.with_only_columns(size, maintain_column_froms=True).limit(limit + 1)
    lazily = measured.execution_options(yield_per=min(limit + 1, 100))
    total = 0
    with closing(session.scalars(lazily)) as found:
        for count, row in enumerate(found):
            total += row
            if count == limit or (count and total > MAX_PAGE_BYTES):
                return count, True
    return limit, False


def page_of(records: Iterable[T], more: bool, key: Callable[[T], object]) -> Page[T]:
    """Return the page of these records, with the cursor of the next page if there are more.

    Args:
        key: the key that orders the listing.
    """
    items = tuple(records)
    return Page(items, encode_cursor(str(key(items[-1]))) if more else None)


def _sizes(mapper: Mapper[Any], dialect: Dialect) -> Iterator[ColumnElement[int]]:
    """The bytes of each column that has no fixed size, as the entry of an answer has them."""
    for attribute in mapper.column_attrs:
        column = attribute.columns[0]
        if not attribute.deferred and isinstance(column.type, JSON | String | LargeBinary):
            yield func.coalesce(_size(column, dialect), 0)


def _size(column: ColumnElement[Any], dialect: Dialect) -> ColumnElement[int]:
    """The size of a text as JSON writes it: a control character takes six bytes."""
    is_text = isinstance(column.type, String)
    if dialect.name == "sqlite":
        return func.length(cast(func.json_quote(column) if is_text else column, LargeBinary))
    if isinstance(column.type, LargeBinary):
        return func.octet_length(column)
    return func.octet_length(cast(func.to_json(column) if is_text else column, Text))


def encode_cursor(name: str) -> str:
    """The cursor of the page that begins after ``name``."""
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """The name that a page begins after; :class:`InvalidParameter` for any other text."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        name = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        name = ""
    if not name or "\0" in name:
        raise _foreign()
    return name


def decode_number_cursor(cursor: str) -> int:
    """The number that a page begins after; :class:`InvalidParameter` for any other text."""
    return _number(decode_cursor(cursor))


def decode_pair_cursor(cursor: str) -> tuple[int, str]:
    """The number and name, with a space between, that a page begins after; or the same error."""
    number, _, name = decode_cursor(cursor).partition(" ")
    if not name:
        raise _foreign()
    return _number(number), name


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS):
        raise _foreign()
    return int(text)


def _foreign() -> InvalidParameter:
    return InvalidParameter(
        "this cursor was not given out by this listing: start again without one", field="cursor"
    )
