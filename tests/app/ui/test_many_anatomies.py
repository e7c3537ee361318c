"""Pages about a large family: they show the first of it, how much there is, and lead to all."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from app.anatomy.repositories import anatomies, listings
from benchmarks.finding.planted import PlantedHub
from tests.support.app.harness import AppHarness, open_app

HUB = PlantedHub(600, 301)
"""A base with 300 children, of which some are copies, and smaller families."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service that holds it."""
    with open_app(tmp_path_factory.mktemp("planted")) as app:
        HUB.put(app.database, app.tenant)
        yield app


def page(app: AppHarness, path: str) -> str:
    """The text of a page or of a file."""
    answer = app.http.get(path)
    assert 200 == answer.status_code, answer.text
    return answer.text


def test_a_large_family_leads_to_all_relatives(app: AppHarness) -> None:
    """40 models of a level are drawn, 120 looked through, and all listed; copies take no place."""
    text = page(app, f"/family?of={HUB.popular}")
    assert 41 == text.partition('id="tree"')[2].partition("</svg>")[0].count("<rect")
    assert "80 more models are in the table alone" in text
    assert "has lines in common with 300 models" in text
    assert f"/relatives?of={HUB.popular.replace('/', '%2F')}" in text
    assert "All copies" in text


def test_relatives_are_paged_and_taken_whole(app: AppHarness) -> None:
    """Three pages of a hundred have each relative once; one file has them all, in that order."""
    path = f"/relatives?of={HUB.popular}"
    assert "1 to 100 of 300" in page(app, path)
    listed = [
        row.partition("</a>")[0].rpartition(">")[2]
        for after in (0, 100, 200)
        for row in page(app, f"{path}&after={after}").split("<tr><th")[2:]
    ]
    text = page(app, f"/relatives.csv?of={HUB.popular}").removeprefix("\ufeff")
    taken = [row["model"] for row in csv.DictReader(io.StringIO(text, newline=""))]
    assert listed == taken
    assert 300 == len(set(taken))


def test_the_list_is_taken_whole(app: AppHarness) -> None:
    """A page has a hundred models; the file has all 600."""
    first = page(app, "/anatomies")
    assert "600 are stored" in first
    assert 100 == first.count('<tr><th scope="row">')
    assert 601 == len(page(app, "/anatomies.csv").splitlines())


def test_kin_are_found_by_their_models(app: AppHarness) -> None:
    """SQLite goes by the key of the table: the index of the tenant has all of its kin."""
    with app.database.reading() as session:
        connection, seen = session.connection(), list[tuple[str, Any]]()
        event.listen(connection, "before_cursor_execute", lambda *args: seen.append(args[2:4]))
        anatomies.kin_of(session, app.tenant.id, 1, limit=5, verdicts=["copy"])
        anatomies.find_kin(session, app.tenant.id, [1, 2, 3], [1, 2, 3])
        listings.count_kin(session, app.tenant.id, 1)
        plans = [
            str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", asked).all())
            for query, asked in list(seen)
        ]
    assert 3 == len(plans)
    assert all("tenant" not in plan for plan in plans), plans
