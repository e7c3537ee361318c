"""All settings of the service: flags first, then environment variables, then defaults.

No other module reads the values of environment variables.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsConfigDict

from app.command_line import parser
from app.data_places import DataPlaces
from app.infra.storage.encryption_keys import parse_keys
from app.setting_decisions import SettingDecisions
from app.setting_values import (
    BlobUrl,
    CacheBytes,
    CollectorUrl,
    DatabaseUrl,
    Destinations,
    EncryptionKeys,
    Networks,
    RedisUrl,
    RootPath,
)
from modelkin._option_parser import OptionParser
from modelkin.core.selection.rule import MAX_DEFAULT_K

__all__ = ["DEFAULT_DATABASE_URL", "PREFIX", "Settings"]

DEFAULT_DATABASE_URL = "sqlite:///./modelkin-data/modelkin.db"
PREFIX: Final = "MODELKIN_"
"""The beginning of the name of every variable of a setting."""


class Settings(DataPlaces, SettingDecisions, BaseSettings):
    """The modelkin service: which models are kin. For API keys: its command `keys`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        cli_prog_name="python -m app",
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_implicit_flags=True,
        extra="ignore",
        frozen=True,
    )

    database_url: DatabaseUrl = Field(
        DEFAULT_DATABASE_URL,
        description="the database: sqlite:///FILE for one machine, or "
        "postgresql+psycopg://USER:PASSWORD@HOST/NAME",
    )
    blob_url: BlobUrl = Field(
        None,
        description="the store of supports: file:///FOLDER (default: beside the database), or "
        "the bucket of an object store: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, "
        "az://CONTAINER/PREFIX",
    )
    blob_cache_bytes: CacheBytes = Field(
        None,
        description="room on this machine's disk for supports of a bucket, or of a folder that "
        "machines share, 64 MiB at least; the least recently used go (default: 80% of what is free "
        "for a bucket; a folder is read where it is)",
    )
    blob_cache_dir: Path | None = Field(
        None, description="the folder of these, on a local disk (default: in the data folder)"
    )
    redis_url: RedisUrl = Field(
        None,
        description="the store of LSH buckets and of the counters of rate limits: "
        "redis://HOST:PORT, rediss:// with TLS, or a cluster's HOST:PORT,HOST:PORT (default: "
        "buckets in the database, counters in each process)",
    )
    fingerprint_index: Literal["disk", "redis"] = Field(
        "disk",
        description="where models with common lines are looked up: in files on each machine's "
        "local disk, or in Redis, for hubs that one machine does not hold; a disk stands in for it",
    )
    host: str = Field("127.0.0.1", description="the address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="the port to listen on; 0 takes a free one")
    max_connections: int = Field(
        2000,
        ge=1,
        description="connections of clients to a process, half of its file descriptors at most; "
        "beyond it a new one is answered 503 and closed",
    )
    processes: int = Field(
        1, ge=1, le=256, description="server processes; each has indexes of its own"
    )
    drain_seconds: float | None = Field(
        None,
        ge=0,
        le=3600,
        description="time after SIGTERM, or in a renewal, that a process goes on answering while "
        "/readyz says `stopping` (default: 5 beyond loopback and with several processes, else 0)",
    )
    auth: Literal["auto", "off", "required"] = Field(
        "auto",
        description="whether requests need an API key; auto: off on loopback, required elsewhere",
    )
    initial_key: SecretStr | None = Field(
        None,
        description="an API key for the default tenant, stored at start while there is none "
        "(the command `keys generate` makes one)",
    )
    migrate: bool = Field(
        True,
        description="migrate the database to this version at start; --no-migrate refuses instead",
    )
    max_json_bytes: int = Field(1 << 20, ge=1 << 10, description="largest JSON body; beyond it 413")
    max_body_bytes: int = Field(
        1 << 30,
        ge=1 << 10,
        description="largest binary body, and largest support it may decode to; beyond it 413",
    )
    max_inflight_body_bytes: int = Field(
        4 << 30,
        ge=1 << 20,
        description="memory of all bodies in flight and of what they decode to, and a quarter as "
        "much of large answers; beyond it requests wait, then 503",
    )
    body_timeout_seconds: float = Field(
        60.0, gt=0, description="time that every 8 MiB of a body may take; beyond it 408"
    )
    keep_revisions: int = Field(
        5,
        ge=1,
        le=1000,
        description="supports kept of each model, the present one included; from 2 on the support "
        "of its first revision is kept as well",
    )
    blob_grace_seconds: float = Field(
        86400.0,
        ge=0,
        description="how long a support is kept after no model names it, so that copies of the "
        "database that are not older find it",
    )
    sketch_cache_dir: Path | None = Field(
        None,
        description="folder of the sketches of supports and of the index of fingerprints, on a "
        "local disk; they are made again if lost (default: beside the supports)",
    )
    support_cache_entries: int = Field(
        1000, ge=0, description="supports that stay in memory between queries"
    )
    support_cache_bytes: int = Field(
        1 << 29, ge=0, description="memory of all supports that stay, in each process"
    )
    index_memory_bytes: int = Field(
        4 << 30,
        ge=1 << 20,
        description="memory of the signature indexes of a process, some 300 bytes a model; least "
        "recently used spaces are evicted first",
    )
    maintenance_interval_seconds: float = Field(
        60.0,
        gt=0,
        description="time between two rounds that free what deleted spaces and models leave",
    )
    session_seconds: float = Field(
        43_200.0, ge=60, le=2_592_000, description="the longest that a visitor stays signed in"
    )
    rate_limit: int | None = Field(
        None,
        ge=1,
        description="requests a minute of a tenant, or of an address where no keys are needed; "
        "beyond it 429 (default: no limit)",
    )
    write_rate_limit: int | None = Field(
        None,
        ge=1,
        description="how many of these may be writes; beyond it 429 (default: no limit)",
    )
    tenant_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of a process's turns that one tenant may hold while others wait, and of "
        "its memory for bodies and answers where keys are required",
    )
    query_timeout_seconds: float = Field(
        10.0,
        gt=0,
        le=3600,
        description="time that the computation of an answer may take; beyond it what is found by "
        "then is answered with `truncated: true`, or it is a 503 `too_much`",
    )
    quota_spaces: int | None = Field(
        1000, ge=0, description="spaces of a tenant; beyond it 507 (for one tenant: `tenants set`)"
    )
    quota_models: int | None = Field(
        10_000_000, ge=0, description="models of a tenant in all its spaces; beyond it 507"
    )
    quota_support_bytes: int | None = Field(
        1 << 40, ge=0, description="bytes of a tenant's supports and kept revisions; beyond it 507"
    )
    quota_fingerprints: int | None = Field(
        10_000_000, ge=0, description="fingerprints of a tenant; beyond it 507"
    )
    quota_fingerprint_bytes: int | None = Field(
        1 << 40, ge=0, description="bytes of a tenant's fingerprints; beyond it 507"
    )
    quota_queued_jobs: int | None = Field(
        1000, ge=0, description="jobs of a tenant that wait or run, but for syncs; beyond it 429"
    )
    quota_sources: int | None = Field(100, ge=0, description="sources of a tenant; beyond it 507")
    quota_subscriptions: int | None = Field(
        100, ge=0, description="webhook subscriptions of a tenant; beyond it 507"
    )
    quota_merges: int | None = Field(
        100, ge=0, description="merges of a tenant that have not ended; beyond it 507"
    )
    quota_events: int = Field(
        100_000,
        ge=1,
        description="events that are kept of a tenant, as many finished jobs, and as many events "
        "of each of its sources; the oldest are deleted",
    )
    quota_deliveries: int = Field(
        100_000,
        ge=1,
        description="webhook deliveries that are kept of a tenant; the oldest are deleted, "
        "finished ones first",
    )
    quota_reporters: int | None = Field(
        100_000, ge=0, description="reporters of K* of a tenant in all its spaces; beyond it 507"
    )
    root_path: RootPath = Field(
        "",
        description="the path below which a proxy shows the service, such as /modelkin; the proxy "
        "may pass it on or cut it off",
    )
    trusted_proxies: Networks = Field(
        None,
        description="proxies whose X-Forwarded-For gives the client's address: addresses and "
        "networks, separated by commas (default: no proxy is trusted)",
    )
    egress_allow: Destinations = Field(
        None,
        description="hosts, host:port and networks that hubs and webhook receivers may have "
        "although they are not public, separated by commas (default: only public addresses)",
    )
    database_pool_size: int = Field(
        40, ge=12, le=1000, description="connections of a process to the database"
    )
    database_timeout_seconds: float = Field(
        10.0, gt=0, description="wait for the database's write lock before a 503"
    )
    embedded_worker: Literal["auto", "on", "off"] = Field(
        "auto",
        description="whether this service carries out jobs as well; auto: on with SQLite, off with "
        "Postgres, where `python -m workers` does",
    )
    job_concurrency: int = Field(
        6,
        ge=4,
        le=64,
        description="jobs that a worker carries out at a time, half of them of the kinds that "
        "wait for hubs; one tenant gets all but one of each half; the same for all workers",
    )
    job_lease_seconds: float = Field(
        30.0,
        ge=1,
        le=3600,
        description="time without a heartbeat after which other workers take over a worker's jobs",
    )
    job_timeout_seconds: float = Field(
        1800.0,
        gt=0,
        description="time that one attempt at a job may take, but for syncs and polls of hubs; "
        "beyond it the job fails with `timed_out`",
    )
    worker_health_file: Path | None = Field(
        None,
        description="a file that a worker touches while it works or stands by, for health checks: "
        "`python -m workers.health FILE` (default: none)",
    )
    job_retention_days: float = Field(
        30.0, gt=0, le=36500, description="how long finished jobs are kept"
    )
    encryption_keys: EncryptionKeys = Field(
        None,
        description="keys that encrypt webhook secrets and hub tokens at rest, 32 random "
        "characters or more each; separated by commas: the first encrypts, all decrypt "
        "(default: created in the data folder, on SQLite)",
    )
    delivery_retention_days: float = Field(
        30.0,
        gt=0,
        le=36500,
        description="how long webhook deliveries, their events and hub events are kept; a hub "
        "event that is repeated later counts as new",
    )
    download_dir: Path | None = Field(
        None,
        description="folder of checkpoints from hubs while their supports are computed (default: "
        "beside the database, or ./modelkin-data)",
    )
    max_checkpoint_bytes: int = Field(
        256 << 30, ge=1 << 10, description="largest checkpoint that is read from a hub"
    )
    max_learngene_bytes: int = Field(
        0,
        ge=0,
        description="largest file of a learngene that the service keeps, for keys with the scope "
        "`values`; beyond it 413; 0 keeps none, only manifests and where the files are",
    )
    keep_learngenes: int = Field(
        3,
        ge=1,
        le=1000,
        description="files kept of a cluster's learngene, those of its newest versions; of older "
        "ones the manifests stay",
    )
    max_ingested_indices: int = Field(
        MAX_DEFAULT_K,
        ge=1,
        description="largest support that the service selects from a hub's checkpoint, in indices "
        "of 36 to 56 bytes in a sync; below the default, new spaces fix what it leaves of their K",
    )
    hub_timeout_seconds: float = Field(
        30.0, gt=0, le=3600, description="time for which a hub may keep a job waiting, in all"
    )
    hub_sync_timeout_seconds: float = Field(
        4 * 3600.0,
        gt=0,
        description="time for one sync of a model or poll of a hub, all its requests and downloads "
        "together; beyond it the job fails",
    )
    otlp_endpoint: CollectorUrl = Field(
        None,
        description="a collector of OpenTelemetry's traces, such as http://collector:4318; needs "
        "the extra `otel` (default: no traces)",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="lines for people, or JSON for machines"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="how much to log"
    )

    def __reduce__(self) -> tuple[Callable[..., Settings], tuple[dict[str, Any]]]:
        """Pickle only the set fields: a newer process may read them, with more settings."""
        return _restore, (self.model_dump(exclude_unset=True),)

    @property
    def encryption_key_list(self) -> tuple[str, ...]:
        """The encryption keys, the encrypting one first."""
        keys = self.encryption_keys
        return () if keys is None else parse_keys(keys.get_secret_value())

    @classmethod
    def from_command_line(cls, arguments: list[str], *, program: str = "python -m app") -> Settings:
        """Settings from flags over the environment; prints help or the error, and exits."""
        serves = not program.endswith("workers")
        flags: CliSettingsSource[Any] = CliSettingsSource(
            cls,
            cli_parse_args=arguments,
            root_parser=parser(program, serves=serves),
            add_argument_method=OptionParser.add_argument,
        )
        options: dict[str, Any] = {"_cli_settings_source": flags}
        return cls(**options)


def _restore(values: dict[str, Any]) -> Settings:
    """Make settings again; processes of newer code look this name up, see test_renewed_code.py."""
    return Settings(**values)
