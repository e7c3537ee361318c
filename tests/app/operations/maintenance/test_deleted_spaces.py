"""The deletion of a large space: gone for every query at once, its rows batch by batch."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, select

from app.infra.db.database import Database
from app.infra.db.tables.catalog import ModelRow, SignatureRow, SpaceRow
from app.infra.errors import SpaceNotFound
from app.infra.storage.file_blobs import FileBlobs
from app.models.catalog.repositories.model_writes import Content, NewModel, insert_models
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.models.spaces.repositories.support_sizes import count_reporters, put_report
from app.models.spaces.service import SpaceService
from app.models.spaces.terms import SpaceTerms
from app.operations.maintenance.blob_sizes import BlobSizes
from app.operations.maintenance.deleted_spaces import DeletedSpaces
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.tenants import ensure_tenant
from app.tenancy.quotas.repository import read_usage
from modelkin.core.sketching.banding import default_banding
from modelkin.types.spaces import SignatureSpec

SPEC = SignatureSpec("affine32", 4, 1)
DIGEST = "sha256:" + "0" * 64


class Spaces:
    """A tenant's spaces in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.writing() as session:
            self.tenant = Tenant(id=ensure_tenant(session, "t").id, name="t")

    def add(self, name: str, models: int) -> SpaceRecord:
        """A space with models, whose blobs have no size yet."""
        signature = np.arange(4, dtype="<u4").tobytes()
        with self.database.writing() as session:
            terms = SpaceTerms(9, None, SPEC, default_banding(SPEC.num_perm))
            made = spaces.insert_space(session, self.tenant, name, terms)
            assert made is not None
            new = [
                NewModel(f"m{i}", Content("support", 5, DIGEST, f"t/{made.id}/{i}", signature))
                for i in range(models)
            ]
            spaces.advance(session, made, by=models, supports=models, support_bytes=7 * models)
            insert_models(session, made, new, version=1)
        return self.one(name)

    def one(self, name: str) -> SpaceRecord:
        """A space by its name."""
        with self.database.reading() as session:
            return spaces.get_space(session, self.tenant, name)

    def delete(self, space: SpaceRecord) -> None:
        """Delete a space as a client does."""
        with self.database.writing() as session:
            SpaceService().delete(session, space)

    def rows(self, space: SpaceRecord) -> tuple[int, int, int]:
        """How many rows of the space, its models and all signatures there are."""
        with self.database.reading() as session:
            of = select(func.count()).select_from(ModelRow).where(ModelRow.space_id == space.id)
            itself = select(func.count()).select_from(SpaceRow).where(SpaceRow.id == space.id)
            signatures = select(func.count()).select_from(SignatureRow)
            return tuple(session.scalars(query).one() for query in (itself, of, signatures))  # type: ignore[return-value]


@pytest.fixture
def kept(database: Database, monkeypatch: pytest.MonkeyPatch) -> Spaces:
    """An empty database, where five models are deleted at once."""
    monkeypatch.setattr("app.models.spaces.service.MAX_MODELS_AT_ONCE", 5)
    monkeypatch.setattr("app.operations.maintenance.deleted_spaces.MAX_MODELS_AT_ONCE", 5)
    return Spaces(database)


def test_a_large_space_is_gone_at_once(kept: Spaces) -> None:
    """No query or quota sees it, no writer that read it before writes to it, its name is free."""
    large = kept.add("large", 12)
    with kept.database.writing() as session:
        put_report(session, large, reporter="r", k_star=5)
    kept.delete(large)
    assert (1, 12, 12) == kept.rows(large)
    with kept.database.reading() as session:
        assert 0 == count_reporters(session, kept.tenant.id)
        assert spaces.find_space_by_id(session, large.id) is None
        assert spaces.find_space(session, kept.tenant, f"/{large.id}") is None
        assert set() == spaces.space_ids(session)
        assert [] == [*spaces.all_spaces(session)]
        assert [] == [*spaces.list_spaces(session, kept.tenant, limit=9, cursor=None).items]
        assert 0 == spaces.count_spaces(session, kept.tenant.id)
        usage = read_usage(session, kept.tenant.id)
        assert (0, 0) == (usage.models, usage.support_bytes)
        with pytest.raises(SpaceNotFound, match=r"there is no space 'larg'$"):
            spaces.get_space(session, kept.tenant, "larg")
    with kept.database.writing() as session, pytest.raises(SpaceNotFound):
        spaces.lock_space(session, large)
    assert kept.add("large", 3).id > large.id


def test_its_rows_go_in_batches(kept: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a transaction of its own, the space with the last; other spaces stay."""
    large, other = kept.add("large", 12), kept.add("other", 7)
    kept.delete(large)
    left: list[int] = []
    delete_some = spaces.delete_retired

    def watched(*arguments: object) -> bool:
        left.append(kept.rows(large)[1])
        return delete_some(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(spaces, "delete_retired", watched)
    DeletedSpaces(kept.database).run_once(threading.Event())
    assert [12, 7, 2] == left
    assert (0, 0, 7) == kept.rows(large)
    assert (1, 7, 7) == kept.rows(other)
    DeletedSpaces(kept.database).run_once(threading.Event())
    assert [12, 7, 2] == left


def test_a_stop_comes_between_batches(kept: Spaces) -> None:
    """The next round, of whichever process, goes on."""
    large = kept.add("large", 12)
    kept.delete(large)
    stopping = threading.Event()
    stopping.set()
    DeletedSpaces(kept.database).run_once(stopping)
    assert (1, 12, 12) == kept.rows(large)


def test_a_small_space_goes_at_once(kept: Spaces) -> None:
    """With its rows, in the transaction."""
    small = kept.add("small", 5)
    kept.delete(small)
    assert (0, 0, 0) == kept.rows(small)


def test_blobs_of_a_deleted_space_are_not_measured_for_ever(kept: Spaces, tmp_path: Path) -> None:
    """Their rows are there still and get no sizes; the round ends."""
    large, other = kept.add("large", 12), kept.add("other", 1)
    kept.delete(large)
    stopping = threading.Event()
    late = threading.Timer(20, stopping.set)
    late.start()
    BlobSizes(kept.database, FileBlobs(tmp_path, "t")).run_once(stopping)
    late.cancel()
    assert not stopping.is_set()
    assert other.id == kept.one("other").id
