"""The service in this process, its jobs carried out when a test says so, and a clock to advance."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import update
from starlette.testclient import TestClient

from app.auth.records import Tenant
from app.auth.service import SCOPES, KeyService
from app.bootstrap import open_services
from app.container import Container
from app.infra.db.database import Database
from app.infra.db.tables.jobs import JobRow
from app.infra.db.tables.webhooks import EventRow, SubscriptionRow, WebhookDeliveryRow
from app.jobs import queue
from app.jobs.service import JobService
from app.main import create_app
from app.settings import Settings
from app.webhooks.in_flight import THREAD
from modelkin import Support
from modelkin.wire import SUPPORT
from tests.support.backends import Backend
from workers.executor import JobExecutor
from workers.scheduler import Scheduler

__all__ = ["PAST", "Bureau", "bureau"]

PAST = datetime(2020, 1, 1, tzinfo=UTC)


class Bureau:
    """A service whose worker is the test.

    Args:
        services: open.
        http: answers for the tenant ``default``.
    """

    def __init__(self, services: Container, http: TestClient) -> None:
        self.services = services
        self.tenant = services[Tenant]
        self.http = http
        self._bench = JobExecutor(services[Database], services[JobService], "the test")
        with services[Database].writing() as session:
            queue.add_worker(session, "the test", datetime.now(UTC))

    def other(self, tenant: str) -> dict[str, str]:
        """The headers of another tenant."""
        return self.key(self.services, tenant)

    @staticmethod
    def key(services: Container, tenant: str) -> dict[str, str]:
        """The headers of a tenant."""
        with services[Database].writing() as session:
            key = services[KeyService].create(session, tenant, scopes=SCOPES)
        return {"Authorization": f"Bearer {key}"}

    def work(self, *, patient: bool = True) -> list[str]:
        """Carry out every job that is due, and those that follow; their kinds in order.

        Args:
            patient: wait until what they began to send has ended, too.
        """
        done: list[str] = []
        while True:
            with self.services[Database].reading() as session:
                offers = queue.ready_jobs(session, datetime.now(UTC), each=1000)
            if not offers:
                sending = [t for t in threading.enumerate() if t.name == THREAD]
                if not (sending and patient):
                    return done
                for thread in sending:
                    thread.join()
            for offer in offers:
                with self.services[Database].reading() as session:
                    job = self.services[JobService].find_all(session, [offer.job_id])[offer.job_id]
                self._bench.carry_out(offer.job_id, offer.dispatch_no)
                done.append(job.kind)
            assert len(done) < 500, done

    def later(self) -> None:
        """Let so much time pass that whatever waits is due."""
        waiting = update(JobRow).where(JobRow.state == "queued").values(not_before=None)
        due = (
            update(WebhookDeliveryRow)
            .where(WebhookDeliveryRow.state == "pending")
            .values(due_at=PAST)
        )
        with self.services[Database].writing() as session:
            for change in (waiting, due, update(SubscriptionRow).values(paused_until=None)):
                session.execute(change)

    def overdue(self) -> None:
        """Let what happened be of long ago, and what was sent as well."""
        with self.services[Database].writing() as session:
            session.execute(update(EventRow).values(created_at=PAST))
            ended = update(WebhookDeliveryRow).where(WebhookDeliveryRow.state != "pending")
            session.execute(ended.values(finished_at=PAST))

    def tick(self, *, patient: bool = True) -> list[str]:
        """Enqueue what the service's own schedule finds due, and carry it out."""
        Scheduler(self.services[Database], self.services[JobService]).tick(datetime.now(UTC))
        return self.work(patient=patient)

    # --- what tests say often -----------------------------------------------------------------

    def space(self, name: str, m: int = 10_000) -> str:
        """A new space."""
        made = self.http.post("/v1/spaces", json={"name": name, "num_parameters": m})
        assert 201 == made.status_code, made.text
        return name

    def put(self, space: str, model: str, support: Support, **params: Any) -> dict[str, Any]:
        """A stored support."""
        stored = self.http.put(
            f"/v1/spaces/{space}/supports/{model}",
            content=support.to_bytes(),
            headers={"Content-Type": SUPPORT},
            params=params,
        )
        assert stored.status_code in {200, 201}, stored.text
        answer: dict[str, Any] = stored.json()
        return answer

    def subscribe(self, url: str, *events: str, **fields: Any) -> dict[str, Any]:
        """A new subscription."""
        body = {"url": url, "events": list(events) or ["support.stored"], **fields}
        made = self.http.post("/v1/subscriptions", json=body)
        assert 201 == made.status_code, made.text
        answer: dict[str, Any] = made.json()
        return answer

    def deliveries(self, subscription: dict[str, Any], **params: Any) -> list[dict[str, Any]]:
        """Those of a subscription, the oldest first."""
        path = f"/v1/subscriptions/{subscription['id']}/deliveries"
        listed = self.http.get(path, params=params)
        assert 200 == listed.status_code, listed.text
        items: list[dict[str, Any]] = listed.json()["items"]
        return items[::-1]

    def show(self, subscription: dict[str, Any]) -> dict[str, Any]:
        """A subscription as it is now."""
        answer: dict[str, Any] = self.http.get(f"/v1/subscriptions/{subscription['id']}").json()
        return answer


@contextmanager
def bureau(folder: Path, backend: Backend, **settings: Any) -> Iterator[Bureau]:
    """A service of this process, on a database of its own."""
    made = Settings(
        database_url=backend.url(folder),
        blob_url=f"file://{folder}/blobs",
        auth="required",
        embedded_worker="off",
        egress_allow="127.0.0.0/8",
        encryption_keys="-PZDJBdAjIGI2nIwgzCXUEGFHCA5jNS5rBdkPsMbXDQ=",
        **settings,
    )
    with open_services(made) as services:
        headers = Bureau.key(services, "default")
        app = create_app(services)
        with TestClient(app, headers=headers, raise_server_exceptions=False) as http:
            yield Bureau(services, http)
