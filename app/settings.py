"""Every setting of the service, read in one place: flags, then variables, then defaults.

No other module reads the environment.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from app.infra.egress.client import Allowlist
from app.infra.storage.encryption import keys_of

__all__ = ["DEFAULT_DATABASE_URL", "Settings", "mistakes"]

DEFAULT_DATABASE_URL = "sqlite:///./modelkin-data/modelkin.db"


class Settings(BaseSettings):
    """The modelkin service: which models are kin. For API keys: `python -m app keys --help`."""

    model_config = SettingsConfigDict(
        env_prefix="MODELKIN_",
        cli_prog_name="python -m app",
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_implicit_flags=True,
        extra="ignore",
        frozen=True,
    )

    database_url: str = Field(
        DEFAULT_DATABASE_URL,
        description="where the truth is kept: sqlite:///FILE for one machine, or "
        "postgresql+psycopg://USER:PASSWORD@HOST/NAME",
    )
    blob_url: str | None = Field(
        None,
        description="where supports are kept: file:///FOLDER (default: beside the database)",
    )
    redis_url: str | None = Field(
        None,
        description="where the LSH buckets and the counters of rate limits are kept: "
        "redis://HOST:PORT, rediss:// with TLS, or a cluster's HOST:PORT,HOST:PORT (default: "
        "buckets in the database, counters in each process)",
    )
    host: str = Field("127.0.0.1", description="the address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="the port to listen on; 0 takes a free one")
    workers: int = Field(
        1, ge=1, le=256, description="processes that serve; each has indexes of its own"
    )
    auth: Literal["auto", "off", "required"] = Field(
        "auto", description="whether keys are asked for; auto: off on loopback, required elsewhere"
    )
    initial_key: SecretStr | None = Field(
        None,
        description="a key for the default tenant, stored at start while there is none "
        "(make one with `python -m app keys generate`)",
    )
    migrate: bool = Field(
        True,
        description="bring the database to this version at start; --no-migrate refuses instead",
    )
    max_json_bytes: int = Field(1 << 20, ge=1 << 10, description="largest JSON body; beyond it 413")
    max_body_bytes: int = Field(
        1 << 30,
        ge=1 << 10,
        description="largest binary body, and largest support it may decode to; beyond it 413",
    )
    body_memory: int = Field(
        4 << 30,
        ge=1 << 20,
        description="bytes that all bodies and what they decode to may take at a time; "
        "beyond it requests wait, then 503",
    )
    body_timeout: float = Field(
        60.0, gt=0, description="seconds a body may take for every 8 MiB of it; beyond it 408"
    )
    keep_revisions: int = Field(
        5,
        ge=1,
        le=1000,
        description="supports of a model that are kept, the present one included; from 2 on that "
        "of its first revision is kept as well",
    )
    cache_folder: Path | None = Field(
        None,
        description="where sketches of supports are kept for fast search, on a disk of this "
        "machine; they are made again if lost (default: beside the supports)",
    )
    open_supports: int = Field(
        1000, ge=0, description="supports that stay open between queries, a file descriptor each"
    )
    open_supports_bytes: int = Field(
        1 << 30, ge=0, description="bytes of all supports that stay open"
    )
    index_memory: int = Field(
        4 << 30,
        ge=1 << 20,
        description="bytes that the signature indexes of a process may take, some 300 a model; "
        "beyond it the least recently used spaces are evicted",
    )
    housekeeping_every: float = Field(
        60.0,
        gt=0,
        description="seconds between two rounds that free what deleted spaces and models leave",
    )
    rate_limit: int | None = Field(
        None,
        ge=1,
        description="requests that a tenant, or without keys an address, may make in a minute; "
        "beyond it 429 (default: no limit)",
    )
    write_rate_limit: int | None = Field(
        None,
        ge=1,
        description="how many of them may be writes; beyond it 429 (default: no limit)",
    )
    trusted_proxies: str | None = Field(
        None,
        description="proxies whose X-Forwarded-For is trusted: addresses and networks, with "
        "commas between them (default: none)",
    )
    egress_allow: str | None = Field(
        None,
        description="hosts, host:port and networks that hubs and webhook receivers may be at "
        "although they are not public, with commas between them (default: none)",
    )
    database_connections: int = Field(
        40, ge=12, le=1000, description="connections that a process may have to the database"
    )
    database_timeout: float = Field(
        10.0, gt=0, description="seconds to wait for the database's write lock before a 503"
    )
    jobs: Literal["auto", "in-process", "off"] = Field(
        "auto",
        description="whether this service carries out jobs, too; auto: on SQLite, and not on "
        "Postgres, where `python -m workers` does",
    )
    job_concurrency: int = Field(
        6,
        ge=1,
        le=64,
        description="jobs that a worker carries out at a time, half of them of the kinds that "
        "wait for hubs; the same for all",
    )
    job_lease: float = Field(
        30.0,
        ge=1,
        le=3600,
        description="seconds of silence after which others take over the jobs of a worker",
    )
    job_retention: float = Field(
        30.0, gt=0, le=36500, description="days for which jobs that have ended are kept"
    )
    secret_key: SecretStr | None = Field(
        None,
        description="what secrets of hooks and tokens of hubs are encrypted with at rest: 32 "
        "random characters or more; several with commas between them, of which the first "
        "encrypts and all decrypt (default: made in the data folder, on SQLite)",
    )
    delivery_retention: float = Field(
        30.0,
        gt=0,
        le=36500,
        description="days for which deliveries are kept, those of hubs and those to subscribers; "
        "one of a hub that is repeated later counts as new",
    )
    download_folder: Path | None = Field(
        None,
        description="where checkpoints of hubs lie while their supports are made (default: "
        "beside the database, or ./modelkin-data)",
    )
    max_checkpoint_bytes: int = Field(
        64 << 30, ge=1 << 10, description="bytes of a checkpoint that are downloaded from a hub"
    )
    max_ingested_indices: int = Field(
        1 << 25,
        ge=1,
        description="indices of a support that is made here of a hub's checkpoint, 4 to 8 bytes "
        "of memory each; larger K are cut down to it unless a space fixes one",
    )
    hub_timeout: float = Field(
        30.0, gt=0, le=3600, description="seconds of silence after which a hub counts as away"
    )
    look_timeout: float = Field(
        4 * 3600.0,
        gt=0,
        description="seconds that a sync of a model, or a poll of a hub, may take, all its "
        "requests and downloads together; beyond it the job fails",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="lines for people, or JSON for machines"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="how much to log"
    )

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        try:
            url = make_url(value)
        except ArgumentError as error:
            raise ValueError(f"{value!r} is no database URL: {error}") from None
        if url.drivername not in {"sqlite", "sqlite+pysqlite", "postgresql+psycopg"}:
            raise ValueError(
                f"{url.drivername!r} is not supported: use sqlite:///FILE "
                f"or postgresql+psycopg://USER:PASSWORD@HOST/NAME"
            )
        if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
            raise ValueError("an in-memory database would lose what was acknowledged: name a file")
        return value

    @field_validator("redis_url")
    @classmethod
    def _known_redis(cls, value: str | None) -> str | None:
        if value is not None:
            url = urlsplit(value)
            hosts = url.netloc.rpartition("@")[2].split(",")
            if url.scheme not in {"redis", "rediss"} or not all(map(_is_address, hosts)):
                raise ValueError(
                    "this is not supported: use redis://HOST:PORT or rediss://HOST:PORT, "
                    "with commas between several HOST:PORT of a cluster"
                )
        return value

    @field_validator("blob_url")
    @classmethod
    def _known_blobs(cls, value: str | None) -> str | None:
        if value is not None:
            url = urlsplit(value)
            if url.scheme != "file" or url.netloc or not url.path.startswith("/"):
                raise ValueError(
                    f"{value!r} is not supported: use file:///FOLDER, an absolute path"
                )
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _known_networks(cls, value: str | None) -> str | None:
        for network in value.split(",") if value else ():
            try:
                ipaddress.ip_network(network.strip())
            except ValueError as error:
                raise ValueError(
                    f"{error}; use addresses and networks such as 10.0.0.7,192.168.1.0/24"
                ) from None
        return value

    @field_validator("egress_allow")
    @classmethod
    def _known_destinations(cls, value: str | None) -> str | None:
        Allowlist.parse(value)
        return value

    @field_validator("secret_key")
    @classmethod
    def _known_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value():
            return None  # as an empty variable of a compose file says
        keys_of(value.get_secret_value())
        return value

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def keys_required(self) -> bool:
        """Whether a request needs a key."""
        return self.auth == "required" or (self.auth == "auto" and not self.on_loopback)

    @property
    def works(self) -> bool:
        """Whether a service carries out jobs beside its requests."""
        is_sqlite = make_url(self.database_url).get_backend_name() == "sqlite"
        return self.jobs == "in-process" or (self.jobs == "auto" and is_sqlite)

    @property
    def data_folder(self) -> Path:
        """The folder of the SQLite database; beside Postgres, ./modelkin-data."""
        url = make_url(self.database_url)
        if url.get_backend_name() != "sqlite" or url.database is None:
            return Path("modelkin-data").absolute()
        return Path(url.database).absolute().parent

    @property
    def secret_keys(self) -> tuple[str, ...]:
        """The keys of secrets that are set, the one that encrypts first."""
        return () if self.secret_key is None else keys_of(self.secret_key.get_secret_value())

    @property
    def secret_key_file(self) -> Path | None:
        """Where a key is made if none is set; None beside Postgres, which other machines share."""
        if make_url(self.database_url).get_backend_name() != "sqlite":
            return None
        return self.data_folder / "secret.key"

    @property
    def checkpoint_folder(self) -> Path:
        """The folder of unfinished downloads, of all databases that share it."""
        if self.download_folder is not None:
            return self.download_folder.absolute()
        return self.data_folder / "downloads"

    @property
    def blob_folder(self) -> Path:
        """The folder that holds the supports."""
        if self.blob_url is not None:
            return Path(unquote(urlsplit(self.blob_url).path))
        return self.data_folder / "blobs"

    @property
    def sketch_folder(self) -> Path:
        """The folder that holds the sketches of supports, of all databases that share it."""
        if self.cache_folder is not None:
            return self.cache_folder.absolute()
        return self.blob_folder.with_name(f"{self.blob_folder.name}-cache")

    @classmethod
    def from_command_line(cls, arguments: list[str], *, program: str = "python -m app") -> Settings:
        """Settings from flags over the environment; prints help or the mistake, and exits."""
        options: dict[str, Any] = {"_cli_parse_args": arguments, "_cli_prog_name": program}
        return cls(**options)


def _is_address(host: str) -> bool:
    """Whether it is HOST or HOST:PORT."""
    try:
        parts = urlsplit(f"//{host}")
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def mistakes(error: ValidationError) -> list[str]:
    """A line for each setting that cannot be: its variable, and why."""
    return [
        f"MODELKIN_{'_'.join(str(part) for part in entry['loc']).upper()}: "
        + entry["msg"].removeprefix("Value error, ")
        for entry in error.errors()
    ]
