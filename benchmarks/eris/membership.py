"""Measure who can say what a client trained on: by shards, by sums, and by the global model.

Each client has 16 samples, and 16 canaries that are in or out by a fair coin (one-run auditing).
It takes one step on all of them a round. An aggregator knows the model of each round, its shard,
and the canaries; its scores are summed over the rounds. Scores:

- *loss*, the literature's: of the canary under the model with the shard's values put in;
- *alignment*: the inner product of the shard with the canary's own gradient on its coordinates;
- *least squares*: the weights of all canaries' gradients that together fit the shard best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.eris.data import Dataset, digits, given
from benchmarks.eris.networks import mlp
from benchmarks.report import Findings, Row, Table
from demo.data import deal
from modelkin.federation.shards.draws import stream
from modelkin.federation.shards.partition import Partition
from modelkin.federation.shards.thinning import Thinning
from modelkin.torch.privacy.flat_network import FlatNetwork
from modelkin.torch.privacy.membership import alignment, least_squares
from modelkin.torch.privacy.metrics import auc, auc_error

LIBRARIES = ("numpy", "torch", "scikit-learn")

N, KNOWN, CANARIES, ROUNDS, RATE = 20, 16, 16, 60, 0.5
SHARDS: Final = (1, 5, 10, 50, 200)
SUMS: Final = (3, 5, 10, 20)
HEAVY, HEAVY_SHARES = 10, (0.25, 0.5, 0.75, 0.9)
"""A sum in which the attacked client has more than its part of the weight."""

ONE_IN: Final = 16

Scores = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class View:
    """The view of an attacker: a shard, one value in c of it, a sum, or the model alone.

    With ``shards`` of 0 it is the global model, as every client has it.
    """

    score: str
    shards: int = 1
    one_in: int = 1
    summed: int = 1
    share: float = 0.0
    """The share of the attacked client in a sum; 0 for as much as all others."""
    anew: bool = False
    """Whether shards are cut anew each round, so that an aggregator has other values each time."""


GLOBAL: Final = View("loss", 0)
NEXT: Final = View("alignment", 0)
"""The difference of two global models in a row: the sum over all clients."""


@dataclass(frozen=True)
class Client:
    """One client's samples, and its canaries with their coins."""

    inputs: Tensor
    labels: Tensor
    canary_inputs: Tensor
    canary_labels: Tensor
    truth: npt.NDArray[np.bool_]


def run(quick: bool) -> Findings:
    """Attack the rounds of a training, at several shards and sums."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    rows, tables = [], []
    for data in [digits(), *given()]:
        seeds, rounds = (1, 2) if quick else (3, ROUNDS)
        shards = (1, 10) if quick else SHARDS
        found = areas(data, seeds, rounds, shards)
        judged, canaries = data.name == "digits" and not quick, seeds * N * CANARIES
        rows += _judged(data.name, found, shards, canaries, judged=judged)
        tables += [_by_shards(data.name, found, shards), _by_sums(data.name, found)]
    return Findings(rows, tables)


def areas(data: Dataset, seeds: int, rounds: int, shards: Iterable[int]) -> dict[View, float]:
    """The area under the ROC curve of each view, over all clients of all trainings."""
    scores: dict[View, list[Scores]] = defaultdict(list)
    truths: list[npt.NDArray[np.bool_]] = []
    for seed in range(seeds):
        clients, _ = dealt(data, seed)
        summed = _training(data, clients, seed, rounds, tuple(shards))
        truths.append(np.concatenate([client.truth for client in clients]))
        for view, rows in summed.items():
            scores[view].append(rows.ravel())
    truth = np.concatenate(truths)
    return {view: auc(np.concatenate(found), truth) for view, found in scores.items()}


def dealt(
    data: Dataset,
    seed: int,
    count: int = N,
    known: int = KNOWN,
    canaries: int = CANARIES,
    alpha: float | None = None,
) -> tuple[list[Client], Tensor]:
    """Clients with samples and canaries of their own, and the rows that none of them has.

    The first ``known`` samples of a client are no canaries. With ``alpha`` the labels of each
    client are mixed by Dirichlet(alpha), those of its canaries likewise.
    """
    rng = np.random.default_rng(seed)
    order, used = rng.permutation(len(data.labels)), count * (known + canaries)
    rows = order[:used].reshape(count, -1)
    if alpha is not None:
        rows = _unlike(data.labels.numpy()[order[:used]], count, alpha, rng, order[:used])
    clients = []
    for row in rows:
        truth = rng.random(canaries) < 0.5
        mine = torch.from_numpy(np.concatenate([row[:known], row[known:][truth]]))
        among = torch.from_numpy(row[known:])
        clients.append(
            Client(
                data.inputs[mine], data.labels[mine],
                data.inputs[among], data.labels[among], truth,
            )
        )  # fmt: skip
    return clients, torch.from_numpy(order[used:])


def _unlike(
    labels: Places, count: int, alpha: float, rng: np.random.Generator, rows: Places
) -> Places:
    """All of these rows, dealt by Dirichlet mixes of labels, each client's in random order."""
    classes = labels.max() + 1
    stock = [rows[labels == label] for label in range(classes)]
    counts = deal(np.array([len(each) for each in stock]), count, alpha, rng)
    ends = np.cumsum(counts, axis=0)
    return np.stack(
        [
            rng.permutation(
                np.concatenate([stock[c][end[c] - row[c] : end[c]] for c in range(classes)])
            )
            for row, end in zip(counts, ends, strict=True)
        ]
    )


def _training(
    data: Dataset, clients: list[Client], seed: int, rounds: int, shards: tuple[int, ...]
) -> dict[View, Scores]:
    """The scores of all canaries, summed over the rounds, shape ``(N, CANARIES)`` a view."""
    network = mlp(data.inputs[0].numel(), data.classes, seed=seed)
    flat = FlatNetwork(network, cross_entropy)
    summed: dict[View, Scores] = defaultdict(lambda: np.zeros((N, CANARIES)))
    for number in range(rounds):
        updates = torch.stack([-RATE * flat.gradient(c.inputs, c.labels) for c in clients])
        gradients = [flat.sample_gradients(c.canary_inputs, c.canary_labels) for c in clients]
        for view, place, scores in _round(flat, clients, updates, gradients, number, shards, seed):
            summed[view][place] += standardized(scores)
        start = 0
        for parameter in network.parameters():
            part = updates.mean(0)[start : start + parameter.numel()]
            parameter.data += part.view_as(parameter)
            start += parameter.numel()
        flat = FlatNetwork(network, cross_entropy)
    return summed


def _round(
    flat: FlatNetwork,
    clients: list[Client],
    updates: Tensor,
    gradients: list[Tensor],
    number: int,
    shards: tuple[int, ...],
    seed: int,
) -> Iterator[tuple[View, int, Tensor]]:
    """Each view's scores of each client's canaries in one round."""
    everything = torch.arange(flat.size)
    partitions = {count: Partition(flat.size, count, seed) for count in shards}
    anew = {count: Partition(flat.size, count, stream(seed, number)) for count in shards}
    for place, client in enumerate(clients):
        own = gradients[place]
        yield GLOBAL, place, _minus_losses(flat, flat.weights, client)
        for count in SUMS:
            first = place // count * count
            if first + count <= N:
                total = updates[first : first + count].mean(0)
                yield View("alignment", summed=count), place, alignment(own, total)
        first = place // HEAVY * HEAVY
        others = updates[[at for at in range(first, first + HEAVY) if at != place]].mean(0)
        for share in HEAVY_SHARES:
            total = share * updates[place] + (1 - share) * others
            view = View("alignment", summed=HEAVY, share=share)
            yield view, place, alignment(own, total)
        yield NEXT, place, alignment(own, updates.mean(0))
        for count, partition in partitions.items():
            shard = place % count
            at = torch.from_numpy(partition.indices(shard)) if count > 1 else everything
            yield from _of_shard(flat, client, own, updates[place], at, View("", count), place)
            if count > 1:
                other = torch.from_numpy(anew[count].indices(shard))
                scores = least_squares(own[:, other], updates[place, other])
                yield View("least squares", count, anew=True), place, scores
            drawn = stream(seed, number, place, shard)
            few = at[torch.from_numpy(Thinning(len(at), ONE_IN, drawn).positions)]
            if len(few) > 1:
                view = View("alignment", count, ONE_IN)
                yield view, place, alignment(own[:, few], updates[place, few])


def _of_shard(
    flat: FlatNetwork,
    client: Client,
    own: Tensor,
    update: Tensor,
    at: Tensor,
    view: View,
    place: int,
) -> Iterator[tuple[View, int, Tensor]]:
    seen = update[at]
    yield View("alignment", view.shards), place, alignment(own[:, at], seen)
    yield View("least squares", view.shards), place, least_squares(own[:, at], seen)
    weights = flat.weights.index_add(0, at, seen)
    yield View("loss", view.shards), place, _minus_losses(flat, weights, client)


def _minus_losses(flat: FlatNetwork, weights: Tensor, client: Client) -> Tensor:
    return -flat.losses(weights, client.canary_inputs, client.canary_labels)


def standardized(scores: Tensor) -> Scores:
    """The scores of one client's canaries with mean 0 and deviation 1, so that rounds add up."""
    found = scores.double().numpy()
    centered: Scores = (found - found.mean()) / (found.std() + 1e-12)
    return centered


# --- what is reported ----------------------------------------------------------------------------


def _judged(
    name: str, found: dict[View, float], shards: tuple[int, ...], canaries: int, *, judged: bool
) -> list[Row]:
    fewest, most = min(shards), max(each for each in shards if each <= 50)
    seen, whole, shown = found[View("alignment", most)], found[View("alignment")], found[GLOBAL]
    loss = found[View("loss", most)]
    rows = [
        Row(
            f"{name}: AUC of alignment on one of {most} shards",
            f"{seen:.3f}",
            f"{other}: {value:.3f}",
            f"{seen - value:+.3f}",
            f"≥ {least:+.2f}" if judged else "",
            seen - value >= least if judged else None,
        )
        for other, value, least in (
            (f"A = {fewest}", whole, -0.1),
            ("global model", shown, 0.05),
            (f"the literature's score, A = {most}", loss, 0.05),
        )
    ]
    for count in (10, 20):
        area = found[View("alignment", summed=count)]
        error = 2 * auc_error(shown, canaries // 2, canaries // 2)
        rows.append(
            Row(
                f"{name}: AUC of alignment on sums of {count}",
                f"{area:.3f}",
                f"global model: {shown:.3f}",
                f"{area - shown:+.3f}",
                f"≤ {error:.2f}, two standard errors" if judged else "",
                area - shown <= error if judged else None,
            )
        )
    return rows


def _by_shards(name: str, found: dict[View, float], shards: tuple[int, ...]) -> Table:
    scores = ("loss", "alignment", "least squares")
    rows = [
        [
            str(count),
            *(f"{found[View(score, count)]:.3f}" for score in scores),
            _shown(found.get(View("alignment", count, ONE_IN))),
            _shown(found.get(View("least squares", count, anew=True))),
        ]
        for count in shards
    ]
    rows.append(["global model", f"{found[GLOBAL]:.3f}", f"{found[NEXT]:.3f}", "", "", ""])
    return Table(
        f"Membership on {name}, AUC of scores summed over the rounds, by what an aggregator has "
        f"of one client",
        [
            "A", "loss", "alignment", "least squares", f"alignment, c = {ONE_IN}, own masks",
            "least squares, cut anew",
        ],
        rows,
    )  # fmt: skip


def _by_sums(name: str, found: dict[View, float]) -> Table:
    rows = [["1", f"{found[View('alignment', 1)]:.3f}"]]
    rows += [[str(count), _shown(found.get(View("alignment", summed=count)))] for count in SUMS]
    rows += [
        [
            f"{HEAVY}, with {share:.0%} of the weight on the attacked one",
            f"{found[View('alignment', summed=HEAVY, share=share)]:.3f}",
        ]
        for share in HEAVY_SHARES
    ]
    rows.append(["global model, by its loss", f"{found[GLOBAL]:.3f}"])
    return Table(
        f"Membership on {name}, AUC of alignment with concealed sums", ["clients summed", "AUC"],
        rows,
    )  # fmt: skip


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
