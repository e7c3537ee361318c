"""Machines over one database, each with an index of its own, or with one in Redis together."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.fingerprints.finding.feed import TenantFeed
from app.infra.deadlines import NEVER
from tests.app.fingerprints.finding.machines import kin_by_rows, member, opened_index
from tests.support.app.fingerprints import StoredFingerprints

CHANGES = 60


@pytest.mark.parametrize("share", ["nothing", pytest.param("redis", marks=pytest.mark.redis)])
def test_both_answer_as_all_rows_do(
    stored: StoredFingerprints, tmp_path: Path, request: pytest.FixtureRequest, share: str
) -> None:
    """Puts, replacements and removals, of which now the one hears first, now the other."""
    url = request.getfixturevalue("single").url if share == "redis" else None
    draw = random.Random(3)
    with ExitStack() as stack:
        indexes = [
            stack.enter_context(opened_index(tmp_path / name, stored.database, url))
            for name in ("first", "second")
        ]
        for seed in range(CHANGES):
            name = f"m{draw.randrange(40)}"
            if draw.random() < 0.3 and stored.find(name) is not None:
                stored.delete(name)
            else:
                stored.put(name, member(draw.randrange(2), seed))
            asked = member(draw.randrange(2), CHANGES + seed)
            for index in draw.choices(indexes, k=draw.randrange(3)):
                with stored.database.reading() as session:
                    feed = TenantFeed(session, stored.tenant.id)
                    found = index.find_by(feed, stored.tenant.id, asked, limit=100, deadline=NEVER)
                    expected = kin_by_rows(feed, asked)
                named = {each.id: each.keys for each in found.candidates if each.round == 1}
                assert (expected, False) == (named, found.truncated)
