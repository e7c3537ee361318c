"""Models of a space, their weights, and the items and results of bulk uploads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.core.weights import Weights
from modelkin.types.search import Ranking
from modelkin.types.vocabulary import BaseRelation, BulkStatus, ModelKind

__all__ = [
    "BulkItem",
    "BulkResult",
    "BulkSummary",
    "DuplicateModel",
    "DuplicateWeights",
    "ModelInfo",
    "StatedWeights",
]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelInfo(Printed):
    """A model as the service knows it: everything about it but its indices.

    Attributes:
        kind: ``"support"``, or ``"signature"`` for a signature alone.
        support_size: K.
        digest: the digest of the support, ``"sha256:..."``; None for a signature alone.
        revision: 1 for the first content of this name, one more for each other content since.
        version: that of the space when the model last changed.
        base_model: the declared base; None without one, and where there are several.
        base_models: all declared bases, as of a merge.
        base_relation: what the model is said to be of its bases: ``"finetune"``, ``"adapter"``,
            ``"quantized"``, ``"merge"``, or None.
        attributes: the caller's own JSON values.
        verified: the signature was computed by the service from the support.
        etag: for ``if_match``, as the service made it; only an answer about this model alone has
            one, a listing does not.
        note: a note on an upload that stated no importance to a space that has one, so that nothing
            was compared; None of all others.
    """

    _listed: ClassVar[tuple[str, ...]] = (
        *("model", "kind", "support_size", "base_model", "tags", "updated_at"),
    )
    space: str
    model: str
    kind: ModelKind
    support_size: int
    digest: str | None = None
    revision: int
    version: int
    tags: tuple[str, ...]
    attributes: Mapping[str, Any] = field(hash=False)
    source: str | None = None
    base_model: str | None = None
    base_models: tuple[str, ...] = ()
    base_relation: BaseRelation | None = None
    verified: bool
    created_at: Moment
    updated_at: Moment
    etag: str | None = field(default=None, compare=False)
    note: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StatedWeights(Printed, Weights):
    """The weights of a stored model.

    Attributes:
        stated_by: ``"hub"`` where the service read the file, ``"client"`` where a client said so.
        revision: the revision of the model whose support was made from them.
    """

    stated_by: Literal["hub", "client"]
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateModel:
    """One of several models with the same weights.

    Attributes:
        files: how many files hold them; ``size`` bytes in all.
        dtypes: parameters by dtype.
        stated_by: as of :class:`StatedWeights`.
        says: how its files differ from those of the first, such as ``"the same weights as org/base,
            in 15 shards instead of 30"``; None for the first.
    """

    space: str
    model: str
    files: int
    size: int
    dtypes: Mapping[str, int] = field(hash=False)
    stated_by: Literal["hub", "client"]
    stored_at: Moment
    says: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DuplicateWeights(Ranking[DuplicateModel]):
    """The models that have the same weights, the one that was stored first ahead.

    Attributes:
        digest: the digest of their weights.
        items: the models; the object itself is a sequence of them too.
        truncated: whether there are more than these.
    """

    _row: ClassVar[type[Any]] = DuplicateModel
    digest: str
    items: tuple[DuplicateModel, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class BulkItem:
    """A model for ``put_many``.

    Attributes:
        model: the name of the model.
        content: the model's support, a signature alone, or in a space of these the subspace of its
            data.
        tags: replace the model's tags; None leaves them as they are.
        attributes: replace the model's attributes; None leaves them as they are.
        sketch: beside a signature; None leaves the one that this signature has.
        source: the model's origin; None leaves it as it is.
        base_model: the model that it derives from; None leaves it as it is.
    """

    model: str
    content: Support | Signature | Subspace
    tags: Iterable[str] | None = None
    attributes: Mapping[str, Any] | None = field(default=None, hash=False)
    sketch: Sketch | None = None
    source: str | None = None
    base_model: str | None = None


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result of one item of ``put_many``.

    Attributes:
        status: ``"created"``; ``"replaced"``, where anything about the model changed;
            ``"unchanged"``; ``"skipped"``, where an earlier run had it acknowledged; ``"failed"``.
        code: why it failed, the service's ``code``: ``"support_exists"`` for one; else None.
        detail: the reason in words.
        note: as of :class:`ModelInfo`.
    """

    model: str
    status: BulkStatus
    code: str | None = None
    detail: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class BulkSummary(Printed):
    """The results of ``put_many``, counted.

    Attributes:
        failures: the first 1,000 items that failed, in the order of the answers.
        note: a caveat in words, of the first item that has one; else None.
    """

    created: int
    replaced: int
    unchanged: int
    skipped: int
    failed: int
    failures: tuple[BulkResult, ...]
    note: str | None = None

    @property
    def total(self) -> int:
        """How many items there were."""
        return self.created + self.replaced + self.unchanged + self.skipped + self.failed
