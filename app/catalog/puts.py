"""What may stand under a name: what is put there, and the rules it is held to.

Owns no session and writes nothing: ``ingest`` asks, and stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from app.catalog.repositories import models
from app.catalog.revision_recorder import Drift
from app.index.buckets.protocol import ModelRecord, SpaceRecord
from modelkin.core.sketching.signature import Signature, value_dtype
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.support import Support
from modelkin.errors import PreconditionFailed, SpaceMismatch, SupportExists

__all__ = [
    "BandValues",
    "PreparedSupport",
    "Put",
    "Stored",
    "bytes_of",
    "check_match",
    "etag_of",
    "require_same_space",
    "require_size",
    "signature_content",
]


@dataclass(frozen=True, slots=True)
class BandValues:
    """What a support is banded by under one version of a stop-list.

    Attributes:
        version: of the list.
        minhash: little-endian values; None where the list leaves nothing.
    """

    version: int
    minhash: bytes | None


@dataclass(frozen=True, slots=True)
class PreparedSupport:
    """A support ready to be recorded: signed, and packed for overlap."""

    support: Support
    signature: bytes
    packed: bytes
    blob_key: str | None
    """Where the packed form already lies; None if the model holds this very support."""
    damaged: str | None
    """The blob of this very support, if it is lost or not what was stored."""
    band_values: BandValues | None = None
    """In a space with a stop-list; None in one without."""
    drift: Drift | None = None
    """How near it is to what the model was; None where there was no model, or this very support."""


@dataclass(frozen=True, slots=True)
class Put:
    """What is to stand under a name; tags and attributes that are None stay as they are."""

    name: str
    content: PreparedSupport | Signature
    tags: Sequence[str] | None = None
    attributes: dict[str, Any] | None = None
    if_match: str | None = None
    sketch: Sketch | None = None
    """Beside a signature; None leaves the one that a signature has."""

    @property
    def drift(self) -> Drift | None:
        """What was measured of it before the lock."""
        return self.content.drift if isinstance(self.content, PreparedSupport) else None


@dataclass(frozen=True, slots=True)
class Stored:
    """A model as it stands now, and what the put did to it."""

    model: ModelRecord
    status: Literal["created", "replaced", "unchanged"]


def etag_of(model: ModelRecord) -> str:
    """The entity tag of a model as it stands: it changes with every change of the model.

    It tells nothing of other tenants, as an id would: the version is the space's own. A space that
    was deleted and made again counts from 0, so the tag holds the time of the model's making too.
    """
    made = model.created_at.timestamp()
    return f'"{model.version:x}-{model.revision:x}-{round(made * 1e6):x}"'


def require_same_space(space: SpaceRecord, signature: Signature) -> None:
    """:class:`SpaceMismatch` unless ``signature`` compares with the space's."""
    spec = space.signature
    for what, theirs, ours in (
        ("scheme", signature.scheme, spec.scheme),
        ("num_perm", signature.num_perm, spec.num_perm),
        ("seed", signature.seed, spec.seed),
        ("num_parameters", signature.num_parameters, space.num_parameters),
    ):
        if theirs != ours:
            raise SpaceMismatch(
                f"the signature's {what} is {theirs}, that of space {space.name!r} is {ours}"
            )


def require_size(space: SpaceRecord, k: int) -> None:
    """:class:`SpaceMismatch` where K is fixed and a support is larger; smaller ones are legal.

    Fewer entries than K may be positive, and what is not important never enters a support.
    """
    most = space.support_size.k
    if most is not None and k > most:
        raise SpaceMismatch(
            f"the support has {k} indices, and space {space.name!r} fixes K at {most}: select "
            f"the {most} most important"
        )


def signature_content(
    space: SpaceRecord,
    name: str,
    signature: Signature,
    current: ModelRecord | None,
    signatures: dict[int, bytes],
) -> models.Content | None:
    """What a model becomes that sends a signature alone; None where it is that already.

    Args:
        space: where.
        name: of the model.
        signature: what is put.
        current: the model as it is, or None.
        signatures: stored values by the ids of their models.

    Raises:
        SpaceMismatch: its scheme, number of values, seed or M is not the space's, or its K is
            larger than the one the space fixes.
        SupportExists: the model has a support, whose signature the service computes.
    """
    require_same_space(space, signature)
    require_size(space, signature.support_size)
    values = bytes_of(signature)
    if current is not None:
        if current.kind == "support":
            raise SupportExists(
                f"model {name!r} has a support, and its signature is computed from that: "
                f"read it here, or delete the model first"
            )
        if signatures.get(current.id) == values and current.support_size == signature.support_size:
            return None
    return models.Content(
        kind="signature",
        support_size=signature.support_size,
        digest=None,
        blob_key=None,
        signature=values,
    )


def bytes_of(signature: Signature) -> bytes:
    """The values as they are stored, little-endian."""
    dtype = np.dtype(value_dtype(signature.scheme)).newbyteorder("<")
    return signature.values.astype(dtype, copy=False).tobytes()


def check_match(current: ModelRecord | None, if_match: str | None, name: str) -> None:
    """RFC 9110, 13.1.1: ``*`` asks that there is a model, tags that it is one of those."""
    if if_match is None:
        return
    if current is None:
        raise PreconditionFailed(f"If-Match was sent, and there is no model {name!r}")
    wanted = [tag.strip() for tag in if_match.split(",")]
    if "*" not in wanted and etag_of(current) not in wanted:
        raise PreconditionFailed(
            f"model {name!r} has changed: it is {etag_of(current)} now, If-Match said {if_match}"
        )
