"""Which models carry an attribute: the database is asked, and sends nothing of those who do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select

from app.catalog.batches import BatchService, Entry
from app.catalog.puts import Stored
from app.infra.db.tables.catalog import ModelRow
from app.kinship import repository as store
from tests.support.app_space import AppSpace
from tests.support.planted_clusters import named, planted

NAMES = ("site", "läbel", 'quo"ted', "back\\slash", "100%_sure", "$.a[0]", "nul\0", "🦀")


@pytest.fixture
def labelled(app_space: AppSpace) -> AppSpace:
    """Twelve models, every other one with all of the attributes; the rest have them as values."""
    entries = []
    for number, (name, support) in enumerate(named(planted((12,))[0]).items()):
        others: dict[str, Any] = {"others": list(NAMES), "site": None}
        attributes = dict.fromkeys(NAMES, number) if number % 2 else others
        entries.append(Entry(name, support, attributes=attributes))
    with app_space.database.reading() as session:
        results = app_space.services[BatchService].put(session, app_space.space, entries)
    assert all(isinstance(outcome, Stored) for _, outcome in results)
    return app_space


class Counting:
    """A session that counts its queries, and the rows that these answer."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.queries = self.rows = 0

    def execute(self, query: Any) -> Iterator[Any]:
        self.queries += 1
        for row in self._session.execute(query):
            self.rows += 1
            yield row


def found(app_space: AppSpace, attribute: str, some: slice) -> tuple[dict[int, Any], Counting]:
    """Which of some models carry the attribute, under their ids, and what it took."""
    with app_space.database.reading() as session:
        ids = sorted(session.scalars(select(ModelRow.id).where(ModelRow.space_id == app_space.id)))
        counting: Any = Counting(session)
        told = store.labelled_by_id(counting, app_space.space, ids[some], attribute)
    return {each.id - ids[0]: each.value for each in told}, counting


@pytest.mark.parametrize("attribute", NAMES)
@pytest.mark.parametrize("some", [slice(None), slice(3, 6)])
def test_who_carries_an_attribute_is_found(labelled: AppSpace, attribute: str, some: slice) -> None:
    """Whatever its name is, and whether all models are asked about or some."""
    expected = {number: number for number in range(12)[some] if number % 2}
    assert expected == found(labelled, attribute, some)[0]


def test_of_who_does_not_carry_it_nothing_is_read(labelled: AppSpace) -> None:
    """A name that nobody has costs one query, and no row."""
    labels, counting = found(labelled, "mistyped", slice(None))
    assert ({}, 1, 0) == (labels, counting.queries, counting.rows)


def test_few_of_many_are_looked_up(labelled: AppSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where few models are asked about, the others are not read, whatever they carry."""
    monkeypatch.setattr(store, "_ROWS_PER_LOOKUP", 1)
    labels, counting = found(labelled, "site", slice(0, 5))
    assert ({1: 1, 3: 3}, 1, 5) == (labels, counting.queries, counting.rows)
