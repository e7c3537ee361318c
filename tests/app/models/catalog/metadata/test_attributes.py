"""The models that carry an attribute: the database filters, and sends no other rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select

from app.infra.db.tables.catalog import ModelRow
from app.kinship import repository as store
from app.models.catalog.batches import BatchEntry, BatchService
from app.models.catalog.puts import Stored
from tests.support.app.space import AppSpace
from tests.support.models.planted_clusters import named, planted

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
    assert all(isinstance(result.outcome, Stored) for result in results)
    return app_space


@dataclass
class Cost:
    """The queries of a search, and the rows that these answer."""

    queries: int = 0
    rows: int = 0


def found(app_space: AppSpace, attribute: str, some: slice) -> tuple[dict[int, Any], Cost]:
    """The models among some that carry the attribute, by id, and the cost of the query."""
    cost = Cost()
    with app_space.database.reading() as session:
        ids = sorted(session.scalars(select(ModelRow.id).where(ModelRow.space_id == app_space.id)))
        connection: Any = session.connection()
        execute = connection.execute

        def counted(query: Any) -> Iterator[Any]:
            cost.queries += 1
            for row in execute(query):
                cost.rows += 1
                yield row

        connection.execute = counted
        labelled = store.labelled_models_by_id(session, app_space.space, ids[some], attribute)
    return {each.id - ids[0]: each.value for each in labelled}, cost


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
    labels, cost = found(labelled, "mistyped", slice(None))
    assert ({}, 1, 0) == (labels, cost.queries, cost.rows)


def test_few_of_many_are_looked_up(labelled: AppSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among few ids, other models are not read, whatever they carry."""
    monkeypatch.setattr(store, "_ROWS_PER_LOOKUP", 1)
    labels, cost = found(labelled, "site", slice(0, 5))
    assert ({1: 1, 3: 3}, 1, 5) == (labels, cost.queries, cost.rows)
