"""Row-level security on Postgres: a transaction of one tenant sees no row of another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import func, insert, select, text, true
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from app.infra.db import visibility
from app.infra.db.ids import new_id
from app.infra.db.tables.all_tables import Base
from app.infra.db.tables.blobs import OrphanBlobRow
from app.infra.db.tables.catalog import ModelRow, TagRow
from app.infra.db.tables.hubs import SourceRow
from app.infra.db.visibility import every_tenant_within, one_tenant
from app.models.catalog.repositories import models
from app.models.spaces.repositories import spaces
from app.operations.cli.store_checks import store_checks
from app.settings import Settings
from app.stores import open_stores
from app.tenancy.auth import dependencies
from app.tenancy.auth.tenants import ensure_tenant
from modelkin import Support
from modelkin.federation.shards.plan import Plan
from modelkin.wire import SIGNATURE
from tests.support.app.all_queries import Sent, found_by, queries, recording, sent_by
from tests.support.app.harness import KEY, AppHarness, open_keyed_app
from tests.support.backends import PostgresBackend
from tests.support.servers.postgres import Postgres

SHARED = {
    "installation",
    "workers",
    "orphan_blobs",
    "bucket_builds",
    "bucket_models",
    "bucket_entries",
}
"""Tables without policies: none has a tenant, or a name or a value that a tenant has sent."""
PROTECTED = sorted(Base.metadata.tables.keys() - SHARED)
FILLED = {"models", "spaces", "signatures", "revisions", "tags", "sources", "subscriptions", "jobs"}
M = 10_000
FULL = Support.from_indices(range(0, M, 7), M)
NEAR = Support.from_indices(range(0, M, 14), M)
SOURCE = {"kind": "huggingface", "space": "s", "secret": "hook-secret-of-a-test"}
PLAIN: dict[str, Any] = {
    "Plan": Plan(num_parameters=M),
    "cursor": None,
    "report_id": "019ad1c1-0000-7000-8000-000000000001",
    "blob_size": None,
    "delivery_id": new_id(datetime.now(UTC)),
    "limit": 10,
    "per_subscription": 5,
    "per_tenant": 5,
    "roster": None,
    "tensors": "[]",
    "total": 10,
}
"""Values of arguments and fields that are not as good as any."""
MORE: dict[str, dict[str, Any]] = {
    "app.models.catalog.repositories.model_writes.update_metadata": {"attributes": {}},
    "app.hubs.repositories.sources.update_source": {"values": {"last_error": None}},
    "app.hubs.repositories.sources.source_records": {"wanted": true(), "order": SourceRow.id},
    "app.merges.repository.change_party": {"verdict": 1},
    "app.models.weights.repository.repeated_digests": {"after": None},
    "app.models.weights.repository.same_weights": {"digest": f"sha256:{0:064x}"},
    "app.webhooks.repositories.deliveries.record_attempt": {"attempts": 1},
    "app.webhooks.repositories.subscriptions.change": {"enabled": True},
    "app.webhooks.repositories.subscriptions.change_by_id": {"enabled": True},
}
"""Arguments of queries that change the columns they are given, or take digests."""
RECIPE = (Path(__file__).parents[4] / "docs" / "recipes" / "row-tenants.sql").read_text()
HOOK = {"url": "http://127.0.0.1:9/events", "events": ["support.stored"]}


@pytest.fixture(scope="module")
def app(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service on Postgres that has one of nearly everything of the tenant ``default``."""
    folder = tmp_path_factory.mktemp("app")
    with open_keyed_app(folder, PostgresBackend(postgres)) as made:
        layout = [{"name": "w", "shape": [100, 100]}]
        space = {"name": "s", "layout": layout}
        assert 201 == made.http.post("/v1/spaces", json=space).status_code
        for name, support in (("full", NEAR), ("full", FULL), ("near", NEAR)):
            made.put_support("s", name, support, tag="red")
        for path, body in (("sources", SOURCE), ("subscriptions", HOOK)):
            assert 201 == made.http.post(f"/v1/{path}", json=body).status_code
        clustered = {"algorithm": "agglomerative"}
        assert 202 == made.http.post("/v1/spaces/s/clusterings", json=clustered).status_code
        made.worker.run_all()
        yield made


@pytest.fixture(scope="module")
def other(app: AppHarness) -> int:
    """The id of another tenant, which has nothing."""
    with app.database.writing() as session:
        return ensure_tenant(session, "other").id


def counts(app: AppHarness) -> dict[str, int]:
    with app.database.reading() as session:
        found = {}
        for table in PROTECTED:
            query = text(f"SELECT count(*) FROM {table}")
            found[table] = session.execute(query).scalar_one()
        return found


def requests(app: AppHarness) -> dict[str, Any]:
    """The answers to reads of all kinds, by their paths: the text of each, None for a 404."""
    signature = {"content": FULL.signature().to_bytes(), "headers": {"Content-Type": SIGNATURE}}
    posts: dict[str, Any] = {
        "/v1/spaces/s/neighbors": signature,
        "/v1/spaces/s/donors": signature,
        "/v1/spaces/s/similarity": {"json": {"models": ["full", "near"]}},
    }
    paths = [
        "/v1/spaces",
        "/v1/spaces/s",
        "/v1/spaces/s/models",
        "/v1/spaces/s/models?tag=red",
        "/v1/spaces/s/models/full",
        "/v1/spaces/s/supports/full",
        "/v1/spaces/s/signatures/full",
        "/v1/spaces/s/revisions/full",
        "/v1/spaces/s/neighbors?model=full",
        "/v1/spaces/s/neighbors?model=full&method=lsh",
        "/v1/spaces/s/neighbors?model=full&method=exact",
        "/v1/spaces/s/donors?target=full",
        "/v1/spaces/s/lineage?model=full",
        "/v1/spaces/s/overlap?a=full&b=near",
        "/v1/spaces/s/graph",
        "/v1/spaces/s/clusterings",
        "/v1/jobs",
        "/v1/sources",
        "/v1/subscriptions",
        "/v1/keys",
        "/v1/jobs?space=s",
    ]
    answers = {path: app.http.get(path) for path in paths}
    answers |= {f"POST {path}": app.http.post(path, **given) for path, given in posts.items()}
    for path, answer in answers.items():
        assert answer.status_code in {200, 404}, (path, answer.text)
    return {
        path: None if answer.status_code == 404 else answer.content
        for path, answer in answers.items()
    }


def test_every_table_with_a_tenant_is_protected(app: AppHarness) -> None:
    """A new table has a policy, which binds the owner of the table, or is named above."""
    with app.database.reading() as session:
        query = text(
            "SELECT DISTINCT c.relname FROM pg_class c JOIN pg_policy p ON p.polrelid = c.oid "
            "WHERE c.relrowsecurity AND c.relforcerowsecurity"
        )
        assert PROTECTED == sorted(session.scalars(query))
        assert visibility.role_without_policies(session) is None


@pytest.mark.smoke
def test_no_table_shows_a_row_of_another_tenant(app: AppHarness, other: int) -> None:
    """Whatever is asked for; before it is known who asks, no row of any tenant is there."""
    whole = counts(app)
    assert FILLED <= {table for table, count in whole.items() if count}
    with one_tenant(app.tenant.id):
        own = counts(app)
    assert own == whole | {"tenants": 1}
    with one_tenant(other):
        assert {"tenants": 1} == {table: count for table, count in counts(app).items() if count}
    with visibility.no_tenant():
        assert not any(counts(app).values())


def test_no_row_of_another_tenant_is_changed(app: AppHarness, other: int) -> None:
    """Neither updated nor deleted, and no row is given to another one."""
    before = counts(app)
    with one_tenant(other):
        for table in PROTECTED:
            with app.database.writing() as session:
                column = next(iter(Base.metadata.tables[table].columns)).name
                for change in (f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"):
                    if table != "tenants":
                        assert 0 == session.execute(text(change)).rowcount  # type: ignore[attr-defined]
    given = text("UPDATE spaces SET tenant_id = :other")
    with (
        one_tenant(app.tenant.id),
        pytest.raises(ProgrammingError, match="row-level security"),
        app.database.writing() as session,
    ):
        session.execute(given, {"other": other})
    assert before == counts(app)


def test_reads_as_the_wrong_tenant_find_nothing(
    app: AppHarness, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the service takes the caller for the tenant that has it all."""
    assert all(requests(app).values())
    monkeypatch.setattr(dependencies, "show_tenant", lambda _: visibility.show_tenant(other))
    for path, answer in requests(app).items():
        assert answer is None or b'"items":[]' in answer, (path, answer)


@pytest.fixture(scope="module")
def sent(app: AppHarness) -> dict[str, list[Sent]]:
    """The statements of each query with values of the first tenant, and those of requests."""
    with app.database.reading() as session:
        space = spaces.find_space(session, app.tenant, "s")
        assert space is not None
        model = models.find_model(session, space, "full")
        assert model is not None
        ids = {
            f"{table[:-1]}_id": session.execute(text(f"SELECT id FROM {table}")).scalars().first()
            for table in ("sources", "subscriptions", "jobs", "clusterings")
        }
    given = {
        "Tenant": app.tenant,
        "SpaceRecord": space,
        "OwnedSpace": space,
        "ModelRecord": model,
        "tenant_id": app.tenant.id,
        "space_id": space.id,
        "model_id": model.id,
        "id": model.id,
        **ids,
        **PLAIN,
    }
    found = {
        name: sent_by(app.database, query, given, **MORE.get(name, {}))
        for name, query in queries().items()
    }
    with recording() as asked:
        requests(app)
    return {**found, "requests": asked}


@contextmanager
def as_tenant(app: AppHarness, tenant_id: int) -> Iterator[psycopg.Connection[Any]]:
    """A transaction of the role of the service that sees what a tenant sees; rolled back."""
    url = app.database.url.set(drivername="postgresql").render_as_string()
    with psycopg.connect(url) as connection, connection.transaction(force_rollback=True):
        connection.execute(f"SET LOCAL {visibility.SETTING} = '{tenant_id}'".encode())
        yield connection


def of_tenants(sent: dict[str, list[Sent]]) -> list[Sent]:
    """The statements that name a table with a policy."""
    return [each for some in sent.values() for each in some if each.words & set(PROTECTED)]


def test_every_query_is_asked(sent: dict[str, list[Sent]]) -> None:
    """A new query for which no values are made has some in PLAIN or MORE."""
    unasked = [name for name, statements in sent.items() if not statements]
    assert not unasked, "\n".join(unasked)
    assert len(sent) > 300


def test_no_query_finds_or_changes_a_row_as_the_wrong_tenant(
    app: AppHarness, other: int, sent: dict[str, list[Sent]]
) -> None:
    """Each statement of each query, with the values of the tenant that has it all."""
    asked = of_tenants(sent)
    with as_tenant(app, app.tenant.id) as connection:
        assert len(found_by(connection, asked, 0)) > 150
    with as_tenant(app, other) as connection:
        assert [] == found_by(connection, asked, other)


@pytest.mark.parametrize("table", ["models", "signatures", "tags", "sources", "layouts"])
def test_a_hole_is_found(
    app: AppHarness, other: int, sent: dict[str, list[Sent]], table: str
) -> None:
    """Without the policy of one table, a query finds its rows."""
    with as_tenant(app, other) as connection:
        connection.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY".encode())
        assert found_by(connection, of_tenants(sent), other)


def test_the_planner_expects_rows_behind_policies(
    app: AppHarness, other: int, postgres: Postgres
) -> None:
    """About half of a table: of one row in 200 it would sort the whole for its first ten."""
    database = str(make_url(str(app.database.url)).database)
    with as_tenant(app, other) as tenant:
        for table in PROTECTED:
            query = f"EXPLAIN SELECT * FROM {table}"
            ((whole, *_), *_) = postgres.execute(query, database)
            ((bound, *_), *_) = tenant.execute(query.encode()).fetchall()
            expected, without = (int(re.findall(r"rows=(\d+)", plan)[0]) for plan in (bound, whole))
            assert expected >= without / 4, (table, bound)


def test_a_tenants_row_stays_the_tenants(app: AppHarness) -> None:
    """Also one that is written with the first one of the service."""
    with app.database.reading() as session:
        model, tenant = session.execute(select(ModelRow.id, ModelRow.tenant_id)).first() or (0, 0)
    with one_tenant(tenant), app.database.writing() as session:
        session.add(TagRow(model_id=model, tag="late"))
        with every_tenant_within(session):
            assert visibility.visible() == ""
        query = text("SELECT tenant_id FROM tags WHERE tag = 'late'")
        assert tenant == session.scalar(query)
        session.rollback()


def test_a_transaction_may_begin_with_many_rows(app: AppHarness, other: int) -> None:
    """The driver sends them as a pipeline, which takes one statement at a time."""
    rows = [{"key": key, "found_at": datetime.now(UTC)} for key in ("a", "b")]
    with one_tenant(other), app.database.writing() as session:
        session.execute(insert(OrphanBlobRow), rows)
        assert str(other) == session.scalar(text(f"SHOW {visibility.SETTING}"))
    with app.database.reading() as session:
        assert 2 == session.scalar(select(func.count()).select_from(OrphanBlobRow))


def test_other_programs_see_all(app: AppHarness) -> None:
    """The version before, ``psql`` and copies of the tables say nothing of a tenant."""
    url = app.database.url.set(drivername="postgresql").render_as_string()
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM models").fetchone()
        assert row is not None
        assert 2 == row[0]


def test_rows_from_before_get_their_tenant(app: AppHarness) -> None:
    """docs/recipes/row-tenants.sql writes it into the rows of all tables that may lack it."""
    found = text(
        "SELECT table_name FROM information_schema.columns WHERE column_name = 'tenant_id' "
        "AND column_default LIKE '%modelkin.tenant%'"
    )
    with app.database.writing() as session:
        parts = session.scalars(found).all()
        before = {part: rows(session, part) for part in parts}
        for part in parts:
            session.execute(text(f"UPDATE {part} SET tenant_id = NULL"))
    url = app.database.url.set(drivername="postgresql").render_as_string()
    with psycopg.connect(url, autocommit=True) as connection:
        assert 1 == RECIPE.count("LIMIT 1000")
        connection.execute(RECIPE.replace("LIMIT 1000", "LIMIT 1").encode())
    with app.database.reading() as session:
        assert before == {part: rows(session, part) for part in parts}
    assert {"signatures", "revisions", "tags"} <= {part for part in parts if before[part]}


def rows(session: Session, table: str) -> set[str]:
    """All rows of a table."""
    return {str(row) for row in session.execute(text(f"SELECT * FROM {table}"))}


def test_a_role_that_no_policy_binds_is_named(
    postgres: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A superuser sees all rows: the start warns of it, and so does ``check``."""
    owner = make_url(PostgresBackend(postgres).migrated_url(tmp_path))
    url = owner.set(username="postgres").render_as_string()
    asked: dict[str, Any] = {
        "database_url": url,
        "blob_url": f"file://{tmp_path}/blobs",
        "auth": "required",
    }
    settings = Settings(_env_file=None, embedded_worker="off", encryption_keys=KEY, **asked)
    found = {check.check: check for check in store_checks(settings)}
    assert ("warn", True) == (found["tenants"].state, "postgres" in found["tenants"].detail)
    with open_stores(settings, prepared=False):
        pass
    assert "row-level security does not bind the role postgres" in caplog.text
    bound = settings.model_copy(update={"database_url": owner.render_as_string()})
    assert "tenants" not in {check.check for check in store_checks(bound)}
