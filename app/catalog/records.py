"""Records of models and revisions: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

__all__ = ["Kind", "ModelRecord", "RevisionRecord", "SelfOverlap"]


Kind = Literal["support", "signature"]


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model as the database knows it; its support lies in the blob ``blob_key``."""

    id: int
    space_id: int
    name: str
    kind: Kind
    support_size: int
    digest: str | None
    blob_key: str | None
    revision: int
    version: int
    attributes: dict[str, Any]
    source: str | None
    base_model: str | None
    created_at: datetime
    updated_at: datetime
    content_id: int = 0
    """Drawn anew with every content; 0 where that is a signature and nothing more."""
    tags: tuple[str, ...] = field(default=())

    @property
    def version_tag(self) -> str:
        """A tag that changes with every change of the model.

        It tells nothing of other tenants, as an id would: the version is the space's own. A space
        that was deleted and made again counts from 0, so it holds the time of the model's making.
        """
        made = round(self.created_at.timestamp() * 1e6)
        return f"{self.version:x}-{self.revision:x}-{made:x}"


@dataclass(frozen=True, slots=True)
class SelfOverlap:
    """How near two contents of one model are.

    Attributes:
        jaccard: the temporal self-overlap (paper, section 4.3).
        exact: counted; else estimated from signatures, since of one side there is no support.
    """

    jaccard: float
    exact: bool


@dataclass(frozen=True, slots=True)
class RevisionRecord:
    """A content that a model has or had; its support lies in ``blob_key`` while it is kept.

    Attributes:
        previous: how near it is to the content before; None of the first that is known.
        first: to the first that is known.
    """

    revision: int
    kind: Kind
    support_size: int
    digest: str | None
    blob_key: str | None
    previous: SelfOverlap | None
    first: SelfOverlap
    created_at: datetime
