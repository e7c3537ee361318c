"""Measure what each method learns against what its receiver can say of who was in.

Clients and canaries are those of the membership's figures, one step a round. Every receiver is
attacked by the same scores, summed over the rounds, on no more than it has; the best one counts:

- *alignment*, *least squares* and *ridge*: how the canaries' gradients at its model fit its values,
  on its coordinates. With sums, candidates of one client are known, or those of all;
- *loss*: of the canaries under its model with the values put in, and under its model alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.eris.data import Clients, Dataset, digits, given
from benchmarks.eris.membership import (
    CANARIES,
    KNOWN,
    RATE,
    ROUNDS,
    Client,
    N,
    Scores,
    dealt,
    standardized,
)
from benchmarks.eris.networks import Flat, mlp
from benchmarks.eris.receivers import SUM, Seen
from benchmarks.eris.trainings import GLOBAL, TRAININGS, Start, Training, of_noise
from benchmarks.plots import Point, draw_panels
from benchmarks.report import Findings, Row, Table
from modelkin.torch.privacy.membership import alignment, least_squares
from modelkin.torch.privacy.metrics import auc

LIBRARIES = ("numpy", "torch", "scikit-learn")

PLOT = Path(__file__).parents[2] / "docs" / "benchmarks" / "leakage.svg"

SEEDS = 3
LAST = 5
"""The rounds at the end whose models' accuracies are averaged."""

RIDGES: Final = (1e-3, 1e-2)
"""Shares of the Gram matrix's trace that a ridge adds to its diagonal."""

SIZES: Final = {4: 8, 16: 3, 64: 3, 128: 3}
"""Samples of a client, and the seeds that give 480 canaries."""

MOST = 0.7
"""The AUC at which accuracies are compared."""

SIZE_CLIENTS, SIZE_ROUNDS, SIZE_SIGMA = 10, 20, 0.1

Area = Callable[["Leak"], float]

ALONE = f"{SUM}, one client's candidates"
"""The same sums, where candidates of the attacked client alone are known."""


@dataclass(frozen=True, slots=True)
class Leak:
    """What a method learns and shows.

    Attributes:
        family: of methods that differ by strength alone.
        name: in the table.
        accuracy: mean over the seeds.
        spread: its deviation.
        area: under the ROC curve of the best attack.
        attack: which that is.
        alone: the same where candidates of the attacked client alone are known.
    """

    family: str
    name: str
    accuracy: float
    spread: float
    area: float
    attack: str
    alone: float


@dataclass(frozen=True, slots=True)
class Size:
    """How many clients there are, and what each has."""

    clients: int = N
    known: int = KNOWN
    canaries: int = CANARIES


DEFAULT: Final = Size()


class Attack:
    """The scores of all canaries of one training, summed over its rounds.

    Args:
        flat: the network.
        clients: with their canaries.
    """

    def __init__(self, flat: Flat, clients: list[Client]) -> None:
        self._flat = flat
        self._inputs = torch.stack([client.canary_inputs for client in clients])
        self._labels = torch.stack([client.canary_labels for client in clients])
        self._pending: dict[str, Tensor] = {}
        shape = self._labels.shape
        self.scores: dict[tuple[str, str], Scores] = defaultdict(lambda: np.zeros(shape))
        """By view and attack, of shape ``(n, canaries)``; without a view, of the model alone."""

    def gradients(self, models: Tensor) -> Tensor:
        """Those of each client's canaries at the model of its row."""
        return self._flat.sample_gradients(models, self._inputs, self._labels)

    def round(self, models: Tensor, gradients: Tensor, views: Iterable[Seen]) -> None:
        """Score the views of a round.

        Args:
            models: of the receivers, one a client.
            gradients: of the clients' canaries at these.
            views: what the receivers have.
        """
        wide = gradients.double()
        self._add("", "loss of the model", self._minus_losses(models))
        by_view: dict[str, list[Seen]] = defaultdict(list)
        for seen in views:
            by_view[seen.view].append(seen)
        for view, group in by_view.items():
            held = wide
            if group[0].since:
                held = self._pending[view] = self._pending.get(view, 0) + wide
            put = models.clone()
            for seen in group:
                places = slice(None) if seen.sender is None else slice(seen.sender, seen.sender + 1)
                own = held[places] if len(seen.at) == held.shape[2] else held[places, :, seen.at]
                self._fit(view, seen.values, own, places)
                if seen.sender is None:
                    for place in range(len(own)):
                        alone = slice(place, place + 1)
                        self._fit(ALONE, seen.values, own[alone], alone)
                put[places, seen.at] += seen.values
                if seen.since:
                    held[places, :, seen.at] = 0
            whose = ALONE if view == SUM else view
            self._add(whose, "loss", self._minus_losses(put))

    def _fit(self, view: str, values: Tensor, own: Tensor, places: slice) -> None:
        """Score by the gradients of some clients' canaries, on the seen coordinates."""
        if not len(values):
            return
        gradients = own.flatten(0, 1)
        found = {
            "alignment": alignment(gradients, values),
            "least squares": least_squares(gradients, values),
            **ridges(gradients, values),
        }
        for attack, scores in found.items():
            self._add(view, attack, scores.view(len(own), -1), places)

    def _minus_losses(self, models: Tensor) -> Tensor:
        outputs = torch.vmap(self._flat.outputs)(models, self._inputs)
        return -cross_entropy(outputs.mT, self._labels, reduction="none")

    def _add(self, view: str, attack: str, scores: Tensor, places: slice = slice(None)) -> None:
        self.scores[view, attack][places] += np.stack([standardized(row) for row in scores])


def ridges(gradients: Tensor, seen: Tensor) -> dict[str, Tensor]:
    """Least squares that expect small weights, for values with noise or from other samples."""
    gram, aligned = gradients @ gradients.T, alignment(gradients, seen)
    one = (gram.diagonal().sum() + 1e-30) * torch.eye(len(gram), dtype=gram.dtype)
    return {
        f"ridge, {share:.1%}": torch.linalg.solve(gram + share * one, aligned) for share in RIDGES
    }


def train(
    data: Dataset, start: Start, rounds: int, seed: int, size: Size
) -> tuple[float, dict[tuple[str, str], Scores], list[Client]]:
    """The accuracy on what no client has, the scores, and the clients with their coins."""
    clients, rest = dealt(data, seed, size.clients, size.known, size.canaries)
    flat = Flat(mlp(data.inputs[0].numel(), data.classes, seed=seed))
    attack, exchange = Attack(flat, clients), start(flat.size, len(clients), seed)
    inputs, labels, share = _stacked(clients, size.known)
    test = Clients(inputs, labels, data.inputs[rest], data.labels[rest])
    models, accuracies = flat.start.expand(len(clients), -1), []
    for number in range(rounds):
        gradients = flat.sample_gradients(models, inputs, labels)
        updates = -RATE * torch.einsum("ks,ksm->km", share, gradients)
        after = exchange(models, updates, number)
        looking, theirs = models.roll(-1, 0), gradients[:, size.known :]
        if not torch.equal(looking, models):  # client k + 1 looks at client k
            theirs = attack.gradients(looking)
        attack.round(looking, theirs, exchange.seen)
        models = after
        if number >= rounds - LAST:
            different = models.unique(dim=0)
            accuracies.append(np.mean([flat.accuracy(model, test) for model in different]))
    return float(np.mean(accuracies)), dict(attack.scores), clients


def _stacked(clients: list[Client], known: int) -> tuple[Tensor, Tensor, Tensor]:
    """The known samples and all canaries of each client, and their shares in its gradient."""
    inputs = torch.stack([torch.cat([c.inputs[:known], c.canary_inputs]) for c in clients])
    labels = torch.stack([torch.cat([c.labels[:known], c.canary_labels]) for c in clients])
    ones = np.ones(known)
    inside = np.stack([np.concatenate([ones, client.truth]) for client in clients])
    share = inside / inside.sum(1, keepdims=True)
    return inputs, labels, torch.from_numpy(share.astype(np.float32))


def leaks(
    data: Dataset, training: Training, rounds: int, seeds: int, size: Size = DEFAULT
) -> Iterator[Leak]:
    """Each method of a training, over some seeds."""
    accuracies, truths, scores = [], [], defaultdict(list)
    for seed in range(seeds):
        accuracy, found, clients = train(data, training.start, rounds, seed, size)
        accuracies.append(accuracy)
        truths.append(np.concatenate([client.truth for client in clients]))
        for key, rows in found.items():
            scores[key].append(rows.ravel())
    truth = np.concatenate(truths)
    areas = {key: auc(np.concatenate(rows), truth) for key, rows in scores.items()}
    mean, spread = float(np.mean(accuracies)), float(np.std(accuracies))
    for (family, name), views in training.views.items():
        best = {
            known: max(
                (area, attack)
                for (of, attack), area in areas.items()
                if of not in forgotten and _has(views, of)
            )
            for known, forgotten in (("all", ()), ("own", (SUM,)))
        }
        yield Leak(family, name, mean, spread, *best["all"], best["own"][0])


def _has(views: tuple[str, ...], of: str) -> bool:
    """Whether a receiver has that view: its own in some way, and models, which all have."""
    return not of or of.split(",")[0] in views


# --- what is reported ----------------------------------------------------------------------------


def run(quick: bool) -> Findings:
    """Train by every method, and by some for each number of samples."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    rows, tables = [], []
    for data in [digits(), *given()]:
        rounds, seeds = (1, 1) if quick else (ROUNDS, SEEDS)
        found = [leak for each in TRAININGS for leak in leaks(data, each, rounds, seeds)]
        judged = data.name == "digits" and not quick
        rows += _judged(data.name, found, judged=judged)
        tables += [_by_method(data.name, found), _by_size(data, quick)]
        if judged:
            draw_panels(
                PLOT,
                {
                    "candidates of all clients known": _points(found, _area),
                    "candidates of one client known": _points(found, _alone),
                },
                "accuracy",
                "AUC of the best attack",
            )
    return Findings(rows, tables)


def _area(leak: Leak) -> float:
    return leak.area


def _alone(leak: Leak) -> float:
    return leak.alone


def front(found: Sequence[Leak], area: Area) -> set[str]:
    """The methods that no other beats: none is as accurate and shows as little, and better in one.

    The global models are no method, and all receivers have them.
    """
    methods = [leak for leak in found if leak.name != GLOBAL]
    return {
        leak.name
        for leak in methods
        if not any(
            other.accuracy >= leak.accuracy
            and area(other) <= area(leak)
            and (other.accuracy, area(other)) != (leak.accuracy, area(leak))
            for other in methods
        )
    }


def _judged(name: str, found: Sequence[Leak], *, judged: bool) -> list[Row]:
    of = {leak.name: leak for leak in found}
    fedavg, tenth, few = of["FedAvg"], of["ERIS, A = 10"], of["ERIS, A = 50"]
    sums, models = of["ERIS, sums"], of[GLOBAL]

    def row(figure: str, ours: float, beside: str, theirs: float, target: str) -> Row:
        difference, (sign, bound) = ours - theirs, target.split()
        met = difference >= float(bound) if sign == "≥" else difference <= float(bound)
        return Row(
            f"{name}: {figure}", f"{ours:.3f}", f"{beside}: {theirs:.3f}", f"{difference:+.3f}",
            target if judged else "", met if judged else None,
        )  # fmt: skip

    one, everyone = "AUC, one client's candidates known", "AUC, all candidates known"
    return [
        row(f"{one}, A = 10", tenth.alone, "FedAvg", fedavg.alone, "≥ -0.05"),
        row(f"{one}, sums", sums.alone, "A = 50", few.alone, "≤ -0.05"),
        row(f"{everyone}, sums", sums.area, "global models", models.area, "≥ +0.05"),
        *(
            row(
                f"most accuracy with an AUC up to {MOST}, {each}",
                _most_accurate(found, f"ERIS, {each}"), "LDP", _most_accurate(found, "LDP"),
                "≥ +0.05",
            )
            for each in ("one of 50 shards", "sums")
        ),
    ]  # fmt: skip


def _most_accurate(found: Sequence[Leak], family: str) -> float:
    fit = [x.accuracy for x in found if x.family == family and x.area <= MOST]
    return max(fit, default=0.0)


def _points(found: Sequence[Leak], area: Area) -> list[Point]:
    best = front(found, area)
    return [Point(each.family, each.accuracy, area(each), each.name in best) for each in found]


def _by_method(name: str, found: Sequence[Leak]) -> Table:
    fronts = {"all": front(found, _area), "one": front(found, _alone)}
    rows = []
    for leak in found:
        on = [known for known, best in fronts.items() if leak.name in best]
        rows.append(
            [
                leak.name, f"{leak.accuracy:.3f}", f"{leak.spread:.3f}", f"{leak.area:.3f}",
                leak.attack, f"{leak.alone:.3f}", " and ".join(on),
            ]
        )  # fmt: skip
    return Table(
        f"Accuracy on {name} after {ROUNDS} rounds, and AUC of the best attack on what a receiver "
        f"has, with candidates of all clients known, or of one; who is on the front of which",
        ["method", "accuracy", "±", "AUC, all known", "attack", "one known", "on the front"],
        rows,
    )


def _by_size(data: Dataset, quick: bool) -> Table:
    columns: dict[int, list[Leak]] = {}
    for samples, seeds in ({4: 1} if quick else SIZES).items():
        canaries = min(2 * (samples - 1), CANARIES)
        size = Size(SIZE_CLIENTS, samples - canaries // 2, canaries)
        rounds = 1 if quick else SIZE_ROUNDS
        columns[samples] = [
            leak
            for each in (TRAININGS[0], of_noise(SIZE_SIGMA))
            for leak in leaks(data, each, rounds, 1 if quick else seeds, size)
        ]
    return Table(
        f"Accuracy on {data.name} after {SIZE_ROUNDS} rounds of {SIZE_CLIENTS} clients / AUC with "
        f"candidates of all known / of one known, by samples a client",
        ["method", *map(str, columns)],
        [
            [of[0].name, *(f"{x.accuracy:.2f} / {x.area:.2f} / {x.alone:.2f}" for x in of)]
            for of in zip(*columns.values(), strict=True)
        ],
    )
