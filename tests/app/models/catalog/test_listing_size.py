"""The size of a page of models, and of the memory that it takes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from sqlalchemy import update

from app.infra.db.pagination import MAX_PAGE_BYTES
from app.infra.db.tables.catalog import ModelRow
from app.models.catalog.batches import BatchEntry, BatchService
from app.models.catalog.puts import Stored
from app.models.catalog.reader import ModelReader
from app.models.catalog.records import ModelRecord
from app.models.catalog.schemas import ModelOut
from modelkin import Support
from tests.support.app.space import AppSpace
from tests.support.http_space import Space, ok
from tests.support.models.planted_clusters import M

KIB = 1 << 10
LONG_LIST = {"values": list(range(160_000))}
"""About a megabyte as JSON, and twenty as Python objects."""


def store(app_space: AppSpace, attributes: dict[str, dict[str, Any]]) -> None:
    """Store models with attributes as a service without limits stored them."""
    support = Support.from_indices([1, 2, 3], M)
    entries = [BatchEntry(name, support, attributes=each) for name, each in attributes.items()]
    with app_space.database.reading() as session:
        results = app_space.services[BatchService].put(session, app_space.space, entries)
    assert all(isinstance(result.outcome, Stored) for result in results)


def pages(app_space: AppSpace, limit: int) -> list[tuple[ModelRecord, ...]]:
    """The pages of a listing."""
    found, cursor = [], None
    while True:
        with app_space.database.reading() as session:
            page = app_space.services[ModelReader].models(
                session, app_space.space, limit=limit, cursor=cursor
            )
        found.append(page.items)
        if (cursor := page.next_cursor) is None:
            return found


def test_a_page_ends_at_four_mebibytes(app_space: AppSpace) -> None:
    """Whatever the limit, pages are short where models are long, and no model is lost."""
    names = [f"m{number:02d}" for number in range(11)]
    store(app_space, {name: {"text": "x" * (1 << 20)} for name in names})
    found = pages(app_space, 1000)
    assert [3, 3, 3, 2] == [len(page) for page in found]
    assert names == [model.name for page in found for model in page]
    assert [1] * 11 == [len(page) for page in pages(app_space, 1)]


def test_one_model_longer_than_a_page_is_a_page(app_space: AppSpace) -> None:
    """No listing stops before a model that is longer than a page."""
    long = {"text": "x" * (MAX_PAGE_BYTES + 1)}
    store(app_space, {"a": {}, "b": long, "c": {}, "d": {}})
    assert [["a"], ["b"], ["c", "d"]] == [[m.name for m in page] for page in pages(app_space, 1000)]


def test_a_page_is_measured_as_it_is_written(app_space: AppSpace) -> None:
    """A character that JSON writes as six counts as six, wherever it stands."""
    store(app_space, {f"m{number}": {} for number in range(3)})
    with app_space.database.writing() as session:
        session.execute(update(ModelRow).values(source="\x01" * 700_000))
    assert [1, 1, 1] == [len(page) for page in pages(app_space, 1000)]


@pytest.mark.slow
def test_a_page_takes_little_more_memory_than_its_text(app_space: AppSpace) -> None:
    """Attributes are not parsed for it: parsed, a megabyte takes up to 26."""
    store(app_space, {f"m{number}": LONG_LIST for number in range(12)})
    tracemalloc.start()
    try:
        space, page = app_space.space, pages(app_space, 1000)[0]
        written = sum(len(ModelOut.to_bytes(space, model)) for model in page)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 2 << 20 < written < MAX_PAGE_BYTES
    assert peak < 32 << 20


def test_a_model_is_listed_as_it_is_shown(space: Space) -> None:
    """Attributes are written as they are stored, whatever is in them."""
    space.put("a", Support.from_indices([1], space.m), tags=["t"])
    odd = {'"q': ["é", "\\", "\n", 1.5e300, -0.0, 2**63, None, True, {"": {}}]}
    body = {"attributes": odd, "source": "\x01"}
    shown = ok(space.http.patch(space.path("models", "a"), json=body))
    assert odd == shown["attributes"]
    assert [shown] == ok(space.http.get(space.path("models")))["items"]


def test_what_is_already_stored_is_shown_and_kept(app_space: AppSpace) -> None:
    """Attributes of before the limit are read as they are."""
    store(app_space, {"a": LONG_LIST})
    assert [LONG_LIST] == [model.attributes for page in pages(app_space, 10) for model in page]
