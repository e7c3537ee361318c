"""The service in the test process: one harness, with parts for jobs, hubs and webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet
from starlette.testclient import TestClient

from app.bootstrap import open_services
from app.container import Container
from app.infra.db.database import Database
from app.main import create_app
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.service import SCOPES, KeyService
from modelkin import Support
from modelkin.wire import SUPPORT
from tests.support.app.hubs import AppHubs
from tests.support.app.webhooks import AppWebhooks
from tests.support.app.worker import AppWorker
from tests.support.backends import SQLITE, Backend
from tests.support.declared_problems import checked
from tests.support.servers.server_process import QUERY_TIMEOUT_S

__all__ = ["AppHarness", "open_app", "open_hub_app", "open_keyed_app", "settings_of"]

KEY = Fernet.generate_key().decode()


class AppHarness:
    """The services of one process, their endpoints, and a worker that the test drives.

    Args:
        services: open services.
        keyed: requests carry a key of the tenant ``default``, and a failure is answered with 500.
            Without it, a failure is raised in the test.
    """

    def __init__(self, services: Container, *, keyed: bool = False) -> None:
        self.services = services
        self.database = services[Database]
        self.tenant = services[Tenant]
        self._keyed = keyed
        self._open = ExitStack()

    def close(self) -> None:
        """Close the endpoints; the code that opened the services closes them."""
        self._open.close()

    @cached_property
    def http(self) -> TestClient:
        """The endpoints."""
        client = checked(
            TestClient(
                create_app(self.services),
                base_url="http://localhost",
                headers=self.headers_of("default") if self._keyed else None,
                raise_server_exceptions=not self._keyed,
            )
        )
        return self._open.enter_context(client)

    @cached_property
    def worker(self) -> AppWorker:
        """The worker, registered."""
        return AppWorker(self.services)

    @cached_property
    def hubs(self) -> AppHubs:
        """Sources, their events and their syncs."""
        return AppHubs(self.services, self.worker, lambda: self.http)

    @cached_property
    def webhooks(self) -> AppWebhooks:
        """Subscriptions and their deliveries."""
        return AppWebhooks(self.http)

    def headers_of(self, tenant: str) -> dict[str, str]:
        """The headers of a tenant, with a new key."""
        with self.database.writing() as session:
            key = self.services[KeyService].create(session, tenant, scopes=SCOPES)
        return {"Authorization": f"Bearer {key}"}

    def create_space(self, name: str, m: int = 10_000) -> str:
        """Create a space and return its name."""
        made = self.http.post("/v1/spaces", json={"name": name, "num_parameters": m})
        assert 201 == made.status_code, made.text
        return name

    def put_support(
        self, space: str, model: str, support: Support, **params: Any
    ) -> dict[str, Any]:
        """Store a support and return the model from the answer."""
        stored = self.http.put(
            f"/v1/spaces/{space}/supports/{model}",
            content=support.to_bytes(),
            headers={"Content-Type": SUPPORT},
            params=params,
        )
        assert stored.status_code in {200, 201}, stored.text
        answer: dict[str, Any] = stored.json()
        return answer


def settings_of(folder: Path, backend: Backend = SQLITE, **more: Any) -> Settings:
    """The settings of a service whose database and supports are in a folder."""
    stores: dict[str, Any] = {
        "database_url": backend.migrated_url(folder),
        "blob_url": f"file://{folder}/blobs",
        "embedded_worker": "off",
    }
    return Settings(_env_file=None, **{**stores, **more})


@contextmanager
def open_app(
    folder: Path,
    backend: Backend = SQLITE,
    *,
    keyed: bool = False,
    prepared: bool = False,
    **settings: Any,
) -> Iterator[AppHarness]:
    """Open the service of a folder; it may connect to loopback.

    Args:
        folder: where its database and its supports are.
        backend: the kind of its database.
        keyed: see :class:`AppHarness`.
        prepared: the database is already migrated.
        settings: settings that differ from those of the tests.
    """
    usual: dict[str, Any] = {
        "egress_allow": "127.0.0.1",
        "query_timeout_seconds": QUERY_TIMEOUT_S,
        "encryption_keys": None if backend.name == "sqlite" else KEY,
    }
    made = settings_of(folder, backend, **{**usual, **settings})
    with (
        open_services(made, prepared=prepared) as services,
        closing(AppHarness(services, keyed=keyed)) as harness,
    ):
        yield harness


@contextmanager
def open_keyed_app(folder: Path, backend: Backend, **settings: Any) -> Iterator[AppHarness]:
    """Open a service of several tenants, which may connect to every address of loopback."""
    asked = {"auth": "required", "egress_allow": "127.0.0.0/8", "encryption_keys": KEY, **settings}
    with open_app(folder, backend, keyed=True, **asked) as harness:
        yield harness


@contextmanager
def open_hub_app(folder: Path, **settings: Any) -> Iterator[AppHarness]:
    """Open a service on SQLite that starts fast.

    It waits for a hub as long as by default: real ones answer late where the machine is loaded.
    """
    with open_app(folder, prepared=True, **settings) as harness:
        yield harness
