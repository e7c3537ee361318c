"""What a public space gives away to one who asks to learn a support, against exact similarities.

The attacker is strong: it knows half of a model's indices, how many there are, and others that are
not among them. It wants to know of 100 more, half of which the model has, which these are.
Its queries have few indices, since each then weighs more in a similarity: a quarter of K, with
which their scores are above the default floor. ``docs/privacy.md`` has the figures.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from app.search.public.scores import Rounding
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
        k: K; queries have a quarter as many indices, and 100 at least.
        seed: of which they are.
    """

    def __init__(self, k: int, seed: int) -> None:
        self.k = k
        self.asked = max(k // 4, TESTED)
        self.weight = 2 / (k + self.asked)
        """What an index in common adds to a similarity."""
        self.rng = np.random.default_rng(seed)
        self.members = self.rng.permutation(TESTED) < TESTED // 2
        self._secret = b"secret %d" % seed

    def exact(self, chosen: Flags, shared: int) -> float:
        """The similarity, as a space of one's own tenant answers it."""
        return self.weight * (int((chosen & self.members).sum()) + shared)

    def stepped(self, chosen: Flags, shared: int) -> float:
        """The similarity, rounded down to a step."""
        return int(self.exact(chosen, shared) * STEPS + 1e-9) / STEPS

    def served(self, chosen: Flags, shared: int) -> float:
        """The score, as a public space answers it."""
        rounding = Rounding(STEPS, self._secret, 1, chosen.tobytes())
        return rounding(b"model", self.exact(chosen, shared)) / STEPS

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
    high, queries = model.asked - 1, 1
    low = high - int(1 / STEPS / model.weight) - 1
    target = oracle(nothing, high)
    while high - low > 1:
        middle, queries = (low + high) // 2, queries + 1
        low, high = (low, middle) if oracle(nothing, middle) == target else (middle, high)
    return low, queries


def by_regression(model: Model, queries: int) -> Flags:
    """What a linear regression finds of all tested indices at once: each query has half of them.

    It is the best linear one: the attacker knows how much noise scores have, and that half of the
    indices are the model's.
    """
    chosen = model.rng.random((queries, TESTED)) < 0.5
    shared = [model.asked - int(row.sum()) for row in chosen]
    scores = np.array([model.served(row, n) for row, n in zip(chosen, shared, strict=True)])
    rows = chosen.astype(float)
    surplus = scores / model.weight - shared - rows.sum(1) / 2
    variance = (0.5 / STEPS / model.weight) ** 2
    ridge = rows.T @ rows + variance / 0.25 * np.eye(TESTED)
    likely: Flags = np.linalg.solve(ridge, rows.T @ surplus) > 0
    return likely


def accuracy(k: int, queries: int, repeats: int = 5) -> float:
    """How many of the tested indices that attack has right after so many queries."""
    models = [Model(k, seed) for seed in range(repeats)]
    return float(np.mean([m.share_right(by_regression(m, queries)) for m in models]))


def queries_to_know(k: int) -> int:
    """How many queries it takes to have 95% right."""
    queries = 100
    while accuracy(k, queries) < 0.95:
        queries = queries * 9 // 8
    return queries


def test_exact_similarities_give_an_index_away_with_each_query() -> None:
    """And so do steps alone, to one who finds the edge of a step first: hence the noise."""
    model = Model(1_000, 1)
    assert 1.0 == model.share_right(one_by_one(model, model.exact, 200))
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
    rounding = Rounding(STEPS, b"secret", 1, b"query")
    for similarity in (0.5, 0.5125, 0.525, 0.5499):
        scores = np.array([rounding(b"%d" % i, similarity) for i in range(20_000)]) / STEPS
        assert abs(scores.mean() - similarity) < 0.001
        assert abs(scores.std() - 0.5 / STEPS) < 0.001
        assert abs(scores - similarity).max() < 1.5 / STEPS


@pytest.mark.slow
def test_what_the_budget_of_a_day_gives_away(figure: Callable[[str], None]) -> None:
    """Of larger supports less: the queries that an attack needs grow with the square of K."""
    right = {k: accuracy(k, BUDGET) for k in (250, 500, 1_000, 2_000, 10_000)}
    figure(", ".join(f"{share:.0%} right at K = {k:,}" for k, share in right.items()))
    assert right[1_000] < 0.75
    assert right[2_000] < 0.66
    assert abs(right[10_000] - 0.5) < 0.08
    assert accuracy(250, 5 * BUDGET) > 0.95, "the attack is one that works"


@pytest.mark.slow
def test_how_many_queries_an_attack_needs(figure: Callable[[str], None]) -> None:
    """To have 95% of 100 indices right."""
    tried = (125, 250, 500, 1_000, 2_000)[: repetitions(5, few=2)]
    needed = {k: queries_to_know(k) for k in tried}
    figure(", ".join(f"{queries:,} at K = {k:,}" for k, queries in needed.items()))
    assert all(needed[2 * k] > 1.5 * needed[k] for k in tried[:-1])
