"""Puts, and the rules of what may be stored under a name.

This module uses no session and writes nothing; :mod:`app.models.catalog.writer` stores puts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.infra.errors import SupportExists, WrongKind
from app.infra.preconditions import Precondition
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import model_writes
from app.models.catalog.revision_recorder import Drift
from app.models.index.banding import signature_bytes
from app.models.spaces.origins import NOTHING_STATED, StatedOrigin
from app.models.spaces.records import SpaceRecord
from modelkin.core.matching.correspondence import MIN_PART
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import PayloadTooLarge, SpaceMismatch

__all__ = [
    "PreparedSupport",
    "Put",
    "Stored",
    "distinct_runs",
    "require_covering",
    "require_met",
    "require_same_order",
    "require_same_space",
    "require_fitting_subspace",
    "require_size",
    "signature_content",
    "subspace_content",
]


@dataclass(frozen=True, slots=True)
class PreparedSupport:
    """A support ready to be recorded: signed, and packed for overlap."""

    support: Support
    signature: bytes
    packed: bytes
    blob_key: str | None
    """The blob of the packed form; None if the model holds this very support."""
    damaged: str | None
    """The blob of this very support, if it is lost or damaged."""
    tensor_counts: bytes | None = None
    """The number of its indices in each tensor; None in a space without a layout."""
    drift: Drift | None = None
    """The distance from the model's past; None for a new model, or for this very support."""


@dataclass(frozen=True, slots=True)
class Put:
    """Data to store under a name; tags and attributes stay as they are if ``None``."""

    name: str
    content: PreparedSupport | Signature | Subspace
    tags: Sequence[str] | None = None
    attributes: dict[str, Any] | None = None
    source: str | None = None
    """The source; None keeps the model's, as for ``base_model``."""
    base_model: str | None = None
    precondition: Precondition | None = None
    sketch: Sketch | None = None
    """Sent beside a signature; None keeps the sketch of an equal signature."""
    origin: StatedOrigin = NOTHING_STATED
    """The client's statement about the indices."""

    @property
    def drift(self) -> Drift | None:
        """The drift that was measured before the lock."""
        return self.content.drift if isinstance(self.content, PreparedSupport) else None


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored model, and the effect of the put."""

    model: ModelRecord
    status: Literal["created", "replaced", "unchanged"]


def distinct_runs(puts: Iterable[Put]) -> Iterator[list[Put]]:
    """Runs of distinct names: the second of two puts must see the result of the first."""
    run: dict[str, Put] = {}
    for put in puts:
        if put.name in run:
            yield list(run.values())
            run = {}
        run[put.name] = put
    yield list(run.values())


def require_met(precondition: Precondition | None, name: str, current: ModelRecord | None) -> None:
    """Check the model, if there is one, against a precondition, if there is one.

    Raises:
        PreconditionFailed: the model does not meet it.
    """
    if precondition is not None:
        precondition(name, None if current is None else current.version_tag)


def require_same_space(space: SpaceRecord, signature: Signature) -> None:
    """Raise :class:`SpaceMismatch` unless ``signature`` compares with the space's."""
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


def require_covering(space: SpaceRecord, support: Support) -> None:
    """:class:`SpaceMismatch` unless a support covers at least half of the parameters of its space.

    A space without a layout has no tensors that a model may lack, and a blinded one hides them.
    """
    if not support.gaps:
        return
    if space.layout_digest is None or space.blinding is not None:
        raise SpaceMismatch(
            f"space {space.name!r} has no layout, so a support cannot lack tensors of it: send one "
            f"without gaps"
        )
    if support.gaps.size > MIN_PART * support.num_parameters:
        raise SpaceMismatch(
            f"the support covers {1 - support.gaps.size / support.num_parameters:.0%} of the "
            f"parameters of space {space.name!r}, and {MIN_PART:.0%} is the least: give the model "
            f"a space of its own layout"
        )


def require_same_order(space: SpaceRecord, support: Support) -> None:
    """:class:`SpaceMismatch` unless a support has octaves where those of the space have them."""
    if space.ordered and not support.ordered:
        raise SpaceMismatch(
            f"space {space.name!r} holds ordered supports, and this one has no octaves: make it "
            f"with put_importance or select_support(..., ordered=True), and send it in the native "
            f"format"
        )
    if support.ordered and not space.ordered:
        raise SpaceMismatch(
            f"the support is ordered, and space {space.name!r} holds plain ones: send "
            f"support.unordered(), or create a space with ordered"
        )


def require_size(space: SpaceRecord, k: int) -> None:
    """Raise :class:`SpaceMismatch` if K is fixed and a support is larger; smaller ones are legal.

    Fewer entries than K may be positive, and a support holds only important indices.
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
) -> model_writes.Content | None:
    """Return the new content of a model with only a signature; None if the model has it already.

    Args:
        current: the model as stored, or None.
        signatures: stored values by the ids of their models.

    Raises:
        SpaceMismatch: its scheme, number of values, seed or M is not the space's, its K is larger
            than the fixed K of the space, or the space is ordered.
        SupportExists: the model has a support, whose signature the service computes.
    """
    require_same_space(space, signature)
    if space.ordered:
        raise SpaceMismatch(
            f"space {space.name!r} holds ordered supports, and a signature has no octaves: send "
            f"the support of select_support(..., ordered=True)"
        )
    require_size(space, signature.support_size)
    values = signature_bytes(signature)
    if current is not None:
        if current.kind == "support":
            raise SupportExists(
                f"model {name!r} has a support, and its signature is computed from that: "
                f"read it here, or delete the model first"
            )
        if signatures.get(current.id) == values and current.support_size == signature.support_size:
            return None
    return model_writes.Content(
        kind="signature",
        support_size=signature.support_size,
        digest=None,
        blob_key=None,
        signature=values,
    )


def require_fitting_subspace(space: SpaceRecord, subspace: Subspace) -> None:
    """Require that a subspace compares with the subspaces of a space.

    Raises:
        WrongKind: the space holds supports.
        SpaceMismatch: its m, constant or weighting differs.
        PayloadTooLarge: it has more columns than the space takes.
    """
    spec = space.subspaces
    if spec is None:
        raise WrongKind(f"space {space.name!r} holds supports, and this is a data subspace")
    for what, theirs, ours in (
        ("num_features", subspace.num_features, space.num_parameters),
        ("constant", subspace.constant, spec.constant),
        ("weighting", subspace.weighting, spec.weighting),
    ):
        if theirs != ours:
            raise SpaceMismatch(
                f"the subspace's {what} is {theirs}, that of space {space.name!r} is {ours}"
            )
    if subspace.num_columns > spec.max_columns:
        raise PayloadTooLarge(
            f"the subspace has {subspace.num_columns} columns, and space {space.name!r} takes "
            f"{spec.max_columns}: fit it with lower ranks"
        )


def subspace_content(
    space: SpaceRecord, subspace: Subspace, current: ModelRecord | None
) -> model_writes.Content | None:
    """Return the content of a model with a data subspace; None if the model has it already.

    Raises:
        WrongKind, SpaceMismatch, PayloadTooLarge: see :func:`require_fitting_subspace`.
    """
    require_fitting_subspace(space, subspace)
    if current is not None and current.digest == subspace.digest:
        return None
    return model_writes.Content(
        kind="signature",
        support_size=subspace.num_columns,
        digest=subspace.digest,
        blob_key=None,
        signature=subspace.to_bytes(),
    )
