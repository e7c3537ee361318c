"""The sample of a space that shows its constants: strangers among many kin, and every process."""

from __future__ import annotations

import numpy as np
import pytest

from app.container import Container
from app.models.catalog.reader import ModelReader
from app.models.index.registry import IndexRegistry
from app.search.constants import SpaceConstants
from modelkin import Layout, Support
from tests.support.app.space import AppSpace
from tests.support.fixtures import on_one_database

LAYOUT = Layout.of([("w", (100, 60)), ("mask", (40, 40))])
MASK = 6000 + np.flatnonzero(np.tril(np.ones((40, 40))))


def models(seed: int, kin: int, strangers: int) -> dict[str, Support]:
    """Fine-tunes that keep nine of ten indices of a base, and strangers, all with one mask."""
    rng = np.random.default_rng(seed)
    base = rng.choice(6000, 300, replace=False)
    found = {"base": base}
    for place in range(kin):
        kept = rng.choice(base, 270, replace=False)
        rest = np.setdiff1d(np.arange(6000), base)
        found[f"kin-{place}"] = np.concatenate([kept, rng.choice(rest, 30, replace=False)])
    for place in range(strangers):
        found[f"stranger-{place}"] = rng.choice(6000, 300, replace=False)
    return {
        name: Support.from_indices(np.concatenate([np.sort(own), MASK]), LAYOUT.num_parameters)
        for name, own in found.items()
    }


def constants_of(services: Container, space: AppSpace, *subjects: str) -> tuple[str, ...]:
    """The constants as a new process finds them."""
    reader = services[ModelReader]
    found = SpaceConstants(reader, services[IndexRegistry])
    with space.database.reading() as session:
        asked = [reader.stored_subject(session, space.space, name) for name in subjects]
        return found.of(session, space.space, *asked).names


@pytest.mark.slow
@on_one_database
def test_a_stranger_among_many_kin_shows_them(services: Container) -> None:
    """One of sixty models, whichever is drawn: by its signature, or since the question is of it."""
    space = AppSpace(services, layout=LAYOUT, num_parameters=LAYOUT.num_parameters)
    planted = models(1, 60, 1)
    stranger = planted.pop("stranger-0")
    space.put(planted)
    assert () == constants_of(services, space, "base")
    space.put({"stranger": stranger})
    assert ("mask",) == constants_of(services, space)
    assert ("mask",) == constants_of(services, space, "stranger")
    space.drop()


@on_one_database
def test_one_answer_leaves_out_the_same(services: Container) -> None:
    """What another answer finds in a newer state of the space changes none that has begun."""
    space = AppSpace(services, layout=LAYOUT, num_parameters=LAYOUT.num_parameters)
    kept = SpaceConstants(services[ModelReader], services[IndexRegistry])
    planted = models(1, 1, 1)
    space.put({"base": planted["base"], "kin": planted["kin-0"]})
    with space.database.reading() as begun:
        before = space.space
        found = [kept.of(begun, before).names]
        space.put({"stranger": planted["stranger-0"]})
        with space.database.reading() as session:
            found.append(kept.of(session, space.space).names)
        found.append(kept.of(begun, before).names)
    assert [(), ("mask",), ()] == found
    space.drop()


@on_one_database
def test_what_is_known_follows_the_space(services: Container) -> None:
    """It is known from the second model on, and no longer once that has gone or been replaced."""
    space = AppSpace(services, layout=LAYOUT, num_parameters=LAYOUT.num_parameters)
    kept = SpaceConstants(services[ModelReader], services[IndexRegistry])

    def known() -> tuple[str, ...]:
        with space.database.reading() as session:
            return kept.of(session, space.space).names

    planted = models(1, 1, 1)
    found = []
    for put in (
        {"base": planted["base"]},
        {"other": planted["stranger-0"]},
        {"other": planted["kin-0"]},
        {"third": planted["stranger-0"]},
    ):
        space.put(put)
        found.append(known())
        assert found[-1] == constants_of(services, space)
    assert [(), ("mask",), (), ("mask",)] == found
    space.drop()
