"""What models are to each other, kept as figures, against the same values in a dictionary."""

from __future__ import annotations

import itertools
import random

from app.kinship.reports.known import Likeness
from app.kinship.reports.likenesses import Likenesses, Pairs

NAMES = [f"org/{number}" for number in range(12)]


def planted() -> dict[tuple[str, str], Likeness]:
    """Some of all pairs, in no order."""
    draw = random.Random(5)
    pairs = [pair for pair in itertools.permutations(NAMES, 2) if draw.random() < 0.3]
    draw.shuffle(pairs)
    return {
        pair: Likeness(*pair, draw.choice(["copy", "derived", "related"]), draw.random(), -50.5)
        for pair in pairs
    }


def test_each_pair_is_found_as_it_was_given() -> None:
    """By its model, and by both; of another order nothing is known."""
    known = planted()
    found = Likenesses.of_values(known.values())
    for pair in itertools.permutations(NAMES, 2):
        assert known.get(pair) == found.between(*pair)
        assert (pair in known) == found.has(*pair)
    for name in NAMES:
        wanted = {each for each in known.values() if each.model == name}
        assert wanted == set(found.of(name))
    copies = {each for each in known.values() if each.verdict == "copy"}
    assert copies == set(found.copies())


def test_of_a_name_that_is_not_known_nothing_is_said() -> None:
    """Whichever of the two it is."""
    found = Likenesses.of_values(planted().values())
    assert [] == found.of("gone/away")
    assert (None, None) == (
        *(found.between("gone/away", "org/1"), found.between("org/1", "gone/away")),
    )


def test_the_first_of_two_that_are_about_one_pair_counts() -> None:
    """Pairs with models that have no name are left out; so are those of none at all."""
    pairs = Pairs()
    pairs.add([(7, 9, "derived", 0.5, -20.0), (7, 8, "copy", 1.0, -90.0)])
    pairs.add([(7, 9, "copy", 0.25, -10.0), (9, 7, "related", 0.125, -1.0)])
    found = Likenesses({7: "a", 9: "b"}, pairs)
    assert [Likeness("a", "b", "derived", 0.5, -20.0)] == found.of("a")
    assert [Likeness("b", "a", "related", 0.125, -1.0)] == found.of("b")
    assert [] == Likenesses({7: "a"}, Pairs()).of("a")
