"""docs/recipes/partitions.sql: divided tables of Postgres serve as whole ones do."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import cast

import httpx
import psycopg
import pytest
from sqlalchemy import make_url

from app.infra.db.database import Database
from modelkin import Support
from tests.support.app.backups import Copies
from tests.support.app.harness import open_app
from tests.support.app.recorded_statements import FOLDER, of_version, replay
from tests.support.backends import PostgresBackend
from tests.support.http_space import SUPPORT, Space, family, ok
from tests.support.servers.postgres import Postgres

RECIPE = Path(__file__).parents[3] / "docs" / "recipes" / "partitions.sql"
DIVIDED = "signatures", "revisions", "tensor_counts", "tags", "bucket_entries", "bucket_models"
TABLES = "(" + ", ".join(f"'{name}'" for name in DIVIDED) + ")"
FACTS = f"""
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid::regclass::text IN {TABLES} AND contype IN ('p', 'f')
UNION SELECT tablename, indexname, '' FROM pg_indexes WHERE tablename IN {TABLES}
UNION SELECT tablename, policyname, qual FROM pg_policies WHERE tablename IN {TABLES}
UNION SELECT relname, relrowsecurity::text, relforcerowsecurity::text FROM pg_class
WHERE relname IN {TABLES}
UNION SELECT table_name, grantee, privilege_type FROM information_schema.role_table_grants
WHERE table_name IN {TABLES} AND grantee <> current_user
"""
"""Keys, indexes, policies and rights of the tables."""


def test_what_is_stored_is_divided_and_found(postgres: Postgres, tmp_path: Path) -> None:
    """Rows, keys, indexes and policies are what they were; a deleted model leaves no row."""
    backend = PostgresBackend(postgres)
    name = database_of(backend, tmp_path)
    postgres.execute("CREATE POLICY p ON tags TO public USING (tag <> 'x')", name)
    postgres.execute("ALTER TABLE tags ENABLE ROW LEVEL SECURITY", name)
    supports = family(seed=1, m=10_000, k=100, n=12)
    with open_app(tmp_path, backend) as app:
        space = Space.existing(cast(httpx.Client, app.http), app.create_space("s"), 10_000)
        space.put_all(supports, {each: {"tags": ["old"]} for each in supports})
        space.put("m001", supports["m000"])
        found = neighbors(space, supports["m000"], "scan")
        neighbors(space, supports["m000"], "lsh")  # which has the buckets built
    before = sorted(postgres.execute(FACTS, name))
    counted = [postgres.execute(f"SELECT count(*) FROM {table}", name) for table in DIVIDED]
    postgres.execute(RECIPE.read_text(), name)
    assert before == sorted(postgres.execute(FACTS, name))
    assert counted == [postgres.execute(f"SELECT count(*) FROM {table}", name) for table in DIVIDED]
    assert len(postgres.execute("SELECT inhrelid FROM pg_inherits", name)) > 16 * len(DIVIDED)
    Copies(backend, tmp_path).back_up(tmp_path / "copy")  # and a backup takes divided tables
    with open_app(tmp_path, backend) as app:
        space = Space.existing(cast(httpx.Client, app.http), "s", 10_000)
        assert found == neighbors(space, supports["m000"], "scan")
        assert found[:3] == neighbors(space, supports["m000"], "lsh")[:3]
        for each in supports:
            assert 204 == space.http.delete(space.path("models", each)).status_code
    rows = "UNION ALL ".join(f"SELECT '{t}' FROM {t} " for t in DIVIDED[:4])
    assert [] == postgres.execute(rows, name)


def test_a_service_works_on_divided_tables(postgres: Postgres, tmp_path: Path) -> None:
    """All that a service asks of a database finds and changes as many rows as on whole tables."""
    backend = PostgresBackend(postgres)
    postgres.execute(RECIPE.read_text(), database_of(backend, tmp_path))
    (path,) = FOLDER.glob("postgres-*.json")
    steps = of_version(path)
    with closing(Database(backend.url(tmp_path), timeout=30)) as divided:
        assert [step.rows for step in steps] == replay(divided, steps)


@pytest.mark.parametrize("column", ["space_id", "id"])
def test_the_table_of_models_cannot_be_divided(
    postgres: Postgres, tmp_path: Path, column: str
) -> None:
    """As docs/scale.md says: one of its keys lacks the column, whichever it is."""
    name = database_of(PostgresBackend(postgres), tmp_path)
    divide = f"CREATE TABLE m (LIKE models INCLUDING ALL) PARTITION BY HASH ({column})"
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=f'lacks column "{column}"'):
        postgres.execute(divide, name)


def database_of(backend: PostgresBackend, folder: Path) -> str:
    """The name of a new, migrated database."""
    name = make_url(backend.migrated_url(folder)).database
    assert name is not None
    return name


def neighbors(space: Space, support: Support, method: str) -> list[tuple[str, float]]:
    """What is found near a support."""
    answer = space.http.post(
        space.path("neighbors"),
        params={"method": method, "tag": "old"},
        content=support.to_bytes(),
        headers={"Content-Type": SUPPORT},
    )
    return [(item["model"], item["similarity"]) for item in ok(answer)["items"]]
