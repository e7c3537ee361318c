"""Queries for revisions: the past contents of models, and their overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, bindparam, delete, insert, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.tables.catalog import RevisionRow
from app.models.catalog.records import ModelRecord, RevisionRecord, SelfOverlap
from app.models.catalog.repositories import model_writes, models
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page

__all__ = [
    "FirstRevision",
    "NewRevision",
    "ModelPast",
    "KeptSupport",
    "blob_keys",
    "blobs_of",
    "drop_blobs",
    "drop_rows",
    "find_revision",
    "first_revision",
    "insert_revisions",
    "kept_revisions",
    "list_revisions",
    "total_bytes",
    "move_blob",
    "pasts",
    "last_supports_before",
]

_IDS_PER_STATEMENT = 500  # below every backend's limit of bound parameters
_ROWS = RevisionRow.metadata.tables[RevisionRow.__tablename__]
# An update of the table and not of the class: within every change it has to be quick.
_DROP = (
    update(_ROWS)
    .where(_ROWS.c.model_id == bindparam("of_model"), _ROWS.c.revision == bindparam("number"))
    .values(blob_key=None, blob_size=None)
)


@dataclass(frozen=True, slots=True)
class FirstRevision:
    """The first known revision of a model, with which later ones are compared."""

    revision: int
    support_size: int
    digest: str | None
    blob_key: str | None
    signature: bytes


@dataclass(frozen=True, slots=True)
class KeptSupport:
    """The support of a revision: its blob, and the size of that in bytes if it is known."""

    revision: int
    blob_key: str
    blob_size: int | None


@dataclass(frozen=True, slots=True)
class ModelPast:
    """The past of a model, as far as its next revision depends on it.

    Attributes:
        model: the present row of the model.
        signature: the little-endian values of its signature; None if they are not needed.
        first: the first known revision; None if the present content is the first.
        kept: the revisions whose supports are kept.
    """

    model: ModelRecord
    signature: bytes | None
    first: FirstRevision | None
    kept: tuple[KeptSupport, ...]


@dataclass(frozen=True, slots=True)
class NewRevision:
    """The next revision of a model.

    Attributes:
        model: the model as read under the lock.
        past: its past until now.
        previous: the overlap with the previous content.
        first: the overlap with the first known content.
    """

    model: ModelRecord
    past: ModelPast
    content: model_writes.Content
    previous: SelfOverlap
    first: SelfOverlap


def pasts(
    session: Reader, present: Sequence[ModelRecord], *, signatures: bool
) -> dict[int, ModelPast]:
    """Return the pasts of these models, by id.

    Args:
        session: a session of any kind.
        signatures: whether to read all signatures; else only of models whose present content is the
            first.
    """
    ids = [model.id for model in present]
    firsts: dict[int, FirstRevision] = {}
    kept: dict[int, list[KeptSupport]] = {}
    for row in _first_or_kept_rows(session, ids):
        if row.minhash is not None:
            firsts[row.model_id] = FirstRevision(
                row.revision, row.support_size, row.digest, row.blob_key, row.minhash
            )
        if row.blob_key is not None:
            kept.setdefault(row.model_id, []).append(
                KeptSupport(row.revision, row.blob_key, row.blob_size)
            )
    wanted = ids if signatures else [model_id for model_id in ids if model_id not in firsts]
    values = models.signatures_by_id(session, wanted)
    return {
        model.id: ModelPast(
            model,
            values.get(model.id),
            firsts.get(model.id),
            tuple(kept.get(model.id, ())),
        )
        for model in present
    }


def insert_revisions(session: Writer, new: Sequence[NewRevision]) -> None:
    """Insert the next revisions of distinct models, and the present one of a model without a row.

    The caller holds the space's lock, and the models still have the contents of their pasts.
    """
    now = datetime.now(UTC)
    rows = []
    for revision in new:
        model = revision.model
        if revision.past.first is None:
            rows.append(_row_of_present(model) | {"minhash": revision.past.signature})
        rows.append(
            _row(model.id, model.revision + 1, revision.content, now)
            | {
                "previous_overlap": revision.previous.jaccard,
                "previous_exact": revision.previous.exact,
                "first_overlap": revision.first.jaccard,
                "first_exact": revision.first.exact,
            }
        )
    session.execute(insert(_ROWS), rows)


def total_bytes(session: Reader, dropped: Mapping[tuple[int, int], KeptSupport]) -> int:
    """The bytes of some supports, by model and number.

    Sizes that were not known when the supports were read may be known by now.
    """
    total = 0
    for (of, number), kept in dropped.items():
        size = kept.blob_size
        if size is None:
            row = session.get(RevisionRow, (of, number), populate_existing=True)
            size = None if row is None else row.blob_size
        total += size or 0
    return total


def drop_blobs(session: Writer, dropped: Iterable[tuple[int, int]]) -> None:
    """Record that the supports of some revisions, by model and number, are no longer kept."""
    session.execute(_DROP, [{"of_model": of, "number": number} for of, number in dropped])


def drop_rows(session: Writer, model_id: int, until: int) -> None:
    """Delete the revisions of a model up to ``until``, except the first."""
    session.execute(
        delete(RevisionRow)
        .where(
            RevisionRow.model_id == model_id,
            RevisionRow.revision <= until,
            RevisionRow.minhash.is_(None),
        )
        .execution_options(synchronize_session=False)
    )


def move_blob(session: Writer, model: ModelRecord, blob_key: str, blob_size: int) -> None:
    """Record that the present support of a model is in another blob."""
    session.execute(
        update(RevisionRow)
        .where(RevisionRow.model_id == model.id, RevisionRow.revision == model.revision)
        .values(blob_key=blob_key, blob_size=blob_size)
        .execution_options(synchronize_session=False)
    )


def list_revisions(
    session: Reader, model: ModelRecord, *, limit: int, cursor: str | None
) -> Page[RevisionRecord]:
    """The known revisions of the model, newest first."""
    query = select(RevisionRow).where(RevisionRow.model_id == model.id)
    if cursor is not None:
        query = query.where(RevisionRow.revision < _number(cursor))
    query = query.order_by(RevisionRow.revision.desc())
    count, more = page_length(session, query, limit)
    records = tuple(_record(row) for row in session.scalars(query.limit(count)))
    if not records and cursor is None:
        return Page((_record(RevisionRow(**_row_of_present(model))),), None)
    return page_of(records, more, lambda revision: revision.revision)


def find_revision(session: Reader, model: ModelRecord, number: int) -> RevisionRecord | None:
    """Return a revision, or None if it is unknown."""
    row = session.get(RevisionRow, (model.id, number))
    if row is not None:
        return _record(row)
    return _record(RevisionRow(**_row_of_present(model))) if number == model.revision else None


def first_revision(session: Reader, model: ModelRecord) -> int:
    """The number of the first known revision."""
    query = select(RevisionRow.revision).where(
        RevisionRow.model_id == model.id, RevisionRow.minhash.is_not(None)
    )
    found = session.scalar(query)
    return model.revision if found is None else found


def kept_revisions(session: Reader, model: ModelRecord) -> list[int]:
    """The numbers of the revisions whose supports are kept, ascending."""
    query = select(RevisionRow.revision).where(
        RevisionRow.model_id == model.id, RevisionRow.blob_key.is_not(None)
    )
    present = [model.revision] if model.blob_key is not None else []
    return sorted({*session.scalars(query), *present})


def last_supports_before(
    session: Reader, firsts: Mapping[int, int]
) -> dict[int, tuple[int, str | None, str]]:
    """K, digest and blob of the last kept support before a revision of each model, by model id."""
    found: dict[int, tuple[int, str | None, str]] = {}
    ids = list(firsts)
    for start in range(0, len(ids), _IDS_PER_STATEMENT):
        query = (
            select(
                RevisionRow.model_id,
                RevisionRow.revision,
                RevisionRow.support_size,
                RevisionRow.digest,
                RevisionRow.blob_key,
            )
            .where(
                RevisionRow.model_id.in_(ids[start : start + _IDS_PER_STATEMENT]),
                RevisionRow.blob_key.is_not(None),
            )
            .order_by(RevisionRow.revision)
        )
        for model_id, revision, size, digest, key in session.execute(query):
            if key is not None and revision < firsts[model_id]:
                found[model_id] = size, digest, key
    return found


def blobs_of(session: Reader, model: ModelRecord) -> dict[str, int | None]:
    """The blobs of the model's supports, the present one and those before, with their sizes."""
    query = select(RevisionRow.blob_key, RevisionRow.blob_size).where(
        RevisionRow.model_id == model.id
    )
    found = (*session.execute(query), (model.blob_key, model.blob_size))
    return {key: size for key, size in found if key is not None}


def blob_keys(session: Reader, keys: Iterable[str]) -> set[str]:
    """Return the ``keys`` that are the support of a revision."""
    wanted = list(keys)
    found: set[str | None] = set()
    for at in range(0, len(wanted), _IDS_PER_STATEMENT):
        some = wanted[at : at + _IDS_PER_STATEMENT]
        found.update(
            session.scalars(select(RevisionRow.blob_key).where(RevisionRow.blob_key.in_(some)))
        )
    return {key for key in found if key is not None}


def _first_or_kept_rows(
    session: Reader, ids: Sequence[int]
) -> Iterable[Row[int, int, int, str | None, str | None, int | None, bytes | None]]:
    """Return the rows of first revisions, and of revisions whose support is kept."""
    columns = (
        RevisionRow.model_id,
        RevisionRow.revision,
        RevisionRow.support_size,
        RevisionRow.digest,
        RevisionRow.blob_key,
        RevisionRow.blob_size,
        RevisionRow.minhash,
    )
    for at in range(0, len(ids), _IDS_PER_STATEMENT):
        yield from session.execute(
            select(*columns).where(
                RevisionRow.model_id.in_(ids[at : at + _IDS_PER_STATEMENT]),
                RevisionRow.minhash.is_not(None) | RevisionRow.blob_key.is_not(None),
            )
        )


def _row(
    model_id: int, number: int, content: ModelRecord | model_writes.Content, began: datetime
) -> dict[str, Any]:
    return {
        "model_id": model_id,
        "revision": number,
        "kind": content.kind,
        "support_size": content.support_size,
        "digest": content.digest,
        "blob_key": content.blob_key,
        "blob_size": content.blob_size,
        "minhash": None,
        "previous_overlap": None,
        "previous_exact": None,
        "first_overlap": 1.0,
        "first_exact": True,
        "created_at": began,
    }


def _row_of_present(model: ModelRecord) -> dict[str, Any]:
    """The row of a model whose present content is the first known one."""
    return _row(model.id, model.revision, model, _began(model))


def _began(model: ModelRecord) -> datetime:
    """The time of the present content; for later contents the last update is the best estimate."""
    return model.created_at if model.revision == 1 else model.updated_at


def _record(row: RevisionRow) -> RevisionRecord:
    previous = None
    if row.previous_overlap is not None:
        previous = SelfOverlap(row.previous_overlap, bool(row.previous_exact))
    return RevisionRecord(
        revision=row.revision,
        kind="support" if row.kind == "support" else "signature",
        support_size=row.support_size,
        digest=row.digest,
        blob_key=row.blob_key,
        previous=previous,
        first=SelfOverlap(row.first_overlap, row.first_exact),
        created_at=row.created_at,
    )


def _number(cursor: str) -> int:
    text = decode_cursor(cursor)
    if not text.isdecimal() or len(text) > 18:
        raise InvalidParameter(
            "this cursor was not given out by this listing: start again without one", field="cursor"
        )
    return int(text)
