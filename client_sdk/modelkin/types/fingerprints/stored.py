"""Fingerprints as a service stores them: what is known of each beside its keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.types.vocabulary import BaseRelation

__all__ = ["FingerprintItem", "StoredFingerprint"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoredFingerprint(Printed):
    """The stored fingerprint of a model name, without its keys.

    Attributes:
        model: the name, which is in no space.
        revision: 1 for the first of its name; each other content has the next.
        version: grows with every change of any fingerprint of the tenant.
        scheme: how its keys are made.
        scale: of the distinct keys one in so many is kept.
        digest: equal for equal fingerprints alone.
        stated_by: ``"hub"`` where the service read the file, ``"client"`` where a client sent it.
        tensors: how many it has; equal ones are one.
        keys: how many it keeps.
        lines: the distinct lines of the checkpoint, by length.
        parameters: how many its tensors have.
        size: its bytes.
        base_models: what the model is said to be made from; as all that follows, unchecked.
        base_relation: what it is said to be of them.
        license: as a hub writes it.
        published_at: when the model was published.
        file_bytes: the bytes of the files that it was made from.
        source: the id of the source that it came by, which may be gone; None for a client's.
        hub_revision: the hub's revision of the file.
        etag: the version for ``if_match``; None in listings.
    """

    _listed: ClassVar[tuple[str, ...]] = (
        *("model", "stated_by", "base_models", "parameters", "tensors", "updated_at"),
    )
    model: str
    revision: int
    version: int
    scheme: str
    scale: int
    digest: str
    stated_by: Literal["hub", "client"]
    tensors: int
    keys: int
    lines: Mapping[int, int] = field(hash=False)
    parameters: int
    size: int
    base_models: tuple[str, ...] = ()
    base_relation: BaseRelation | None = None
    license: str | None = None
    published_at: Moment | None = None
    file_bytes: int | None = None
    source: str | None = None
    hub_revision: str | None = None
    created_at: Moment
    updated_at: Moment
    etag: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class FingerprintItem:
    """A fingerprint for ``fingerprints.put_many``, with what is said of it.

    Attributes:
        model: the name of the model.
        fingerprint: of its checkpoint.
        base_models: the models that it is made from.
        base_relation: what it is of them.
        license: as a hub writes it.
        published_at: when the model was published, with an offset.
        file_bytes: the bytes of the files that the fingerprint was made from.
    """

    model: str
    fingerprint: Fingerprint
    base_models: Iterable[str] = ()
    base_relation: BaseRelation | None = None
    license: str | None = None
    published_at: datetime | None = None
    file_bytes: int | None = None
