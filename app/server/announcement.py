"""The first lines for the operator: two about a service that has just started, one for each extra
that it lacks."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from sqlalchemy.engine import make_url

from app.infra.extras import absent_extras
from app.infra.programs import workers_command
from app.settings import Settings
from modelkin._version import __version__

__all__ = ["announce", "lines"]

log = logging.getLogger("app")


def announce(settings: Settings, port: int) -> None:
    """Say the lines on standard error; as records of the log where that is JSON."""
    absent = (f"without {each.extra}: {each.effect}; {each.command}" for each in absent_extras())
    for line in (*lines(settings, port), *absent):
        if settings.log_format == "json":
            log.info(line)
        else:
            sys.stderr.write(line + "\n")
    sys.stderr.flush()


def lines(settings: Settings, port: int) -> tuple[str, str]:
    """Return the two lines: address, explorer and keys; store, data folder and workers.

    Args:
        port: the port that it listens on.
    """
    everywhere = _listens_everywhere(settings.host)
    named = "localhost" if everywhere else settings.host
    host = f"[{named}]" if ":" in named else named
    address = f"http://{host}:{port}{settings.root_path}"
    where = f"{address} and all addresses of this machine" if everywhere else address
    supports = settings.blob_bucket or settings.blob_dir
    return (
        f"modelkin {__version__} on {where}: the explorer is {address}/, the API {address}/docs; "
        f"{_keys(settings)}",
        f"store: {_store(settings)}, supports in {supports}, data in {settings.data_dir}; "
        f"{_jobs(settings)}",
    )


def _listens_everywhere(host: str) -> bool:
    """Whether it is 0.0.0.0 or ::, which a browser cannot open."""
    with suppress(ValueError):
        return ip_address(host).is_unspecified
    return not host


def _keys(settings: Settings) -> str:
    if settings.keys_required:
        return "requests need a key"
    return "no keys needed, only this machine connects"


def _store(settings: Settings) -> str:
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite":
        return f"SQLite {Path(url.database or '').absolute()}"
    where = f"{url.host or 'localhost'}{f':{url.port}' if url.port else ''}/{url.database}"
    return f"Postgres {where}" + (" and Redis" if settings.redis_url else "")


def _jobs(settings: Settings) -> str:
    if not settings.runs_embedded_worker:
        return f"workers: none here, start them with `{workers_command()}`"
    each = " in each process" if settings.processes > 1 else ""
    return f"workers: one{each}, {settings.job_concurrency} jobs at a time"
