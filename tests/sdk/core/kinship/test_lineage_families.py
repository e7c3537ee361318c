"""Declared bases in spaces of one or two families, where most other models may be kin.

Planted supports follow a layout of tensors of different scale, so that strangers have S of .1 to
.4. A fine-tune keeps most indices of its base, and the others move within their tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from modelkin.core.kinship.lineage import Estimate, Judgement, Rival, judge
from modelkin.core.similarity.background import Background
from modelkin.core.similarity.chance import expected_matrix, kappas

SIZES = np.array([800, 600, 400, 200])
CASES = 200
NUM_PERM = 256

Floats = npt.NDArray[np.float64]
Members = npt.NDArray[np.bool_]
"""Whether each model's support holds each parameter, shape ``(models, M)``."""


@dataclass(frozen=True, slots=True)
class Population:
    """The models of a planted space, and the base that each is made from.

    Attributes:
        similarities: S of all pairs, shape ``(models, models)``.
        kappas: likewise.
        bases: the position of each model's true base, or its own position.
    """

    similarities: Floats
    kappas: Floats
    bases: Sequence[int]


def planted(seed: int, families: Sequence[int], strangers: int = 0) -> Population:
    """Families of so many fine-tunes each, whose base comes first, and strangers at the end."""
    rng = np.random.default_rng(seed)
    dense = rng.uniform(0.3, 0.5)  # of the small tensor; the larger ones hold fewer indices
    counts = np.round(SIZES * dense * np.array([0.04, 0.1, 0.3, 1.0])).astype(np.int64)
    rows: list[Members] = []
    bases: list[int] = []
    for fine_tunes in families:
        rows.append(_drawn(rng, counts))
        base = len(bases)
        bases += [base] * (fine_tunes + 1)
        rows += [_tuned(rng, rows[base], rng.uniform(0.6, 0.95)) for _ in range(fine_tunes)]
    for _ in range(strangers):
        bases.append(len(bases))
        rows.append(_drawn(rng, counts))
    return _compared(np.array(rows), bases)


def _drawn(rng: np.random.Generator, counts: npt.NDArray[np.int64]) -> Members:
    """A support with so many indices in each tensor."""
    parts = [rng.permutation(size) < count for size, count in zip(SIZES, counts, strict=True)]
    return np.concatenate(parts)


def _tuned(rng: np.random.Generator, base: Members, keeps: float) -> Members:
    """A support that keeps a share of its base's; the rest moves within its tensor."""
    made = base.copy()
    for tensor in _tensors():
        part = made[tensor]
        held, free = rng.permutation(np.flatnonzero(part)), np.flatnonzero(~part)
        moved = held.size - round(keeps * held.size)
        part[held[:moved]] = False
        part[rng.permutation(free)[:moved]] = True
    return made


def _tensors() -> Iterator[slice]:
    ends = np.cumsum(SIZES)
    return (slice(end - size, end) for end, size in zip(ends, SIZES, strict=True))


def _compared(rows: Members, bases: Sequence[int]) -> Population:
    packed, sizes = np.packbits(rows, axis=1), rows.sum(axis=1)
    shared = np.bitwise_count(packed[:, None] & packed).sum(axis=2, dtype=np.int64)
    similarities = 2 * shared / (sizes[:, None] + sizes)
    counts = np.stack([rows[:, tensor].sum(axis=1) for tensor in _tensors()], axis=1)
    expected = expected_matrix(counts, SIZES.astype(np.float64))
    return Population(similarities, kappas(similarities, expected), bases)


def judged(
    space: Population,
    model: int,
    declared: int,
    *,
    others_declare: bool,
    evidence: str,
    seed: int = 0,
) -> Judgement:
    """The judgement of one declaration, as the service collects its evidence.

    Args:
        others_declare: whether the other fine-tunes declare their true bases.
        evidence: ``"kappa"`` in a space of weights, ``"S"`` of supports elsewhere, or that of
            ``"signatures"``.
        seed: of the noise of signatures, which the background has anyway.
    """
    rng = np.random.default_rng(seed)

    def measured(one: int, other: int) -> Estimate:
        exact = space.similarities[one, other]
        if evidence == "signatures":
            seen, error = _noisy(rng, np.array([exact]))
            return Estimate(float(seen[0]), float(error[0]))
        beyond = float(space.kappas[one, other]) if evidence == "kappa" else None
        return Estimate(float(exact), 0.0, beyond)

    declarations = {
        each: base
        for each, base in enumerate(space.bases)
        if others_declare and each != base and each != model
    } | {model: declared}
    others = [each for each in range(len(space.bases)) if each != model]
    relatives = {each for each in others if _related(declarations, each, model)}
    nearest = sorted(others, key=lambda each: -space.similarities[model, each])
    rivals = [each for each in nearest[:25] if each not in relatives]
    strangers = [each for each in others if each not in relatives]
    unrelated = len(strangers) >= 3
    behind = strangers if unrelated else [each for each in others if each != declared]
    seen, errors = _noisy(rng, space.similarities[model, behind])
    return judge(
        measured(model, declared),
        [Rival(measured(model, each), measured(declared, each)) for each in rivals],
        Background.of_unrelated(seen, errors, np.ones(seen.size, np.int64)),
        unrelated=unrelated,
        runner_up=next((measured(model, each) for each in nearest if each != declared), None),
    )


def _related(declarations: dict[int, int], each: int, model: int) -> bool:
    """Whether a model is the declared base, or declares the same one."""
    declared = declarations[model]
    return each == declared or declarations.get(each) == declared


def _noisy(rng: np.random.Generator, similarities: Floats) -> tuple[Floats, Floats]:
    """Similarities as signatures estimate them, with their standard errors."""
    jaccard = rng.binomial(NUM_PERM, similarities / (2 - similarities)) / NUM_PERM
    variance = np.maximum(jaccard * (1 - jaccard), 1 / NUM_PERM) / NUM_PERM
    return 2 * jaccard / (1 + jaccard), 2 / (1 + jaccard) ** 2 * np.sqrt(variance)


@cache
def two_families(seed: int) -> Population:
    """Two families of 20: a base and 19 fine-tunes each."""
    return planted(seed, (19, 19))


@cache
def half(seed: int) -> Population:
    """40 models, of which half are fine-tunes of the first."""
    return planted(seed, (20,), 19)


@cache
def most(seed: int) -> Population:
    """40 models, of which four fifths are fine-tunes of the first."""
    return planted(seed, (32,), 7)


@cache
def all_of_one(seed: int) -> Population:
    """One family of 40, and one stranger that a model declares."""
    return planted(seed, (39,), 1)


SPACES = (two_families, half, most, all_of_one)
EVERY = pytest.mark.parametrize("make", SPACES, ids=lambda make: make.__name__)
DECLARED = pytest.mark.parametrize("others_declare", [True, False], ids=["declared", "undeclared"])


def verdicts(
    make: Callable[[int], Population], *, true: bool, others_declare: bool, evidence: str
) -> list[str]:
    """The verdicts for one fine-tune of the first family in each of the seeded spaces."""
    found: list[str] = []
    for seed in range(CASES):
        space = make(seed)
        wrong = [each for each, base in enumerate(space.bases) if each == base != 0]
        declared = 0 if true else wrong[seed % len(wrong)]
        model = 1 + seed % (space.bases.count(0) - 1)
        judgement = judged(
            space, model, declared, others_declare=others_declare, evidence=evidence, seed=seed
        )
        found.append(judgement.verdict)
    return found


EVIDENCE = pytest.mark.parametrize("evidence", ["kappa", "S"])


@pytest.mark.slow
@EVERY
@DECLARED
@EVIDENCE
def test_a_wrong_base_is_contradicted_in_any_company(
    make: Callable[[int], Population], others_declare: bool, evidence: str
) -> None:
    """The base of another family, or a stranger, is a mismatch, and never consistent."""
    found = verdicts(make, true=False, others_declare=others_declare, evidence=evidence)
    assert "consistent" not in found
    assert found.count("mismatch") >= 0.95 * CASES


@pytest.mark.slow
@EVERY
@DECLARED
@EVIDENCE
def test_a_true_base_is_confirmed(
    make: Callable[[int], Population], others_declare: bool, evidence: str
) -> None:
    """It is never contradicted.

    Nearly always it is consistent, unless S alone is known of a space whose models are all kin and
    do not declare it: then nothing distinguishes it from a stranger in a space of strangers.
    """
    found = verdicts(make, true=True, others_declare=others_declare, evidence=evidence)
    assert "mismatch" not in found
    if evidence == "kappa" or others_declare or make is not all_of_one:
        assert found.count("consistent") >= 0.95 * CASES


@pytest.mark.slow
@EVERY
def test_signatures_alone_contradict_no_true_base(make: Callable[[int], Population]) -> None:
    """With 256 minhashes for each similarity, a true base is never a mismatch, and a wrong one
    never consistent.
    """
    for others_declare in (True, False):
        for true, never in ((True, "mismatch"), (False, "consistent")):
            found = verdicts(make, true=true, others_declare=others_declare, evidence="signatures")
            assert never not in found


@pytest.mark.slow
def test_the_planted_strangers_overlap_by_chance() -> None:
    """Strangers have S of .1 to .4 and a kappa of about 0, and fine-tunes far more."""
    spaces = [two_families(seed) for seed in range(CASES)]
    strange = np.array([s.similarities[0, 20:] for s in spaces])
    assert (strange.min() > 0.1, strange.max() < 0.4) == (True, True)
    assert abs(np.mean([s.kappas[0, 20:] for s in spaces])) < 0.005
    assert min(s.kappas[0, 1:20].min() for s in spaces) > 0.4


def test_two_populations_have_the_limit_of_the_lower() -> None:
    """Half of the models are kin: the limit stays near the strangers, and never beyond 1."""
    for seed in range(CASES):
        seen = two_families(seed).similarities[1, 2:]
        once = np.ones(seen.size, np.int64)
        found = Background.of_unrelated(seen, np.zeros(seen.size), once)
        assert (19, 20) < (found.models, 21)
        assert found.limit < seen[18:].max() + 0.1
        assert Background.robust(seen, np.zeros(seen.size), once).limit <= 1
