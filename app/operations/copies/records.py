"""Records of a verification: plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.models.spaces.records import SpaceRecord

__all__ = ["Finding", "ModelState", "StoredModel", "StoredRevision", "name_of"]


def name_of(space: SpaceRecord) -> str:
    """The name and the id of a space: other tenants may have one of the same name."""
    return f"space {space.name!r} ({space.id})"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a check has found.

    Attributes:
        subject: the place: a space, a model, a table or a file.
        problem: the fault, and what to do about it.
        repair: a function that mends it from intact data; None if only a backup or a client can.
    """

    subject: str
    problem: str
    repair: Callable[[], None] | None = None

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """The row of a model, as far as it can be verified."""

    id: int
    tenant_id: int
    space_id: int
    name: str
    kind: str
    support_size: int
    digest: str | None
    blob_key: str | None
    blob_size: int | None
    revision: int
    version: int


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """The row of a revision; ``minhash`` is the signature of the first revision."""

    revision: int
    support_size: int
    digest: str | None
    blob_key: str | None
    blob_size: int | None
    minhash: bytes | None


@dataclass(frozen=True, slots=True)
class ModelState:
    """The stored data of one model, at one moment.

    Attributes:
        model: the model's row.
        revisions: the rows of its revisions, ascending.
        signature: little-endian values; None if they are missing.
        tensor_counts: the counts as stored; None without any.
        sketch: the sketch in the native format; None without one.
    """

    model: StoredModel
    revisions: tuple[StoredRevision, ...]
    signature: bytes | None
    tensor_counts: bytes | None
    sketch: bytes | None
