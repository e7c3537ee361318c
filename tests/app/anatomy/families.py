"""Planted families, stored by name: what tests of anatomies put into a service."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final

from app.anatomy.keeping import AnatomyKeeper
from app.fingerprints.records import (
    NO_FACTS,
    Facts,
    FingerprintPut,
    FingerprintRecord,
    StatedBy,
    Stored,
)
from app.fingerprints.service import FingerprintService
from modelkin import Fingerprint
from modelkin.wire import FINGERPRINT
from tests.sdk.core.fingerprints import planted
from tests.support.app.harness import AppHarness

__all__ = ["BODY", "DERIVATIONS", "Family", "derived", "stranger", "tensors_of"]

BODY: Final = {"Content-Type": FINGERPRINT}
DERIVATIONS: Final = tuple(planted.DERIVED)


@cache
def tensors_of(seed: int) -> planted.Tensors:
    """A model of random weights."""
    return planted.model(seed)


@cache
def stranger(seed: int = 1, scale: int | None = None) -> Fingerprint:
    """The fingerprint of a model of random weights, by default at the default scale."""
    return planted.fingerprint(tensors_of(seed), scale)


@cache
def derived(how: str, seed: int = 0) -> Fingerprint:
    """That of what a hub makes of such a model."""
    return planted.fingerprint(planted.DERIVED[how](tensors_of(seed)), None)


class Family:
    """The fingerprints of a service, which tests put and delete as the service itself does."""

    def __init__(self, app: AppHarness) -> None:
        self.app = app
        self._fingerprints = app.services[FingerprintService]
        self.keeper = app.services[AnatomyKeeper]
        self.keeper.delay = timedelta(0)

    def put(
        self,
        name: str,
        fingerprint: Fingerprint,
        *,
        stated_by: StatedBy = "client",
        facts: Facts = NO_FACTS,
    ) -> FingerprintRecord:
        prepared = self._fingerprints.prepare(fingerprint)
        with self.app.database.writing() as session:
            return self._fingerprints.put(
                session, self.app.tenant, name, prepared, stated_by=stated_by, facts=facts
            ).record

    def put_all(self, made: Mapping[str, Fingerprint], facts: Facts = NO_FACTS) -> None:
        """Store what clients state, all in one transaction."""
        puts = [
            FingerprintPut(name, self._fingerprints.prepare(each), "client", facts)
            for name, each in made.items()
        ]
        with self.app.database.writing() as session:
            stored = self._fingerprints.put_each(session, self.app.tenant, puts)
        assert all(isinstance(each, Stored) for each in stored)

    def delete(self, name: str) -> None:
        with self.app.database.writing() as session:
            self._fingerprints.delete(session, self.app.tenant, name)

    def work(self) -> None:
        """Carry out all jobs."""
        self.app.worker.run_all()

    def anatomy(self, model: str, **params: Any) -> dict[str, Any]:
        return self._get(f"/v1/fingerprints/{model}/anatomy", params)

    def relatives(self, model: str, **params: Any) -> dict[str, Any]:
        return self._get(f"/v1/fingerprints/{model}/relatives", params)

    def pairs(self, model: str, other: str) -> dict[str, Any]:
        return self._get(f"/v1/fingerprints/{model}/tensors", {"with": other})

    def given(self, fingerprint: Fingerprint, **params: Any) -> dict[str, Any]:
        """The anatomy of a fingerprint that is not stored."""
        answer = self.app.http.post(
            "/v1/anatomy", content=fingerprint.to_bytes(), headers=BODY, params=params
        )
        assert 200 == answer.status_code, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def _get(self, path: str, params: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.app.http.get(path, params=params)
        assert 200 == answer.status_code, answer.text
        found: dict[str, Any] = answer.json()
        return found
