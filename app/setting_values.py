"""The types of settings with a special form: URLs, networks, keys.

Each is a type that a field names; a value of another form is refused, and the message says what to
write instead. No message holds a value that may have a password in it.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from app.infra.egress.allowlist import Allowlist
from app.infra.storage.encryption_keys import parse_keys

__all__ = [
    "BlobUrl",
    "CacheBytes",
    "CollectorUrl",
    "DatabaseUrl",
    "Destinations",
    "EncryptionKeys",
    "Networks",
    "RedisUrl",
    "RootPath",
]

_BUCKETS: Final = frozenset({"s3", "gs", "az"})
_MIN_CACHE_BYTES: Final = 64 << 20


def _check_database(value: str) -> str:
    try:
        url = make_url(value)
    except (ArgumentError, ValueError):  # its text may hold a password
        raise ValueError(
            "this is not a database URL: use sqlite:///FILE or "
            "postgresql+psycopg://USER:PASSWORD@HOST/NAME, in USER and PASSWORD %40 for an @, "
            "%3A for a colon and %2F for a slash"
        ) from None
    if url.drivername not in {"sqlite", "sqlite+pysqlite", "postgresql+psycopg"}:
        raise ValueError(
            f"{url.drivername!r} is not supported: use sqlite:///FILE "
            f"or postgresql+psycopg://USER:PASSWORD@HOST/NAME"
        )
    if url.host is not None and "@" in url.host:
        raise ValueError("the host has an @: write that of a user or a password as %40")
    if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
        raise ValueError("an in-memory database would lose what was acknowledged: name a file")
    return value


def _check_redis(value: str | None) -> str | None:
    if value is not None:
        try:
            url = urlsplit(value)
        except ValueError:  # its text may hold a password
            url = urlsplit("")
        hosts = url.netloc.rpartition("@")[2].split(",")
        if url.scheme not in {"redis", "rediss"} or not all(map(_is_address, hosts)):
            raise ValueError(
                "this is not supported: use redis://HOST:PORT or rediss://HOST:PORT, "
                "with commas between several HOST:PORT of a cluster"
            )
    return value


def _check_blobs(value: str | None) -> str | None:
    if value is not None:
        url = urlsplit(value)
        if url.scheme in _BUCKETS and url.netloc and not (url.query or url.fragment):
            return value.rstrip("/")
        if url.scheme != "file" or url.netloc or not url.path.startswith("/"):
            raise ValueError(
                "this is not supported: use file:///FOLDER, an absolute path, or the bucket of an "
                "object store: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
            )
    return value


def _roomy_cache(value: int | None) -> int | None:
    if value is not None and value < _MIN_CACHE_BYTES:
        raise ValueError(
            f"{value} bytes do not hold the supports that one search compares, and each would be "
            f"downloaded again: give it {_MIN_CACHE_BYTES} (64 MiB) or more"
        )
    return value


def _check_networks(value: str | None) -> str | None:
    for network in value.split(",") if value else ():
        try:
            ipaddress.ip_network(network.strip())
        except ValueError as error:
            raise ValueError(
                f"{error}; use addresses and networks such as 10.0.0.7,192.168.1.0/24"
            ) from None
    return value


def _check_destinations(value: str | None) -> str | None:
    Allowlist.parse(value)
    return value


def _check_keys(value: SecretStr | None) -> SecretStr | None:
    if value is None or not value.get_secret_value():
        return None  # an empty variable of a compose file
    parse_keys(value.get_secret_value())
    return value


def _is_address(host: str) -> bool:
    """Whether it is HOST or HOST:PORT."""
    try:
        parts = urlsplit(f"//{host}")
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_path(value: str) -> str:
    path = value.rstrip("/")
    if path and re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", path) is None:
        raise ValueError(
            f"{value!r} is not a path: write one such as /modelkin, of letters, digits and . _ ~ -"
        )
    return path


def _check_collector(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", value):
        raise ValueError("this is not the URL of a collector: use http://HOST:4318 or https://HOST")
    return value


CollectorUrl = Annotated[str | None, AfterValidator(_check_collector)]

DatabaseUrl = Annotated[str, AfterValidator(_check_database)]
"""The URL of a database that is supported."""
RedisUrl = Annotated[
    str | None,
    BeforeValidator(lambda value: value or None),  # an empty variable of a compose file
    AfterValidator(_check_redis),
]
"""The URL of a Redis or of a cluster."""
BlobUrl = Annotated[str | None, AfterValidator(_check_blobs)]
"""The URL of a folder, or of a bucket."""
CacheBytes = Annotated[int | None, AfterValidator(_roomy_cache)]
"""Room for a cache of supports."""
RootPath = Annotated[str, AfterValidator(_check_path)]
"""A path without a slash at its end; empty for the root."""
Networks = Annotated[str | None, AfterValidator(_check_networks)]
"""Addresses and networks, with commas between."""
Destinations = Annotated[str | None, AfterValidator(_check_destinations)]
"""The networks and hosts that the service may connect to: see :class:`Allowlist`."""
EncryptionKeys = Annotated[SecretStr | None, AfterValidator(_check_keys)]
"""Encryption keys, the encrypting one first; None for an empty text."""
