"""The record of a space that no database holds."""

from __future__ import annotations

from datetime import UTC, datetime

from app.models.spaces.records import SpaceRecord
from modelkin.types.spaces import SignatureSpec

__all__ = ["space_record"]


def space_record(num_parameters: int) -> SpaceRecord:
    """A space of supports without a layout."""
    return SpaceRecord(
        id=1,
        tenant_id=1,
        name="models",
        num_parameters=num_parameters,
        layout_digest=None,
        signature=SignatureSpec(),
        version=1,
        supports=0,
        signatures=0,
        created_at=datetime(2026, 5, 4, tzinfo=UTC),
    )
