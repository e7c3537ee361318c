"""A service with a small hub: a base, what was made of it, and what is said of both."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from app.anatomy.keeping import AnatomyKeeper
from app.fingerprints.records import Facts
from app.fingerprints.service import FingerprintService
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.tenants import ensure_tenant
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.sdk.core.fingerprints.planted import DERIVED, fingerprint, model
from tests.support.app.fingerprints import made_fingerprint
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend

PUBLISHED: Final = datetime(2026, 1, 1, tzinfo=UTC)
SCALE: Final = 2
"""Of fingerprints: half of the lines are enough."""
_numbers = itertools.count()


@dataclass
class Hub:
    """The models of a tenant of its own.

    Attributes:
        headers: of its requests.
    """

    app: AppHarness
    tenant: Tenant
    headers: dict[str, str]

    def put(self, name: str, content: Fingerprint, days: int, **facts: Any) -> None:
        """Store a fingerprint of a model that was published so many days after the base."""
        service = self.app.services[FingerprintService]
        prepared = service.prepare(content)
        stated = Facts(published_at=PUBLISHED + timedelta(days=days), file_bytes=10_000_000)
        with self.app.database.writing() as session:
            service.put(
                session,
                self.tenant,
                name,
                prepared,
                stated_by="hub",
                facts=Facts(**{**_fields(stated), **facts}),
            )

    def get(self, path: str, **headers: str) -> Any:
        """An answer of the service."""
        return self.app.http.get(path, headers={**self.headers, **headers})

    def make(self, **body: Any) -> dict[str, Any]:
        """A new report, of anatomies that are made."""
        self.app.worker.run_all()
        made = self.app.http.post("/v1/reports", json=body, headers=self.headers)
        assert 202 == made.status_code, made.text
        self.app.worker.run_all()
        job = self.get(made.headers["Location"]).json()
        assert "succeeded" == job["state"], job
        report: dict[str, Any] = self.get(job["result"]["url"]).json()
        return report


def _fields(facts: Facts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in Facts.__dataclass_fields__}


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service with keys, on each database."""
    with open_keyed_app(tmp_path_factory.mktemp("reports"), backend) as opened:
        opened.services[AnatomyKeeper].delay = timedelta(0)
        yield opened


@pytest.fixture
def empty(app: AppHarness) -> Hub:
    """A tenant without models."""
    return _new(app)


@pytest.fixture(scope="module")
def hub(app: AppHarness) -> Hub:
    """A base and a stranger, a fine-tune, one that names no base and one that names the stranger,
    a copy, one put together of both, and one of a base that is not stored.

    Tests change none of them.
    """
    made, base, stranger = _new(app), model(1), model(2)
    of_base = fingerprint(base, SCALE)
    joined = {name: (base if "layers" in name else stranger)[name] for name in base}
    tuned, rounded = (fingerprint(DERIVED[how](base), SCALE) for how in ("noise .05", "8 bits"))
    made.put("meta/base", of_base, 0, license="llama-license")
    made.put("org/tuned", tuned, 2, base_models=("meta/base",), license="apache-2.0")
    made.put("org/silent", rounded, 3)
    made.put("org/mirror", of_base, 4, license="llama-license")
    made.put("lab/other", fingerprint(stranger, SCALE), 1, license="mit")
    grown = fingerprint(DERIVED["more tokens"](base), SCALE)
    made.put("org/claims", grown, 6, base_models=("lab/other",), license="llama-license")
    made.put("org/joined", fingerprint(joined, SCALE), 7, license="mit")
    made.put("org/lost", made_fingerprint(5), 5, base_models=("gone/away",))
    return made


@pytest.fixture(scope="module")
def made(hub: Hub) -> dict[str, Any]:
    """The report of all its models."""
    return hub.make()


def _new(app: AppHarness) -> Hub:
    name = f"hub-{next(_numbers)}"
    with app.database.writing() as session:
        tenant = ensure_tenant(session, name)
    return Hub(app, tenant, app.headers_of(name))
