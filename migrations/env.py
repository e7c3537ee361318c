"""Alembic's entry: the service hands its connection in, the command line opens one."""

from __future__ import annotations

from alembic import context

from app.infra.db.database import Database
from app.infra.db.tables.all_tables import Base
from app.settings import Settings


def run() -> None:
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _migrate(connection)
        return
    settings = Settings()
    database = Database(settings.database_url, timeout=settings.database_timeout_seconds)
    with database.writing() as session:
        _migrate(session.connection())


def _migrate(connection) -> None:  # type: ignore[no-untyped-def]
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    context.run_migrations()


run()
