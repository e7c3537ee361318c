"""Sources of a service: created, pushed to by their hubs, and synced by its worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from starlette.testclient import TestClient

from app.container import Container
from app.hubs.clients.protocol import Hub
from app.hubs.clients.registry import HubRegistry
from app.hubs.records import SourceRecord
from app.hubs.repositories import sources
from app.hubs.service import SourceIn, SourceService
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Database
from app.jobs.records import JobRecord
from app.models.catalog.reader import ModelReader
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models
from app.models.spaces.repositories import spaces
from app.tenancy.auth.records import Tenant
from modelkin.core.support import Support
from tests.support.app.worker import AppWorker
from tests.support.hub_payloads import hf_headers, hf_payload

__all__ = ["SECRET", "AppHubs"]

SECRET = "what only the hub knows"


class AppHubs:
    """The actions of source owners, of hubs and of the worker.

    Args:
        services: the services of the process.
        worker: carries out the syncs.
        http: opens the service's endpoints.
    """

    def __init__(
        self, services: Container, worker: AppWorker, http: Callable[[], TestClient]
    ) -> None:
        self._services = services
        self._database = services[Database]
        self._tenant = services[Tenant]
        self._worker = worker
        self._http = http
        self.registry = services[HubRegistry]
        self.sync = services[SyncScheduler]

    # --- over HTTP ----------------------------------------------------------------------------

    def create(self, **fields: Any) -> dict[str, Any]:
        """Create a source; its default hub is never called."""
        usual = {
            "kind": "huggingface",
            "space": "kin",
            "secret": SECRET,
            "url": "http://127.0.0.1:9",
            "poll_seconds": None,
        }
        answer = self._http().post("/v1/sources", json={**usual, **fields})
        assert 201 == answer.status_code, answer.text
        shown: dict[str, Any] = answer.json()
        assert f"/v1/sources/{shown['id']}" == answer.headers["location"]
        return shown

    def show(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """The current state of a source."""
        shown: dict[str, Any] = self._http().get(f"/v1/sources/{source['id']}").json()
        return shown

    def send(self, source: Mapping[str, Any], payload: Any, delivery_id: str | None = None) -> Any:
        """Send an event as a Hugging Face hub does, and return the answer."""
        headers = hf_headers(SECRET, delivery_id)
        return self._http().post(source["hook"], json=payload, headers=headers)

    def push(self, source: Mapping[str, Any], model: str, **more: Any) -> dict[str, Any]:
        """Send the event of a push and return the receipt."""
        answer = self.send(source, hf_payload(model, **more))
        assert 202 == answer.status_code, answer.text
        receipt: dict[str, Any] = answer.json()
        return receipt

    def jobs(self, source: Mapping[str, Any], kind: str = "ingest") -> list[dict[str, Any]]:
        """The jobs of a source, oldest first."""
        items, cursor = [], None
        while True:
            query = {"kind": kind, "limit": "1000"} | ({"cursor": cursor} if cursor else {})
            page = self._http().get("/v1/jobs", params=query).json()
            items += [job for job in page["items"] if job["parameters"]["source"] == source["id"]]
            if (cursor := page["next_cursor"]) is None:
                return items[::-1]

    # --- through the services ---------------------------------------------------------------

    def follow(self, url: str | None, **fields: Any) -> SourceRecord:
        """Create a source of a hub."""
        usual = {"kind": "huggingface", "space": "kin", "secret": "s", "poll_seconds": None}
        given = SourceIn(**{**usual, "url": url, **fields})
        with self._database.writing() as session:
            return self._services[SourceService].create(session, self._tenant, given)

    def source(self, source_id: str) -> SourceRecord:
        """The current state of a source."""
        with self._database.reading() as session:
            found = sources.find_source(session, source_id)
        assert found is not None
        return found

    def enqueue(self, source: SourceRecord, model: str, **hints: Any) -> JobRecord:
        """Enqueue the sync of a model."""
        with self._database.writing() as session:
            return self.sync.sync_model(
                session, self._tenant, source.id, model, space=source.space, **hints
            )

    def sync_model(self, source: SourceRecord, model: str, **hints: Any) -> JobRecord:
        """Make one attempt at the sync of a model."""
        return self._worker.execute(self.enqueue(source, model, **hints))

    def opened(self, source: SourceRecord) -> AbstractContextManager[Hub]:
        """The hub of a source."""
        with self._database.reading() as session:
            known = self._services[SourceService].open(session, self._tenant, source.id)
        return self.registry.hub_of(known)

    # --- stored results ---------------------------------------------------------------------

    def model(self, name: str, space: str = "kin") -> ModelRecord | None:
        """A model, or None if it does not exist."""
        with self._database.reading() as session:
            found = spaces.find_space(session, self._tenant, space)
            return None if found is None else models.find_model(session, found, name)

    def support(self, name: str, space: str = "kin") -> Support:
        """The support of a model."""
        with self._database.reading() as session:
            found = spaces.get_space(session, self._tenant, space)
            model = models.get_model(session, found, name)
            return self._services[ModelReader].support(found, model)

    def kinds(self) -> dict[str, str]:
        """The importance that each space states."""
        with self._database.reading() as session:
            return {space.name: str(space.importance) for space in spaces.all_spaces(session)}

    def spaces(self) -> list[str]:
        """The names of all spaces."""
        with self._database.reading() as session:
            return sorted(space.name for space in spaces.all_spaces(session))
