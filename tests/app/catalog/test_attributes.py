"""The models that carry an attribute: the database filters, and sends no other rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select

from app.catalog.batches import BatchEntry, BatchService
from app.catalog.puts import Stored
from app.infra.db.tables.catalog import ModelRow
from app.kinship import repository as store
from tests.support.app.space import AppSpace
from tests.support.planted_clusters import named, planted

NAMES = ("site", "läbel", 'quo"ted', "back\\slash", "100%_sure", "$.a[0]", "nul\0", "🦀")


@pytest.fixture
def labelled(app_space: AppSpace) -> AppSpace:
    """Twelve models, every other one with all of the attributes; the rest have them as values."""
    entries = []
    for number, (name, support) in enumerate(named(planted((12,))[0]).items()):
        others: dict[str, Any] = {"others": list(NAMES), "site": None}
        attributes = dict.fromkeys(NAMES, number) if number % 2 else others
        entries.append(BatchEntry(name, support, attributes=attributes))
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
    """The models among some that carry the attribute, by id, and the cost of the query."""
    with app_space.database.reading() as session:
        ids = sorted(session.scalars(select(ModelRow.id).where(ModelRow.space_id == app_space.id)))
        counting: Any = Counting(session)
        labelled = store.labelled_by_id(counting, app_space.space, ids[some], attribute)
    return {each.id - ids[0]: each.value for each in labelled}, counting


@pytest.mark.parametrize("attribute", NAMES)
@pytest.mark.parametrize("some", [slice(None), slice(3, 6)])
def test_models_with_an_attribute_are_found(
    labelled: AppSpace, attribute: str, some: slice
) -> None:
    """For any name of the attribute, among all models or among some."""
    expected = {number: number for number in range(12)[some] if number % 2}
    assert expected == found(labelled, attribute, some)[0]


def test_models_without_the_attribute_are_not_read(labelled: AppSpace) -> None:
    """An unused name costs one query, and no row."""
    labels, counting = found(labelled, "mistyped", slice(None))
    assert ({}, 1, 0) == (labels, counting.queries, counting.rows)


def test_few_of_many_are_looked_up(labelled: AppSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among few ids, other models are not read, whatever they carry."""
    monkeypatch.setattr(store, "_ROWS_PER_LOOKUP", 1)
    labels, counting = found(labelled, "site", slice(0, 5))
    assert ({1: 1, 3: 3}, 1, 5) == (labels, counting.queries, counting.rows)
