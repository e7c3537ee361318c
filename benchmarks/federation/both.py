"""Measure two aggregates in one round, and layers that stay with each client.

All ways get the same clients, first weights and number of local epochs. Clients are tested on
samples of their own, with the model that the next message would give them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.report import Findings, Row, Table
from demo.cohort import Cohort, Weights
from demo.planted import GROUPS
from modelkin.core.clustering.linkage import Division
from modelkin.core.packed import PackedSupport
from modelkin.core.selection.selection import select_support
from modelkin.core.similarity.matrix import matrix
from modelkin.federation.learngenes.layers import LayerChoice
from modelkin.federation.mixing import mix
from studies.federations import Federation
from studies.measures import Paired, mean_of, paired
from studies.settings import Setting

LIBRARIES = ("numpy", "torch", "scikit-learn")

SEEDS: Final = 5
ROUNDS: Final = 15
CLIENTS: Final = 20
EPOCHS: Final = 2
"""Of a client in a round."""
HELD_OUT: Final = 5
"""A client that chooses holds out one in so many of its training samples."""

WORDS: Final = {
    "rotations": "images turned",
    "permuted labels": "labels permuted",
    "labels": "labels in four groups",
    "noisy labels": "the same beside 40% of any",
    "dirichlet 0.1": "few labels each: Dir(0.1)",
    "dirichlet 0.3": "labels mixed: Dir(0.3)",
}
"""What clients differ by."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to make a client's model in each round.

    Attributes:
        name: in the tables.
        groups: who is averaged: all, each cluster, or no two clients.
        shares: shares of the cluster's model; of several, that of least loss on held-out samples.
        keeps_head: whether the last layer stays with its client.
        in_phases: whether the head trains first, and then the trunk, half of the epochs each.
    """

    name: str
    groups: Literal["all", "clusters", "alone"] = "clusters"
    shares: tuple[float, ...] = (1.0,)
    keeps_head: bool = False
    in_phases: bool = False

    @property
    def models_down(self) -> int:
        """The models that a client gets in a round."""
        return 0 if self.groups == "alone" else 1 if self.shares == (1.0,) else 2


ONE: Final = Way("one model for all", "all")
CLUSTERS: Final = Way("a model for each cluster")
CHOSEN: Final = Way("both, the better one chosen", shares=(1.0, 0.0))
FEDPER: Final = Way("FedPer", "all", keeps_head=True)
FEDREP: Final = Way("FedRep", "all", keeps_head=True, in_phases=True)
FEDPER_IN_CLUSTERS: Final = Way("FedPer within clusters", keeps_head=True)
PLAIN: Final = (ONE, CLUSTERS, Way("each client alone", "alone"))
BOTH: Final = (
    *(Way(f"both, {share} of the cluster's", shares=(share,)) for share in (0.25, 0.5, 0.75)),
    CHOSEN,
    Way("both, a share chosen of five", shares=(1.0, 0.75, 0.5, 0.25, 0.0)),
)
PERSONAL: Final = (
    FEDPER,
    FEDREP,
    FEDPER_IN_CLUSTERS,
)
WAYS: Final = (*PLAIN, *BOTH, *PERSONAL)

Accuracies = Mapping[tuple[str, str], Sequence[float]]
"""The accuracy of each seed, by scenario and way."""


def run(quick: bool) -> Findings:
    """Measure all ways on each planted structure."""
    torch.set_num_threads(1)
    seeds, rounds = (range(2), 1) if quick else (range(SEEDS), ROUNDS)
    found: dict[tuple[str, str], list[float]] = {}
    for scenario in WORDS:
        for seed in seeds:
            for name, accuracy in measured(scenario, seed, rounds).items():
                found.setdefault((scenario, name), []).append(accuracy)
    return Findings([] if quick else judged(found), tables(found))


def tables(found: Accuracies) -> list[Table]:
    """Accuracies with intervals, bytes, and where each way is better or worse."""
    in_groups, mixed = [*WORDS][:4], [*WORDS][4:]
    return [
        _accuracies("Accuracy of clients in four groups", found, in_groups, {}),
        _accuracies("Accuracy of clients without groups, and bytes", found, mixed, _costs()),
        _gains(found),
    ]


# --- measuring -----------------------------------------------------------------------------------


def measured(scenario: str, seed: int, rounds: int) -> dict[str, float]:
    """The mean accuracy of the clients' own models after some rounds, by way."""
    federation = _federation(scenario, seed)
    clusters, test = clusters_of(federation), (federation.test_samples, federation.test_labels)
    cohort = Cohort(federation.model, federation.samples, federation.labels)
    found = {}
    for way in WAYS:
        weights = trained(federation, clusters, way, rounds)
        found[way.name] = float(cohort.accuracies(weights, *test).mean())
    return found


def _federation(scenario: str, seed: int) -> Federation:
    return Federation.planted(Setting("digits", "mlp", scenario, CLIENTS, seed))


def clusters_of(federation: Federation) -> Tensor:
    """Four clusters by supports at the common weights, ``(N,)``, also where there are no groups."""
    supports = [select_support(each, fraction=0.1) for each in federation.importances]
    similarity = matrix([PackedSupport.pack(each) for each in supports])
    found, _ = Division(n_clusters=GROUPS).groups(similarity)
    return torch.as_tensor(np.asarray(found, np.int64))


def trained(federation: Federation, clusters: Tensor, way: Way, rounds: int) -> Weights:
    """The clients' own models after some rounds, as the next message would give them.

    Args:
        federation: of the clients.
        clusters: of each client, ``(N,)``.
        way: how models are made.
        rounds: how many.
    """
    clients = _Clients(federation, way)
    everybody = torch.zeros_like(clusters)
    groups = {"all": everybody, "clusters": clusters, "alone": torch.arange(len(clusters))}
    own, common, heads = federation.start, federation.start, federation.start
    for number in range(rounds):
        heads = clients.received(own, common, heads)
        clients.train(heads, federation.setting.seed * 1000 + number)
        own, common = averaged(heads, groups[way.groups]), averaged(heads, everybody)
    return clients.received(own, common, heads)


class _Clients:
    """Clients that train the models that a way gives them."""

    def __init__(self, federation: Federation, way: Way) -> None:
        self._way = way
        held = federation.labels.shape[1] // HELD_OUT if len(way.shares) > 1 else 0
        samples, labels = federation.samples, federation.labels
        self._cohort = Cohort(federation.model, samples[:, held:], labels[:, held:])
        self._held = samples[:, :held], labels[:, :held]
        self._trunk = trunk_of(federation)

    def received(self, own: Weights, common: Weights, heads: Weights) -> Weights:
        """A copy of the model of each client: of its cluster's and the common one, its own head."""
        candidates = [_mixed(own, common, share) for share in self._way.shares]
        chosen = self._best(candidates) if len(candidates) > 1 else candidates[0]
        keeps = self._way.keeps_head
        return {
            name: (heads[name] if keeps and name not in self._trunk else values).clone()
            for name, values in chosen.items()
        }

    @torch.no_grad()
    def _best(self, candidates: Sequence[Weights]) -> Weights:
        """The candidate of each client with the least loss on its held-out samples."""
        samples, labels = self._held
        losses = []
        for weights in candidates:
            outputs = self._cohort.outputs(weights, samples)
            each = cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none")
            losses.append(each.view(labels.shape).mean(1))
        best, clients = torch.stack(losses).argmin(0), torch.arange(len(labels))
        stacked = {name: torch.stack([each[name] for each in candidates]) for name in candidates[0]}
        return {name: values[best, clients] for name, values in stacked.items()}

    def train(self, weights: Weights, seed: int) -> None:
        """Train for one round, with the trunk frozen in FedRep's first half, and then the head."""
        generator = torch.Generator().manual_seed(seed)
        if not self._way.in_phases:
            self._cohort.train(weights, EPOCHS, generator)
            return
        for frozen in (True, False):
            kept = {
                name: torch.full_like(values, (name in self._trunk) is frozen, dtype=torch.bool)
                for name, values in weights.items()
            }
            self._cohort.train(weights, EPOCHS // 2, generator, kept=kept)


def trunk_of(federation: Federation) -> set[str]:
    """The names of the parameters of all layers but the last, as learngenes have them."""
    sizes = [(name, each.numel()) for name, each in federation.model.named_parameters()]
    return {name for layer in LayerChoice().choose(sizes) for name in layer.tensors}


def averaged(weights: Weights, groups: Tensor) -> Weights:
    """The mean of each group's models, for each of its clients."""
    same = (groups[:, None] == groups[None]).float()
    shares = same / same.sum(dim=1, keepdim=True)
    return {name: torch.tensordot(shares, values, dims=1) for name, values in weights.items()}


def _mixed(own: Weights, common: Weights, share: float) -> Weights:
    """The product's mix of all clients' models at once."""
    cluster, other = ({n: v.numpy() for n, v in each.items()} for each in (own, common))
    return {n: torch.from_numpy(v) for n, v in mix(cluster, other, share).items()}


# --- judging -------------------------------------------------------------------------------------


def judged(found: Accuracies) -> list[Row]:
    """What was expected before any figure was seen, and what it became."""
    expected = (
        ("noisy labels", BOTH[1], CLUSTERS, 0.0),
        ("permuted labels", CHOSEN, CLUSTERS, -0.02),
        ("labels", CHOSEN, CLUSTERS, -0.02),
        ("dirichlet 0.1", FEDPER, ONE, 0.0),
        ("rotations", FEDPER_IN_CLUSTERS, FEDPER, 0.0),
        ("dirichlet 0.1", FEDREP, FEDPER, 0.0),
    )
    rows = []
    for scenario, ours, other, least in expected:
        mine, theirs = found[scenario, ours.name], found[scenario, other.name]
        gain = paired(mine, theirs)
        rows.append(
            Row(
                f"{WORDS[scenario]}: {ours.name}",
                mean_of(mine),
                f"{other.name}: {mean_of(theirs)}",
                gain.spread,
                f"above {least:g}",
                gain.is_above(least),
            )
        )
    return rows


# --- tables --------------------------------------------------------------------------------------


def _costs() -> dict[str, list[str]]:
    """The kB that a client gets and sends in a round, by way: values of float32 alone."""
    federation = _federation("rotations", 0)
    sizes = {n: 4 * each.numel() for n, each in federation.model.named_parameters()}
    trunk = sum(sizes[name] for name in trunk_of(federation))
    found = {}
    for way in WAYS:
        size, down = trunk if way.keeps_head else sum(sizes.values()), way.models_down
        found[way.name] = [f"{size * down / 1000:.1f}", f"{size * min(down, 1) / 1000:.1f}"]
    return found


def _accuracies(
    title: str, found: Accuracies, scenarios: Sequence[str], costs: Mapping[str, list[str]]
) -> Table:
    best = {scenario: _best_of(found, scenario, WAYS).name for scenario in scenarios}

    def cells(way: Way) -> Iterator[str]:
        for scenario in scenarios:
            text = mean_of(found[scenario, way.name])
            yield f"**{text}**" if best[scenario] == way.name else text

    columns = ["way", *(WORDS[each] for each in scenarios)]
    columns += ["kB to a client", "kB from it"] if costs else []
    return Table(title, columns, [[w.name, *cells(w), *costs.get(w.name, [])] for w in WAYS])


def _gains(found: Accuracies) -> Table:
    """Each way that is new here, less the best of the plain ones, by seed."""
    rows = []
    for way in (*BOTH, *PERSONAL):
        gains = [_gain(found, scenario, way) for scenario in WORDS]
        ahead = [WORDS[s] for s, gain in zip(WORDS, gains, strict=True) if _wins(gain)]
        behind = [WORDS[s] for s, gain in zip(WORDS, gains, strict=True) if _loses(gain)]
        rows.append([way.name, _listed(ahead), _listed(behind)])
    title = "Beside the best plain way of each: one model, clusters, or alone (95% intervals)"
    return Table(title, ["way", "better on", "worse on"], rows)


def _gain(found: Accuracies, scenario: str, way: Way) -> Paired:
    best = _best_of(found, scenario, PLAIN)
    return paired(found[scenario, way.name], found[scenario, best.name])


def _best_of(found: Accuracies, scenario: str, ways: Sequence[Way]) -> Way:
    means = [np.mean(found[scenario, way.name]) for way in ways]
    return ways[int(np.argmax(means))]


def _wins(gain: Paired) -> bool:
    return gain.decided and gain.mean > 0


def _loses(gain: Paired) -> bool:
    return gain.decided and gain.mean < 0


def _listed(words: Sequence[str]) -> str:
    return "; ".join(words) or "-"
