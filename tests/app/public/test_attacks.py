"""What a public space gives away to one who asks to learn a support, against exact similarities.

The attacker is strong: it knows half of a model's indices, how many there are, and others that are
not among them. It wants to know of 100 more whether the model has them.
``docs/privacy.md`` has the figures.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from app.public.scores import Rounding, scored
from modelkin import Neighbor
from tests.support.repetitions import repetitions

STEPS = 20
TESTED = 100
BUDGET = 1_000
"""Queries of a day, by default."""

Flags = npt.NDArray[np.bool_]
Oracle = Callable[[Flags, int], float]
"""The score of a query by the tested indices in it, and how many others it shares."""


class Model:
    """A support of K indices, of which 50 are among the tested ones.

    Args:
        k: K; queries have half as many indices.
        seed: of which they are.
    """

    def __init__(self, k: int, seed: int) -> None:
        self.k = k
        self.rng = np.random.default_rng(seed)
        self.members = self.rng.permutation(TESTED) < TESTED // 2
        self._secret = b"secret %d" % seed

    def exact(self, chosen: Flags, shared: int) -> float:
        """The similarity, as a space of one's own tenant answers it."""
        return 2 * (int((chosen & self.members).sum()) + shared) / (self.k + self.k // 2)

    def stepped(self, chosen: Flags, shared: int) -> float:
        """The similarity, rounded down to a step."""
        return int(self.exact(chosen, shared) * STEPS + 1e-9) / STEPS

    def served(self, chosen: Flags, shared: int) -> float:
        """The score, as a public space answers it."""
        rounding = Rounding(STEPS, self._secret, chosen.tobytes())
        return rounding("model", self.exact(chosen, shared)) / STEPS

    def share_right(self, guess: Flags) -> float:
        """How many of the tested indices an attacker has right."""
        return float((guess == self.members).mean())


def one_by_one(model: Model, oracle: Oracle, shared: int) -> Flags:
    """An index is of the model if the answer grows by adding it alone."""
    alone = np.eye(TESTED, dtype=bool)
    base = oracle(np.zeros(TESTED, bool), shared)
    return np.array([oracle(chosen, shared) > base for chosen in alone])


def below_a_step(model: Model, oracle: Oracle) -> tuple[int, int]:
    """How many shared indices leave a query just below a step, and the queries to find that out."""
    nothing = np.zeros(TESTED, bool)
    low, high, queries = model.k // 2 - model.k // STEPS, model.k // 2 - 1, 1
    target = oracle(nothing, high)
    while high - low > 1:
        middle, queries = (low + high) // 2, queries + 1
        low, high = (low, middle) if oracle(nothing, middle) == target else (middle, high)
    return low, queries


def by_halves(model: Model, queries: int) -> Flags:
    """An index is of the model if answers are larger, on average, to queries that have it.

    All indices are tested at once: each query has half of them.
    """
    chosen = model.rng.random((queries, TESTED)) < 0.5
    scores = np.array([model.served(row, model.k // 2 - TESTED) for row in chosen])
    with_it = (scores @ chosen) / chosen.sum(0)
    without = (scores @ ~chosen) / (~chosen).sum(0)
    found: Flags = with_it - without > 2 / (1.5 * model.k) / 2
    return found


def accuracy(k: int, queries: int, repeats: int = 5) -> float:
    """How many of the tested indices that attack has right after so many queries."""
    models = [Model(k, seed) for seed in range(repeats)]
    return float(np.mean([m.share_right(by_halves(m, queries)) for m in models]))


def queries_to_know(k: int) -> int:
    """How many queries it takes to have 95% right."""
    queries = 100
    while accuracy(k, queries) < 0.95:
        queries = queries * 9 // 8
    return queries


def test_exact_similarities_give_an_index_away_with_each_query() -> None:
    """And so do steps alone, to one who finds the edge of a step first: hence the noise."""
    model = Model(1_000, 1)
    assert 1.0 == model.share_right(one_by_one(model, model.exact, 400))
    edge, queries = below_a_step(model, model.stepped)
    assert 1.0 == model.share_right(one_by_one(model, model.stepped, edge))
    assert queries < 10


def test_the_same_attack_learns_nothing_of_a_public_space() -> None:
    """Each query has noise of its own, so none is at an edge."""
    rights = []
    for seed in range(20):
        model = Model(1_000, seed)
        edge, _ = below_a_step(model, model.stepped)
        rights.append(model.share_right(one_by_one(model, model.served, edge)))
    assert abs(np.mean(rights) - 0.5) < 0.06


def test_no_similarity_is_rounded_with_less_noise_than_others() -> None:
    """Scores have the similarity as their mean, and half a step as their deviation, everywhere."""
    rounding = Rounding(STEPS, b"secret", b"query")
    for similarity in (0.5, 0.5125, 0.525, 0.5499):
        scores = np.array([rounding(str(i), similarity) for i in range(20_000)]) / STEPS
        assert abs(scores.mean() - similarity) < 0.001
        assert abs(scores.std() - 0.5 / STEPS) < 0.001
        assert abs(scores - similarity).max() < 1.5 / STEPS


def test_an_answer_does_not_follow_who_is_among_the_nearest() -> None:
    """Of more models than are compared, no step is shown in part."""
    rounding = Rounding(STEPS, b"secret", b"query")
    spread = np.linspace(0.95, 0.5, 500)
    nearest = [Neighbor(f"m{i}", float(s), 0.0, "exact", 0.0) for i, s in enumerate(spread)]
    last = rounding("m499", 0.5)
    for whole, least in ((True, 6), (False, last + 3)):
        found, more = scored(nearest, rounding, steps=STEPS, floor=0.3, k=500, whole=whole)
        there = {i for i, s in enumerate(spread) if rounding(f"m{i}", float(s)) >= least}
        assert {f"m{i}" for i in there} == {item.model for item in found}
        assert more is not whole
    unseen = [rounding(f"twin-{i}", 0.5) for i in range(5_000)]
    assert max(unseen) < last + 3
    few, more = scored(nearest, rounding, steps=STEPS, floor=0.3, k=5, whole=False)
    assert (5, False) == (len(few), more)


def test_what_the_budget_of_a_day_gives_away(figure: Callable[[str], None]) -> None:
    """Of larger supports less: the queries that an attack needs grow with the square of K."""
    right = {k: accuracy(k, BUDGET) for k in (250, 500, 1_000, 2_000, 10_000)}
    figure(", ".join(f"{share:.0%} right at K = {k:,}" for k, share in right.items()))
    assert right[1_000] < 0.75
    assert right[2_000] < 0.66
    assert abs(right[10_000] - 0.5) < 0.08
    assert accuracy(250, 5 * BUDGET) > 0.95, "the attack is one that works"


@pytest.mark.skipif(repetitions(2, 1) == 1, reason="long; SOAK=1")
def test_how_many_queries_an_attack_needs(figure: Callable[[str], None]) -> None:
    """To have 95% of 100 indices right."""
    needed = {k: queries_to_know(k) for k in (250, 500, 1_000, 2_000)}
    figure(", ".join(f"{queries:,} at K = {k:,}" for k, queries in needed.items()))
    assert needed[2_000] > 8 * needed[500]
