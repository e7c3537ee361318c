"""A service with rows that a test plants, on each database."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from app.infra.db.tables.anatomies import AnatomyRow
from app.infra.db.tables.catalog import ModelRow
from app.infra.db.tables.findings import FindingRow
from app.infra.db.tables.fingerprints import FingerprintRow
from app.infra.db.tables.weights import ModelWeightsRow
from app.kinship.findings.records import RANKS
from app.models.spaces.service import SpaceService
from modelkin.core.kinship.lineage import LineageVerdict
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend

NOW = datetime(2026, 11, 1, tzinfo=UTC)


class Planter:
    """Writes rows of models as a hub would have them, without supports."""

    def __init__(self, app: AppHarness) -> None:
        self.app = app
        self._ids = itertools.count(1)

    def model(
        self, space: str, name: str, *, base: str | None = None, at: datetime = NOW, **more: Any
    ) -> int:
        """A model of a space, whose name may be in others, too."""
        id_ = next(self._ids)
        row = {
            "id": id_,
            "space_id": self.space_id(space),
            "name": name,
            "kind": "signature",
            "support_size": 1,
            "revision": 1,
            "version": id_,
            "attributes": {},
            "base_model": base,
            "created_at": at,
            "updated_at": at,
            "content_id": 0,
        }
        self._write(ModelRow, {**row, **more})
        return id_

    def finding(
        self, model: int, space: str, name: str, verdict: LineageVerdict, base: str
    ) -> None:
        """The kept verdict on a model."""
        row = {
            "model_id": model,
            "tenant_id": self.app.tenant.id,
            "space_id": self.space_id(space),
            "name": name,
            "rank": RANKS[verdict],
            "base": base,
            "asked": 1,
            "answered": 1,
            "found_at": NOW,
        }
        self._write(FindingRow, row)

    def weights(self, model: int, digest: bytes, revision: int = 1) -> None:
        """The digest of a model's weights."""
        row = {
            "model_id": model,
            "revision": revision,
            "digest": digest.ljust(32, b"\0"),
            "tensors": b"",
            "files": 1,
            "size": 1,
            "dtypes": {},
            "stated_by": "hub",
        }
        self._write(ModelWeightsRow, {**row, "stated_at": NOW})

    def fingerprint(
        self,
        name: str,
        *,
        base: int | None = None,
        verdict: str = "derived",
        at: datetime = NOW,
    ) -> int:
        """A fingerprint with its anatomy."""
        id_ = next(self._ids)
        row = {
            "id": id_,
            "name": name,
            "revision": 1,
            "scheme": "lines1",
            "scale": 0,
            "digest": f"sha256:{id_:064x}",
            "stated_by": "hub",
            "tensors": 1,
            "keys": 1,
            "lines": {},
            "parameters": 1,
            "size": 1,
            "version": id_,
        }
        self._write(FingerprintRow, {**row, "created_at": at, "changed_at": at})
        anatomy = {"fingerprint_id": id_, "is_changed": False, "verdict": verdict, "made_at": NOW}
        said = [{"relation": "average", "models": [], "sentence": f"what {name} is"}]
        self._write(AnatomyRow, {**anatomy, "base_id": base, "relations": said})
        return id_

    def space_id(self, name: str) -> int:
        """The id of a space, which is made if need be."""
        answer = self.app.http.post("/v1/spaces", json={"name": name, "num_parameters": 1000})
        assert answer.status_code in {200, 201}
        with self.app.database.reading() as session:
            return self.app.services[SpaceService].get(session, self.app.tenant, name).id

    def _write(self, row: Any, values: dict[str, Any]) -> None:
        with self.app.database.writing() as session:
            session.execute(insert(row.__table__), {**values, "tenant_id": self.app.tenant.id})


@pytest.fixture
def app(tmp_path: Path, backend: Backend) -> Iterator[AppHarness]:
    """An empty service."""
    with open_app(tmp_path, backend) as app:
        yield app


@pytest.fixture
def plant(app: AppHarness) -> Planter:
    """Plants rows in it."""
    return Planter(app)
