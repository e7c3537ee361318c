"""What lines add to the summary of a lineage by S, where the two do not agree."""

from __future__ import annotations

import pytest

from app.anatomy.families import FamilyService
from app.anatomy.service import AnatomyService
from app.fingerprints.service import FingerprintService
from app.infra.deadlines import NEVER
from app.kinship.lines.beside import clauses_of_lines, with_lines
from app.kinship.lines.judge import LineJudge
from app.kinship.lines.kinfolk import Kinfolk
from modelkin.core.kinship.lineage import Reason
from modelkin.types.kinship import SimilarityBaseline
from modelkin.types.lineages import Kin, Lineage
from tests.app.kinship.lines.conftest import Fingerprints, planted
from tests.support.fixtures import on_one_database

pytestmark = on_one_database


def by_s(reason: Reason) -> Lineage:
    """A base that S contradicts."""
    return Lineage(
        model="made",
        verdict="mismatch",
        reason=reason,
        summary="",
        declared_base="base",
        base=Kin("base", 0.3, "exact", 0.0),
        kin=(),
        usual=SimilarityBaseline(0.8, 0.01, 9),
        limit=0.9,
        chain=(),
        cycle=False,
    )


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("chance", "S compares index by index, and may find nothing where rows"),
        ("background", "S compares index by index, and may find nothing where rows"),
        ("farther", "though by S most other models of this space are nearer"),
        ("rival", "so it may be the base of the base"),
    ],
)
def test_what_s_contradicts_and_lines_confirm_is_told_by_its_reason(
    stored: Fingerprints, reason: Reason, says: str
) -> None:
    """A base that is found, only not as near as others, is not said to be invisible to S."""
    for name in ("base", "made"):
        stored.put(name, planted("base"))
    services = stored.app.services
    kinfolk = Kinfolk(services[FamilyService], services[AnatomyService])
    judge = LineJudge(services[FingerprintService], kinfolk)
    with stored.app.database.reading() as session:
        lines = judge.of(session, stored.app.tenant, "made", ["base"], NEVER)
    assert lines is not None
    lineage = with_lines(by_s(reason), lines, lines.bases["base"])
    assert lineage.lines_agree is False
    [clause] = clauses_of_lines(lineage, lines, None)
    assert says in clause
