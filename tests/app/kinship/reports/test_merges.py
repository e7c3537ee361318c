"""Merges of a report, taken apart."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.fingerprints.service import FingerprintService
from app.kinship.reports.likenesses import Likenesses
from app.kinship.reports.merges import MergeReader
from app.kinship.reports.repositories.evidence import MeasuredModel
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.app.kinship.reports.conftest import SCALE, Hub
from tests.sdk.core.fingerprints.planted import fingerprint, model

SHARE = 0.7
PARTS = ["org/first", "org/second"]
NAMES = ["org/blend", "org/joined", "org/later", "org/last"]
AT = datetime(2026, 1, 1, tzinfo=UTC)


def contents() -> dict[str, Fingerprint]:
    """Two models, their average under three names, and one that has layers of the second."""
    first, second = model(1), model(2)
    average = {k: SHARE * values + (1 - SHARE) * second[k] for k, values in first.items()}
    joined = {k: (first if "layers" in k else second)[k] for k in first}
    weights = [first, second, average, joined, average, average]
    made = [fingerprint(each, SCALE) for each in weights]
    return dict(zip([*PARTS, *NAMES], made, strict=True))


def measured(name: str, id_: int, relation: str) -> MeasuredModel:
    """A model that is made of the two parts, as its anatomy says."""
    told: dict[str, Any] = dict.fromkeys(MeasuredModel.__dataclass_fields__)
    said = {"relation": relation, "models": PARTS, "sentence": relation}
    return MeasuredModel(**told | {"id": id_, "name": name, "created_at": AT, "relations": (said,)})


def test_a_note_says_of_how_many_averages_the_weights_are_not_told(empty: Hub) -> None:
    """Only averages count towards the most; all merges are in the table."""
    for days, (name, content) in enumerate(contents().items()):
        empty.put(name, content, days)
    service = empty.app.services[FingerprintService]
    with empty.app.database.reading() as session:
        found = service.find_many(session, empty.tenant, [*PARTS, *NAMES])
    ids = {name: record.id for name, record in found.items()}
    merged = [
        measured(name, ids[name], "assembled" if name == "org/joined" else "average")
        for name in NAMES
    ]
    reader = MergeReader(empty.app.database, service, most=2)
    taken = reader.take_apart(merged, ids, Likenesses.of_values([]), lambda *_: None)
    assert NAMES == [each.model for each in taken.found]
    weights = {each.model: each.shares[0] for each in taken.found}
    assert pytest.approx(SHARE, abs=0.1) == weights["org/blend"]
    assert weights["org/later"] == weights["org/blend"]
    assert weights["org/last"] is None
    [note] = taken.notes()
    assert "The weights of 1 average are not told" in note
    every = MergeReader(empty.app.database, service)
    told = every.take_apart(merged, ids, Likenesses.of_values([]), lambda *_: None)
    assert () == told.notes()
