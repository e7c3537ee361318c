"""A service whose jobs wait: its edge, called in this process, and its stores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet
from starlette.testclient import TestClient

from app.auth.records import Tenant
from app.bootstrap import open_services
from app.container import Container
from app.hubs.records import SourceRecord
from app.hubs.repositories import sources
from app.infra.db.database import Database
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.main import create_app
from app.settings import Settings
from tests.support.backends import Backend
from tests.support.hub_payloads import hf_headers, hf_payload

__all__ = ["SECRET", "Office", "open_office"]

SECRET = "what only the hub knows"
KEY = Fernet.generate_key().decode()


class Office:
    """The service, and those who call it."""

    def __init__(self, services: Container, http: TestClient) -> None:
        self.services = services
        self.tenant = services[Tenant]
        self.database = services[Database]
        self.http = http

    def follow(self, **wanted: Any) -> dict[str, Any]:
        """A new source, as it is answered; of a hub that is never asked, unless one is named."""
        asked = {
            "kind": "huggingface",
            "space": "kin",
            "secret": SECRET,
            "url": "http://127.0.0.1:9",
            "poll_seconds": None,
        }
        answer = self.http.post("/v1/sources", json={**asked, **wanted})
        assert 201 == answer.status_code, answer.text
        shown: dict[str, Any] = answer.json()
        assert f"/v1/sources/{shown['id']}" == answer.headers["location"]
        return shown

    def show(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """The source as it is now."""
        shown: dict[str, Any] = self.http.get(f"/v1/sources/{source['id']}").json()
        return shown

    def deliver(
        self, source: Mapping[str, Any], payload: Any, delivery_id: str | None = None
    ) -> Any:
        """A delivery that a Hugging Face hub might make."""
        headers = hf_headers(SECRET, delivery_id)
        return self.http.post(source["hook"], json=payload, headers=headers)

    def push(self, source: Mapping[str, Any], model: str, **more: Any) -> dict[str, Any]:
        """What is answered to the news of a push."""
        answer = self.deliver(source, hf_payload(model, **more))
        assert 202 == answer.status_code, answer.text
        receipt: dict[str, Any] = answer.json()
        return receipt

    def jobs(self, source: Mapping[str, Any], kind: str = "ingest") -> list[dict[str, Any]]:
        """Jobs of a source, oldest first."""
        items, cursor = [], None
        while True:
            query = {"kind": kind, "limit": "1000"} | ({"cursor": cursor} if cursor else {})
            page = self.http.get("/v1/jobs", params=query).json()
            items += [job for job in page["items"] if job["parameters"]["source"] == source["id"]]
            if (cursor := page["next_cursor"]) is None:
                return items[::-1]

    def stored(self, source: Mapping[str, Any]) -> SourceRecord:
        """The source as the database has it."""
        with self.database.reading() as session:
            found = sources.find_source(session, source["id"])
        assert found is not None
        return found

    def job(self, job_id: str) -> JobRecord:
        """A job as the database has it."""
        with self.database.reading() as session:
            return self.services[JobService].get(session, self.tenant, job_id)


@contextmanager
def open_office(folder: Path, backend: Backend, **settings: Any) -> Iterator[Office]:
    """The service on a fresh database, which may talk to loopback."""
    known = {
        "database_url": backend.url(folder),
        "blob_url": f"file://{folder}/blobs",
        "egress_allow": "127.0.0.1",
        "encryption_keys": None if backend.name == "sqlite" else KEY,
    }
    with open_services(Settings(_env_file=None, **{**known, **settings})) as services:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the test client, about its own future
            client = TestClient(create_app(services), raise_server_exceptions=True)
        with client:
            yield Office(services, client)
