"""Which lines in common draw an edge of a lineage."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from modelkin.core.fingerprints.relations.edges import EDGE_SHARE, EdgeReason, edge_reason
from modelkin.core.fingerprints.sources import Verdict

OLD = datetime(2024, 1, 1, tzinfo=UTC)
NEW = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("verdict", "share", "dates", "expected"),
    [
        ("derived", EDGE_SHARE, (NEW, OLD), "lines"),
        ("derived", 0.049, (NEW, OLD), None),
        ("derived", 0.9, (OLD, NEW), None),
        ("derived", 0.9, (OLD, OLD), None),
        ("derived", 0.9, (None, OLD), None),
        ("derived", 0.9, (NEW, None), None),
        ("reuses", 0.06, (NEW, OLD), "lines"),
        ("part", 1.0, (None, NEW), "part"),
        ("part", 1.0, (NEW, OLD), "part"),
        ("part", 1.0, (OLD, NEW), None),
        ("copy", 1.0, (None, None), "copy"),
        ("copy", 1.0, (NEW, OLD), "copy"),
        ("copy", 1.0, (OLD, NEW), None),
    ],
)
def test_lines_alone_need_five_percent_and_an_older_date(
    verdict: Verdict,
    share: float,
    dates: tuple[datetime | None, datetime | None],
    expected: EdgeReason | None,
) -> None:
    """A copy and a part need neither, and what is known to be younger is no base."""
    own, base = dates
    assert expected == edge_reason(verdict, share, published_at=own, base_published_at=base)


def test_a_declaration_needs_nothing_else() -> None:
    """It is an edge whatever the lines say; the verdict on it stands beside."""
    assert edge_reason("related", 0.0, declared=True) == "declared"
