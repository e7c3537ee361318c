"""A service whose popular base is claimed by invented fingerprints, beside one of the same hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.bystander import CROWD
from tests.soak.fingerprints.flood.answers import ask
from tests.soak.fingerprints.flood.members import members, newcomers
from tests.soak.fingerprints.flood.service import services

FORGED, REFUSED = 100, 20
"""More than the holders of a key that are listed, and more than the quota has room for."""


@pytest.mark.slow
def test_invented_fingerprints_change_no_answer_about_others(tmp_path: Path) -> None:
    """Of the base's own family each answer has the same first parent, and says ``truncated``."""
    known, sent = members(["fused"]), newcomers(["8 bits"])
    with services(tmp_path, known, len(known) + FORGED, worker=False) as (quiet, flooded):
        assert {201: FORGED, 507: REFUSED} == flooded.forge(0, FORGED + REFUSED)
        with quiet.client(CROWD) as calm, flooded.client(CROWD) as busy:
            seen = ask(calm, busy, known, sent, rounds=1, lists=False)
    assert [] == seen.wrong
    assert sum(each.is_of_base for each in known) + len(sent) == seen.truncated
