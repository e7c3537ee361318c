"""The database's side: the epoch of a space's buckets, and its history in order."""

from __future__ import annotations

import pytest

from app.infra.db.database import Database, Writer
from app.infra.errors import SpaceNotFound
from app.models.catalog.repositories.model_writes import (
    Content,
    NewModel,
    delete_model,
    insert_models,
    update_contents,
    update_metadata,
)
from app.models.catalog.repositories.models import get_model
from app.models.index.buckets.batching import split_into_steps
from app.models.index.repositories.epochs import ensure_bucket_epoch, history, renew_bucket_epoch
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import advance, delete_space, find_space, insert_space
from app.models.spaces.terms import SpaceTerms
from app.tenancy.auth.tenants import ensure_tenant
from modelkin.core.sketching.banding import default_banding
from modelkin.types.spaces import SignatureSpec

SPEC = SignatureSpec(scheme="affine32", num_perm=4, seed=1)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres_database", marks=pytest.mark.postgres)],
)
def database(request: pytest.FixtureRequest) -> Database:
    """Each of the two kinds."""
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def space(database: Database, request: pytest.FixtureRequest) -> SpaceRecord:
    """A new, empty space."""
    with database.writing() as session:
        tenant = ensure_tenant(session, "t")
        made = insert_space(
            session,
            tenant,
            request.node.name,
            SpaceTerms(
                num_parameters=100,
                layout=None,
                signature=SPEC,
                banding=default_banding(SPEC.num_perm),
            ),
        )
    assert made is not None
    return made


def put(session: Writer, space: SpaceRecord, name: str, signature: bytes) -> int:
    """A new model of the space; its id."""
    content = Content("signature", 5, None, None, signature)
    version = advance(session, space, signatures=1)
    [made] = insert_models(session, space, [NewModel(name, content)], version=version)
    return made.id


def test_a_new_space_has_no_epoch(database: Database, space: SpaceRecord) -> None:
    """Before the first build there is none; afterwards the space's record carries it."""
    assert space.bucket_epoch is None
    with database.writing() as session:
        epoch = ensure_bucket_epoch(session, space.id)
        tenant = ensure_tenant(session, "t")
    with database.reading() as session:
        found = find_space(session, tenant, space.name)
    assert found is not None
    assert epoch == found.bucket_epoch


def test_an_epoch_stays_until_it_is_renewed(database: Database, space: SpaceRecord) -> None:
    """Every caller gets the same epoch; a renewed epoch is another."""
    with database.writing() as session:
        first = ensure_bucket_epoch(session, space.id)
        assert first == ensure_bucket_epoch(session, space.id)
        renewed = renew_bucket_epoch(session, space.id)
        assert renewed == ensure_bucket_epoch(session, space.id)
    assert first != renewed


@pytest.mark.parametrize("ask", [ensure_bucket_epoch, renew_bucket_epoch])
def test_a_deleted_space_has_no_epoch(database: Database, space: SpaceRecord, ask: object) -> None:
    """A space that was deleted in between is not found."""
    assert callable(ask)
    with database.writing() as session:
        delete_space(session, space)
    with pytest.raises(SpaceNotFound), database.writing() as session:
        ask(session, space.id)


def test_a_history_is_in_order(database: Database, space: SpaceRecord) -> None:
    """New, changed, relabelled and removed models appear once each, by their last version."""
    with database.writing() as session:
        a, b, c = (put(session, space, name, name.encode() * 16) for name in "abc")
        first = get_model(session, space, "a")
        changed = Content("signature", 5, None, None, b"A" * 16)
        update_contents(session, [(first, changed, advance(session, space))])
        delete_model(session, get_model(session, space, "b"), version=advance(session, space))
        third = get_model(session, space, "c")
        update_metadata(session, third, version=advance(session, space), source="x")
    with database.reading() as session:
        whole, late = (list(history(session, space.id, since)) for since in (0, 5))
    assert [(4, a, b"A" * 16), (5, b, None), (6, c, b"c" * 16)] == whole
    assert whole[2:] == late


def test_a_history_splits_into_steps(database: Database, space: SpaceRecord) -> None:
    """``split_into_steps`` takes the history that the database returns."""
    with database.writing() as session:
        ids = [put(session, space, f"m{i}", b"x" * 16) for i in range(5)]
    with database.reading() as session:
        steps = list(split_into_steps(history(session, space.id, 0), 0, 5, max_step_size=2))
    assert [(0, 2), (2, 4), (4, 5)] == [(s.since, s.until) for s in steps]
    assert ids == [model_id for s in steps for model_id, _ in s.upserts]
