"""Measure adapters of different ranks in a federation: who finds whom, and which mean serves.

Twelve clients adapt a small transformer to three dialects, four to each, by LoRA of the ranks 2, 4,
8 and 16 (``dialects``). They are grouped by their supports after the first round, and averaged in
each group by several ways for some rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from torch import Tensor

from benchmarks.federation.dialects import (
    GROUPS,
    RANKS,
    SCALE,
    SHAPES,
    Clients,
    Factors,
    begin,
    clients_of,
    factors_of,
    fisher,
    losses,
    tensors_of,
    train,
)
from benchmarks.report import Findings, Table
from modelkin import Support, select_support, similarity
from modelkin.core.clustering.linkage import Division, groups
from modelkin.federation.adapters import (
    Adapter,
    LowRank,
    of_rank,
    read_adapter,
    stacked_mean,
    write_adapter,
)
from modelkin.torch import select_adapter_support
from studies.measures import interval, mean_of

LIBRARIES = ("numpy", "torch", "scikit-learn")

FRACTION: Final = 0.1
"""K, as a share of the parameters that an adapter targets."""

TENSORS: Final = {f"{name}.weight": shape for name, shape in SHAPES.items()}
"""The layers by the names that adapters have of them."""

Integers: TypeAlias = npt.NDArray[np.int64]
Mean: TypeAlias = Callable[[Sequence[Adapter]], Adapter]
Cut: TypeAlias = Callable[[Adapter, int], Adapter]


@dataclass(frozen=True)
class Way:
    """A way to average the adapters of a group.

    Attributes:
        mean: of a group's adapters.
        cut: the mean in a client's rank, from which it goes on.
        grouped: whether groups are averaged; else all clients, or with None nobody.
        merged: whether the mean is added to the base in each round, and all begin anew.
    """

    mean: Mean
    cut: Cut
    grouped: bool | None = True
    merged: bool = False


def exact(adapters: Sequence[Adapter]) -> Adapter:
    """The mean of the differences."""
    return stacked_mean(dict(enumerate(adapters)))


def best(adapter: Adapter, rank: int) -> Adapter:
    """The best adapter of a rank."""
    return of_rank(adapter, rank).adapter


def first_rows(adapter: Adapter, rank: int) -> Adapter:
    """The first rows of A and columns of B, as HetLoRA truncates."""
    return {name: LowRank(each.b[:, :rank], each.a[:rank]) for name, each in adapter.items()}


def of_factors(adapters: Sequence[Adapter], *, padded: bool) -> Adapter:
    """The means of A and of B: over all, zeros for missing rows, or over those that have a row."""
    found = {}
    for name, (out, inner) in TENSORS.items():
        b, a = np.zeros((out, max(RANKS))), np.zeros((max(RANKS), inner))
        count = np.zeros(max(RANKS))
        for each in adapters:
            rank = each[name].rank
            b[:, :rank] += each[name].b
            a[:rank] += each[name].a
            count[:rank] += 1
        share = np.full(max(RANKS), len(adapters)) if padded else np.maximum(count, 1)
        found[name] = LowRank(b / share, a / share[:, None])
    return found


WAYS: Final = {
    "each alone": Way(exact, best, grouped=None),
    "exact, of all clients": Way(exact, best, grouped=False),
    "exact (stacked), each client in its rank": Way(exact, best),
    "exact, merged into the base each round (FLoRA)": Way(exact, best, merged=True),
    "of rank 8": Way(lambda adapters: best(exact(adapters), 8), best),
    "of rank 4": Way(lambda adapters: best(exact(adapters), 4), best),
    "means of A and of B, of those that have a row": Way(
        lambda adapters: of_factors(adapters, padded=False), first_rows
    ),
    "means of A and of B, padded with zeros (HetLoRA's)": Way(
        lambda adapters: of_factors(adapters, padded=True), first_rows
    ),
}


@dataclass
class Figures:
    """What was measured, a value for each seed."""

    kin: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    perplexity: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    errors: dict[tuple[str, str], list[float]] = field(default_factory=dict)


def run(quick: bool) -> Findings:
    """Measure kin, means and errors."""
    torch.set_num_threads(1)
    seeds, rounds, steps = (1, 2, 2) if quick else (5, 3, 30)
    figures = Figures()
    for seed in range(seeds):
        clients = clients_of(seed, steps=4 if quick else 600, tests=4 if quick else 100)
        _measure(clients, seed, rounds, steps, figures)
    return Findings([], [_kin(figures), _means(figures, rounds, seeds), _errors(figures)])


def _measure(clients: Clients, seed: int, rounds: int, steps: int, figures: Figures) -> None:
    first = train(clients, begin(clients, seed), seed, steps=steps)
    apart = train(clients, begin(clients, seed, alike=False), seed, steps=steps)
    fishers = [select_support(each, fraction=FRACTION) for each in fisher(clients)]
    by_update = _supports(clients, first)
    for what, supports in (
        (r"\|BA\|, all began with the same A", by_update),
        (r"\|BA\|, each began with its own A", _supports(clients, apart)),
        ("Fisher of the base, before any adapter", fishers),
    ):
        for name, value in _kinship(clients, supports):
            figures.kin.setdefault((what, name), []).append(value)
    found = Division(GROUPS, None).groups(_matrix(by_update))[0]
    for name, way in WAYS.items():
        _average(clients, way, name, found, first, rounds, steps, seed, figures)
    figures.perplexity.setdefault(("the dialects themselves", MEAN), []).append(
        float(clients.floor.mean())
    )


MEAN, OWN, ERROR = "the mean itself", "in each client's rank", "error of the mean"


def _average(
    clients: Clients,
    way: Way,
    name: str,
    found: Integers,
    factors: Factors,
    rounds: int,
    steps: int,
    seed: int,
    figures: Figures,
) -> None:
    """Average for some rounds; the first round's training is the same for all ways."""
    count = len(clients.ranks)
    if way.grouped is None:
        parts = np.arange(count)
    else:
        parts = found if way.grouped else np.zeros(count, np.int64)
    labels = [int(part) for part in parts]
    added = {each: torch.zeros(count, *shape) for each, shape in SHAPES.items()}
    for number in range(rounds):
        if number:
            factors = train(clients, factors, seed + 1000 * number, steps=steps, added=added)
        adapters = _adapters(clients, factors)
        held = {part: [adapters[n] for n in np.flatnonzero(parts == part)] for part in set(labels)}
        means = {part: way.mean(each) for part, each in held.items()}
        if number == 0 and way.grouped:
            _note_errors(name, means, {part: exact(each) for part, each in held.items()}, figures)
        whole = [means[part] for part in labels]
        own = [way.cut(mean, int(rank)) for mean, rank in zip(whole, clients.ranks, strict=True)]
        if way.merged:
            added = _sum(added, _dense(whole))
            factors = begin(clients, seed)
        else:
            factors = _factors(clients, own, like=factors)
    for what, each in ((MEAN, whole), (OWN, own)):
        total = added if way.merged else _dense(each)
        per_client = np.exp(losses(clients, total))
        figures.perplexity.setdefault((name, what), []).append(float(per_client.mean()))
        for rank in RANKS:
            of = float(per_client[clients.ranks == rank].mean())
            figures.perplexity.setdefault((name, f"{what}, {rank}"), []).append(of)


def _note_errors(
    name: str, means: Mapping[int, Adapter], whole: Mapping[int, Adapter], figures: Figures
) -> None:
    """The relative errors of the first round's means, and of their best adapters of each rank."""
    found = [_far(means[part], whole[part]) for part in means]
    figures.errors.setdefault((name, ERROR), []).append(float(np.mean(found)))
    if name.startswith("exact (stacked)"):
        for rank in RANKS:
            stated = [of_rank(each, rank).error for each in means.values()]
            key = (name, f"cut to rank {rank}")
            figures.errors.setdefault(key, []).append(float(np.mean(stated)))


def _far(one: Adapter, other: Adapter) -> float:
    """The Frobenius norm of a difference over that of the second adapter."""
    lost = [np.linalg.norm(one[name].product() - other[name].product()) for name in TENSORS]
    whole = [np.linalg.norm(other[name].product()) for name in TENSORS]
    return float(np.linalg.norm(lost) / np.linalg.norm(whole))


def _adapters(clients: Clients, factors: Factors) -> list[Adapter]:
    return [
        read_adapter(tensors_of(clients, factors, number)) for number in range(len(clients.ranks))
    ]


def _factors(clients: Clients, adapters: Sequence[Adapter], like: Factors) -> Factors:
    """The factors with which each client goes on; those of a full rank are taken as they are."""
    held = []
    for number, adapter in enumerate(adapters):
        form = tensors_of(clients, like, number)
        if all(each.rank == clients.ranks[number] for each in adapter.values()):
            for name, each in adapter.items():
                module = name.removesuffix(".weight")
                root = SCALE**0.5
                form[f"{module}.lora_A.weight"] = (each.a / root).astype(np.float32)
                form[f"{module}.lora_B.weight"] = (each.b / root).astype(np.float32)
            held.append(form)
        else:
            held.append(write_adapter(adapter, form))
    return factors_of(held)


def _dense(adapters: Sequence[Adapter]) -> dict[str, Tensor]:
    return {
        name: torch.from_numpy(
            np.stack([each[f"{name}.weight"].product() for each in adapters]).astype(np.float32)
        )
        for name in SHAPES
    }


def _sum(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: each + other[name] for name, each in one.items()}


# --- kin ------------------------------------------------------------------------------------


def _supports(clients: Clients, factors: Factors) -> list[Support]:
    """The supports of |BA| of all clients."""
    found = []
    for number in range(len(clients.ranks)):
        held = tensors_of(clients, factors, number)
        tensors = {name: torch.from_numpy(each) for name, each in held.items()}
        found.append(select_adapter_support(tensors, fraction=FRACTION))
    return found


def _matrix(supports: Sequence[Support]) -> npt.NDArray[np.float64]:
    return np.array([[similarity(one, other) for one in supports] for other in supports])


def _kinship(clients: Clients, supports: Sequence[Support]) -> Iterator[tuple[str, float]]:
    similar = _matrix(supports)
    pairs = np.triu_indices(len(supports), 1)
    same = (clients.groups[:, None] == clients.groups)[pairs]
    yield AUC, float(roc_auc_score(same, similar[pairs]))
    given = Division(GROUPS, None).groups(similar)[0]
    yield GIVEN, float(adjusted_rand_score(clients.groups, given))
    yield FREE, float(adjusted_rand_score(clients.groups, groups(similar)[0]))


AUC, GIVEN, FREE = "AUC of pairs", "ARI, number given", "ARI, number left free"

# --- tables ---------------------------------------------------------------------------------


def _kin(figures: Figures) -> Table:
    columns = [AUC, GIVEN, FREE]
    rows = [
        [what, *(mean_of(figures.kin[what, each]) for each in columns)]
        for what in dict.fromkeys(what for what, _ in figures.kin)
    ]
    title = "Whether clients of one dialect find each other by their supports, K = 10%"
    return Table(title, ["importance", *columns], rows)


def _means(figures: Figures, rounds: int, seeds: int) -> Table:
    columns = [MEAN, OWN, *(f"{OWN}, {rank}" for rank in RANKS)]
    rows = [
        [name, *(_shown(figures.perplexity.get((name, each), ())) for each in columns)]
        for name in dict.fromkeys(name for name, _ in figures.perplexity)
    ]
    return Table(
        f"Perplexity of each client's dialect after {rounds} rounds ({seeds} seeds)",
        ["mean", MEAN, "in each client's rank", *(f"rank {rank}" for rank in RANKS)],
        rows,
    )


def _shown(values: Sequence[float]) -> str:
    """Two decimals are enough for a perplexity."""
    if not values:
        return ""
    mean, margin = interval(values)
    return f"{mean:.2f}" if np.isinf(margin) else f"{mean:.2f} ± {margin:.2f}"


def _errors(figures: Figures) -> Table:
    rows = [
        [name if what == ERROR else what, mean_of(found)]
        for (name, what), found in figures.errors.items()
    ]
    return Table(
        "What the means of the first round lack of the exact mean, in the Frobenius norm",
        ["mean", "relative error"],
        rows,
    )
