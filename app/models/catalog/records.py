"""Records of models and revisions: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from modelkin.core.kinship.lineage import BaseRelation

__all__ = [
    "DeclaredBases",
    "EVERY_MODEL",
    "MAX_ATTRIBUTE_FILTERS",
    "ModelFilter",
    "ModelOrder",
    "ModelRecord",
    "RevisionRecord",
    "SelfOverlap",
    "ShownKind",
    "StoredKind",
]


StoredKind = Literal["support", "signature"]
"""The stored form of a model. A data subspace is stored as a signature is, with a digest."""
ShownKind = Literal["support", "signature", "subspace"]
"""The kind of a model as its clients see it."""
ModelOrder = Literal["name", "newest", "oldest", "largest", "smallest", "most_revised"]
"""The orders of a listing: by name, last change, size of the support, or number of revisions."""


@dataclass(frozen=True, slots=True)
class ModelFilter:
    """Conditions that every model of a listing meets; by default there are none.

    Attributes:
        tags: tags that a model must all have.
        prefix: the beginning of the name, letter by letter.
        text: a part of the name, the base model or the source; ASCII letters in either case.
        attributes: keys at the top level with their values as text; None for any value.
        base_model: the declared base.
    """

    tags: tuple[str, ...] = ()
    prefix: str = ""
    text: str = ""
    attributes: tuple[tuple[str, str | None], ...] = ()
    base_model: str | None = None


EVERY_MODEL: Final = ModelFilter()
MAX_ATTRIBUTE_FILTERS: Final = 10
"""Attributes of a filter; each is a condition of its own in the query."""


@dataclass(frozen=True, slots=True)
class DeclaredBases:
    """The models that a model is said to be made from.

    Attributes:
        names: their names, in the order of the declaration, each once.
        relation: what the model is said to be of them; None where that is not stated.
    """

    names: tuple[str, ...] = ()
    relation: BaseRelation | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a model's row. The older one has the name of an only base."""
        several = len(self.names) > 1
        return {
            "base_model": None if several or not self.names else self.names[0],
            "base_models": list(self.names) if several else None,
            "base_relation": self.relation if self.names else None,
        }


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model as stored in the database; its support is in the blob ``blob_key``."""

    id: int
    space_id: int
    name: str
    kind: StoredKind
    support_size: int
    digest: str | None
    blob_key: str | None
    revision: int
    version: int
    attributes_json: str
    source: str | None
    base_model: str | None
    created_at: datetime
    updated_at: datetime
    blob_size: int | None = None
    """The bytes of the blob; None without a blob, and for an old blob until it is measured."""
    content_id: int = 0
    """A new random id for every content; 0 for a signature without a sketch."""
    tags: tuple[str, ...] = field(default=())
    base_models: tuple[str, ...] = ()
    """The declared bases where they are several; ``base_model`` is None then."""
    base_relation: BaseRelation | None = None

    @property
    def bases(self) -> tuple[str, ...]:
        """All declared bases, in order."""
        return tuple(self.base_models) if self.base_model is None else (self.base_model,)

    @property
    def declared(self) -> DeclaredBases:
        """The declared bases, and what the model is said to be of them."""
        return DeclaredBases(self.bases, self.base_relation)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes, parsed at each call: as text they take much less memory."""
        parsed: dict[str, Any] = json.loads(self.attributes_json)
        return parsed

    @property
    def difference_note(self) -> str | None:
        """The caveat that a sync found about the model's difference from its base; else None."""
        hub = self.attributes.get("hub")
        difference = hub.get("delta") if isinstance(hub, dict) else None
        note = difference.get("note") if isinstance(difference, dict) else None
        return note if isinstance(note, str) else None  # anybody may write attributes

    @property
    def shown_kind(self) -> ShownKind:
        """The kind of the model as its clients see it."""
        return "subspace" if self.kind == "signature" and self.digest is not None else self.kind

    @property
    def version_tag(self) -> str:
        """A tag that changes with every change of the model.

        It reveals nothing about other tenants, as an id would: the version is the space's own. A
        space that was deleted and created again counts from 0, so the tag holds the time at which
        the model was created.
        """
        made = round(self.created_at.timestamp() * 1e6)
        return f"{self.version:x}-{self.revision:x}-{made:x}"


@dataclass(frozen=True, slots=True)
class SelfOverlap:
    """The similarity of two contents of one model.

    Attributes:
        jaccard: the temporal self-overlap (paper, section 4.3).
        exact: whether it is counted; else it is estimated from signatures, because a side has no
            support.
    """

    jaccard: float
    exact: bool


@dataclass(frozen=True, slots=True)
class RevisionRecord:
    """A present or past content of a model; ``blob_key`` is its support while that is kept.

    Attributes:
        previous: the overlap with the content before; None for the first known revision.
        first: the overlap with the first known revision.
    """

    revision: int
    kind: StoredKind
    support_size: int
    digest: str | None
    blob_key: str | None
    previous: SelfOverlap | None
    first: SelfOverlap
    created_at: datetime

    @property
    def shown_kind(self) -> ShownKind:
        """The kind of the content as its clients see it."""
        return "subspace" if self.kind == "signature" and self.digest is not None else self.kind
