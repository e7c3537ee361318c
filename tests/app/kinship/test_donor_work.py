"""What donors cost: statements, and attributes that are read."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from app.container import Container
from app.kinship import repository
from app.kinship.donors.request import DonorRequest
from app.kinship.donors.service import DonorService
from app.models.catalog.batches import BatchEntry, BatchService
from app.models.catalog.reader import ModelReader
from app.search.service import SearchService
from modelkin import Support
from modelkin.types.kinship import Donors
from tests.support.app.space import AppSpace
from tests.support.app.statements import statements
from tests.support.fixtures import on_one_database
from tests.support.http_space import family

pytestmark = on_one_database

M = 10_000
MODELS = family(3, M, 500, 40)


@pytest.fixture
def labelled(services: Container) -> AppSpace:
    """Forty models, each with a label and with an attribute that no question names."""
    made = AppSpace(services, num_parameters=M)
    entries = [
        BatchEntry(name, support, attributes={"mix": "abc"[place % 3], "other": place})
        for place, (name, support) in enumerate(MODELS.items())
    ]
    with made.database.reading() as session:
        services[BatchService].put(session, made.space, entries)
    return made


def donors(space: AppSpace, request: DonorRequest) -> Donors:
    """The donors of the first model."""
    with space.database.reading() as session:
        at = space.space
        subject = space.services[ModelReader].stored_subject(session, at, "m000")
        return space.services[DonorService].donors(session, at, subject, request)


def neighbors(space: AppSpace) -> None:
    """Search the neighbours of the same model."""
    with space.database.reading() as session:
        subject = space.services[ModelReader].stored_subject(session, space.space, "m000")
        space.services[SearchService].neighbors(session, space.space, subject, k=10)


@pytest.mark.parametrize("method", ["similarity", "cover"])
def test_the_sizes_of_exact_donors_take_no_statement(labelled: AppSpace, method: str) -> None:
    """K of each follows from its S and the indices that it shares with the target."""
    neighbors(labelled)
    donors(labelled, DonorRequest(method))  # the index is loaded now
    sent = statements(labelled.database, lambda: donors(labelled, DonorRequest(method)))
    beside = statements(labelled.database, lambda: neighbors(labelled))
    assert sum("FROM models" in each for each in sent) <= sum("FROM models" in e for e in beside)


def test_the_floor_of_a_donor_is_that_of_its_own_size(labelled: AppSpace) -> None:
    """S of .15 is above the floor of small supports, and below that of a large one, .175."""
    own = MODELS["m000"].indices
    others = np.setdiff1d(np.arange(M), own)
    sizes = {"small": (60, 240), "large": (225, 2275)}
    sets = {name: np.sort(np.append(own[:a], others[:b])) for name, (a, b) in sizes.items()}
    labelled.put({name: Support.from_indices(indices, M) for name, indices in sets.items()})
    found = {item.model: item for item in donors(labelled, DonorRequest(k=100)).items}
    assert [0.15, 0.15] == [found[name].similarity for name in sizes]
    assert [False, True] == [found[name].unrelated for name in sizes]


def test_only_attributes_of_players_are_parsed(
    labelled: AppSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan of the space passes the rows of all models, and reads those of the nearest alone."""
    parsed: list[Any] = []

    class Counted:
        dumps = staticmethod(json.dumps)

        @staticmethod
        def loads(text: str) -> Any:
            parsed.append(text)
            return json.loads(text)

    monkeypatch.setattr(repository, "json", Counted)
    with labelled.database.reading() as session:
        ids = [
            row.id
            for row in repository.labelled_models_by_id(session, labelled.space, range(9**6), "mix")
        ]
        parsed.clear()
        found = repository.labelled_models_by_id(session, labelled.space, ids[:4], "mix")
    assert (sorted(ids[:4]), 4) == (sorted(each.id for each in found), len(parsed))
    assert {each.value for each in found} <= set("abc")
