"""A service that stores planted fingerprints, and what they are of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import pytest

from app.fingerprints.records import Facts, Stored
from app.fingerprints.service import FingerprintService
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.sdk.core.fingerprints.planted import DERIVED, fingerprint, model
from tests.sdk.core.fingerprints.relatives import changed
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend

SCALE: Final = 8
OLD, NEW = datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 6, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """The service of a file, on each database."""
    with open_keyed_app(tmp_path_factory.mktemp("app"), backend) as made:
        yield made


@cache
def planted(name: str) -> Fingerprint:
    """A base, a stranger, and what was made of the base."""
    base = model(0)
    if name in DERIVED:
        tensors = DERIVED[name](base)
    elif name == "mixed":
        of_stranger = [each for each in base if each.startswith(("layers.2.", "layers.3."))]
        tensors = base | {each: model(1)[each] for each in of_stranger}
    elif name in ("tuned", "sibling"):
        tensors = changed(base, 3 if name == "tuned" else 4)
    else:
        tensors = {"base": base, "stranger": model(1)}[name]
    return fingerprint(tensors).at(SCALE)


class Fingerprints:
    """The fingerprints of the default tenant of a service.

    Args:
        app: the service.
    """

    def __init__(self, app: AppHarness) -> None:
        self.app = app
        self._service = app.services[FingerprintService]

    def put(
        self,
        name: str,
        fingerprint: Fingerprint,
        *,
        stated_by: Any = "client",
        source_id: Any = None,
        **facts: Any,
    ) -> Stored:
        """Store a fingerprint with statements about it."""
        prepared = self._service.prepare(fingerprint)
        with self.app.database.writing() as session:
            return self._service.put(
                session,
                self.app.tenant,
                name,
                prepared,
                stated_by=stated_by,
                source_id=source_id,
                facts=Facts(**facts),
            )

    def delete(self, name: str) -> None:
        """Remove a fingerprint."""
        with self.app.database.writing() as session:
            self._service.delete(session, self.app.tenant, name)

    def lineage(self, name: str) -> dict[str, Any]:
        """The lineage of a stored fingerprint."""
        answer = self.app.http.get(f"/v1/fingerprints/{name}/lineage")
        assert 200 == answer.status_code, answer.text
        found: dict[str, Any] = answer.json()
        return found


def removed(made: Fingerprints) -> Iterator[Fingerprints]:
    """Yield them, and remove all that a test has left."""
    yield made
    with made.app.database.reading() as session:
        service = made.app.services[FingerprintService]
        names = [each.name for each in service.list(session, made.app.tenant, limit=100).items]
    for name in names:
        made.delete(name)


@pytest.fixture
def stored(app: AppHarness) -> Iterator[Fingerprints]:
    """No fingerprint yet."""
    yield from removed(Fingerprints(app))


def words(found: Mapping[str, Any]) -> tuple[str, str | None, str | None]:
    """The verdict of a lineage, its reason, and the word for what was measured."""
    return found["verdict"], found["reason"], found["relation"]
