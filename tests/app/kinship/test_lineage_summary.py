"""The summary of a lineage: figures as people read them."""

from __future__ import annotations

from app.kinship.lineage_summary import summary_of
from modelkin.types.kinship import SimilarityBaseline
from modelkin.types.lineages import Kin, Lineage


def test_a_kappa_of_zero_has_no_sign() -> None:
    """A kappa just below zero is written as 0.00."""
    lineage = Lineage(
        model="child",
        verdict="mismatch",
        reason="chance",
        summary="",
        declared_base="base",
        base=Kin("base", 0.05, "exact", 0.0, kappa=-0.001),
        kin=(),
        usual=SimilarityBaseline(0.05, 0.01, 9),
        limit=0.2,
        chain=(),
        cycle=False,
    )
    assert "(kappa = 0.00)" in summary_of(lineage, ()).summary
