"""Checks of the stores: do the database, Redis and the bucket answer, and fit each other?

Nothing is migrated, made or changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy.engine import make_url

from app.blob_stores import make_store, missing_rights, require_store
from app.infra.db.database import Reader
from app.infra.db.engines import redact_url
from app.infra.db.inspection import inspect_database
from app.infra.db.migrations import Standing, revision_in, standing_of
from app.infra.db.visibility import role_without_policies
from app.infra.errors import Unavailable, explain
from app.infra.programs import service_command
from app.infra.storage.blobs import RIGHTS
from app.settings import Settings
from app.tenancy.auth.service import KeyService
from app.tenancy.auth.tenants import find_blob_store, store_token
from modelkin._diagnosis import Check

__all__ = ["store_checks"]

_TIMEOUT_S: Final = 3.0
_REACH_BUCKET: Final = (
    "make the bucket or start its store, or correct MODELKIN_BLOB_URL and the address and "
    "credentials in its own variables, such as AWS_ENDPOINT_URL"
)
_REACH: Final = "start it, or correct the setting: the service does not start without it"


def store_checks(settings: Settings) -> Iterator[Check]:
    """The database with its version, keys where they are required, a bucket and Redis if set."""
    yield from _database(settings)
    if settings.blob_bucket is not None:
        yield _bucket(settings, settings.blob_bucket)
    if settings.redis_url is not None:
        yield _redis(settings.redis_url)


def _database(settings: Settings) -> Iterator[Check]:
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite":
        file = Path(str(url.database)).absolute()
        place = str(file)
        if not file.exists():
            yield _version(settings, place, "empty", "")
            yield from _keys(settings, None)
            return
    else:
        place = redact_url(url)
    timeout = min(_TIMEOUT_S, settings.database_timeout_seconds)
    try:
        with inspect_database(url, timeout=timeout) as session:
            revision = revision_in(session)
            standing = standing_of(revision)
            yield _version(settings, place, standing, revision)
            if standing in {"current", "empty"}:  # the table of keys may be another one elsewhere
                yield from _keys(settings, session if standing == "current" else None)
            if settings.keys_required:
                yield from _role(session)
    except Unavailable as error:
        remedy = (
            _REACH if place == redact_url(url) else "restore it from a backup, or name another file"
        )
        yield Check("database", "fail", explain(error), remedy)


def _version(settings: Settings, place: str, standing: Standing, revision: str) -> Check:
    if standing == "current":
        return Check("database", "ok", f"{place} is at {revision}, as this version needs it")
    if standing == "ahead":
        found = f"{place} is of a newer version ({revision})"
        return Check("database", "fail", found, "run the version of the service that wrote it")
    if standing == "unreleased":
        found = f"{place} is of a version before 0.1.0 ({revision})"
        return Check("database", "fail", found, "start version 0.1.0 of the service on it first")
    what = "has no tables yet" if standing == "empty" else f"is of an older version ({revision})"
    if not settings.migrate:
        remedy = f"run `{service_command('migrate')}`, since MODELKIN_MIGRATE is false"
        return Check("database", "fail", f"{place} {what}", remedy)
    if standing == "empty":
        return Check("database", "ok", f"{place} {what}: the first start makes them")
    remedy = "make a backup with the version that wrote it: the next start migrates it"
    return Check("database", "warn", f"{place} {what}", remedy)


def _keys(settings: Settings, session: Reader | None) -> Iterator[Check]:
    """A line where keys are required and there is none; without a session there is no table."""
    if not settings.keys_required or settings.initial_key is not None:
        return
    if session is None or not KeyService().any(session):
        remedy = f"make the first by `{service_command('keys create')}`"
        yield Check("keys", "warn", "keys are required, and there is no valid one", remedy)


def _bucket(settings: Settings, url: str) -> Check:
    try:
        refused = missing_rights(url)
    except Unavailable as error:
        return Check("bucket", "fail", f"{url}: {explain(error)}", _REACH_BUCKET)
    if len(refused) == len(RIGHTS):
        remedy = "correct its credentials, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        return Check("bucket", "fail", f"{url} refuses every request", remedy)
    if refused:
        remedy = f"let its credentials {', '.join(RIGHTS)} objects of {url}, see docs/stores.md"
        return Check("bucket", "fail", f"{url} refuses to {', '.join(refused)}", remedy)
    known = _known_store(settings)
    if known is None or known[1] is None:
        return Check("bucket", "ok", f"{url} answers; the first start gives it an id")
    try:
        with closing(make_store(settings, known[0])) as blobs:
            require_store(settings, blobs, *known)
    except Unavailable as error:
        remedy = "name the store that has the supports in MODELKIN_BLOB_URL"
        return Check("bucket", "fail", explain(error), remedy)
    return Check("bucket", "ok", f"{url} answers, and is the one that the database knows")


def _known_store(settings: Settings) -> tuple[str, str | None] | None:
    """The token of the database, and the id of its store; None where it cannot be asked."""
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return None
    try:
        with inspect_database(
            url, timeout=min(_TIMEOUT_S, settings.database_timeout_seconds)
        ) as session:
            if standing_of(revision_in(session)) != "current":
                return None
            return store_token(session), find_blob_store(session)
    except Unavailable:
        return None


def _role(session: Reader) -> Iterator[Check]:
    """A line where row-level security does not keep tenants apart."""
    role = role_without_policies(session)
    if role is not None:
        found = f"row-level security does not bind the role {role}: queries alone part tenants"
        remedy = "connect as the owner of the tables, without SUPERUSER and BYPASSRLS"
        yield Check("tenants", "warn", found, remedy)


def _redis(url: str) -> Check:
    from app.infra.storage.redis import RedisServer  # slow to import, and often not needed

    hosts = url.partition("://")[2].rpartition("@")[2]
    try:
        with closing(RedisServer(url, timeout=_TIMEOUT_S)) as server:
            server.ping()
    except Unavailable as error:
        remedy = "start it, or correct MODELKIN_REDIS_URL: without it answers are slower"
        return Check("redis", "fail", f"{hosts}: {explain(error)}", remedy)
    return Check("redis", "ok", f"{hosts} answers")
