"""A hub of two families that a service follows through a kill: what it says of them is true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.sdk.core.fingerprints.planted import DERIVED, Tensors, model
from tests.soak.kin.answers import figures
from tests.soak.kin.following import followed
from tests.soak.kin.members import Member, members
from tests.soak.kin.reported import reported
from tests.support.hubs.stored_huggingface import StoredHub, stored_hub

LEASE = "--job-lease-seconds=2"
"""A killed worker's jobs are taken over sooner than by default."""
MADE = {
    "fused and renamed": "fused",
    "transposed": "transposed",
    "half of the tokens": "fewer tokens",
    "up-scaled": "up-scaled",
    "int8": "8 bits",
}


def checkpoints() -> Iterator[tuple[str, str, Tensors]]:
    """A base and what is made of it, a stranger and one of its own, and layers of both."""
    base, stranger = model(0), model(1)
    yield "base", "A", base
    yield "stranger", "B", stranger
    for name, change in MADE.items():
        yield f"base, {name}", "A", DERIVED[change](base)
    yield "stranger, int8", "B", DERIVED["8 bits"](stranger)
    second = {name: values for name, values in stranger.items() if name.startswith("layers.3")}
    yield "layers of two strangers", "AB", base | second


def stored(folder: Path) -> list[Member]:
    """The members of a hub that is written to a folder."""
    hub, known = StoredHub(folder), list[Member]()
    for member, tensors in members(checkpoints()):
        weights = {name: values for name, values in tensors.items() if np.ndim(values)}
        hub.push(member.name, weights, member.card, member.created)
        known.append(member)
    return known


@pytest.mark.slow
def test_what_is_said_of_a_hub_is_true(tmp_path: Path) -> None:
    """All kin are found and no stranger, with the first parent, the relation and the verdict on
    what is declared; each file is read again only where the service was killed.
    """
    known = stored(tmp_path / "hub")
    with (
        stored_hub(tmp_path / "hub") as hub,
        followed(tmp_path / "service", hub.url, len(known), LEASE, kills=[4]) as http,
    ):
        seen, report = figures(http, known), list(reported(http, known))
        assert len(known) == len(hub.sent)
    assert (len(known), 24, 12) == (seen.fingerprints, seen.kin, seen.strangers)
    assert (seen.kin, 0) == (seen.found, seen.false)
    assert (seen.room, 0) == (seen.listed, seen.false_relatives)
    assert (len(known), 0) == (seen.first, seen.false_parents)
    assert [] == seen.wrong
    assert {"exact": len(known) - 2, "vague": 0, "wrong": 0} == seen.relations
    assert "mismatch" not in seen.lineages["right"]
    assert "consistent" not in seen.lineages["wrong"]
    assert 0 == seen.likely["strangers"]
    assert all((each.expected, ()) == (each.found, each.false) for each in report), report
