"""Measure what each sharing rule sends, and what its clients and newcomers reach.

Tables 1, 2 and 6 and figure 3 of the paper. Clients have four of five classes, newcomers four of
the other five; Table 6 deals classes by Dirichlet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from scipy.stats import spearmanr

from benchmarks.dfl2g import paper
from benchmarks.dfl2g.data import Population, datasets, of_halves, of_mixes
from benchmarks.dfl2g.federation import Federated, Rule, fresh, inherited, train
from benchmarks.dfl2g.sharing import RULES, changes, layer_sizes, printed
from benchmarks.eris.data import Dataset
from benchmarks.report import Findings, Row, Table
from demo.cohort import repeat, stack

LIBRARIES = ("numpy", "torch", "scikit-learn")

MARKS: Final = (5, 20)
"""Epochs after which newcomers are tested."""

BETAS: Final = (0.1, 0.5)
TARGETS: Final = (0.9, 0.95)

PAPER: Final = {
    "FedAvg": "FedAvg",
    "PartialFed-Fix, first 4": "PartialFed",
    "PartialFed-Adaptive": "PartialFed",
    "FedFina, last 2": "FedFina",
    "FedLP, p = 0.5": "FedLP",
    "FedLPS, prune 0.8": "FedLPS",
    "Flearngene, least gradient": "Flearngene",
    "Eq. 8, lowest 3": paper.OURS,
}
"""The paper's names; its own method is what Eq. 8 says."""

UPLOADS: Final = {
    "FedAvg": (101.1, 0.1), "local": (0.0, 0.0), "PartialFed-Fix, first 4": (65.5, 0.1),
    "FedFina, last 2": (35.6, 0.1), "FedLP, p = 0.5": (51.0, 3.0), "FedLPS, prune 0.8": (20.2, 0.1),
    "Flearngene, least gradient": (88.0, 3.0), "Eq. 8, lowest 3": (93.2, 0.1),
    "Eq. 8, highest 3": (35.4, 0.1), "least change, 3 layers": (70.3, 3.0),
}  # fmt: skip
"""Uploads that are expected in kB a round, and how far from it they may be."""


@dataclass(frozen=True)
class Outcome:
    """The means over seeds of one rule.

    Attributes:
        up: bytes of a client in each round; ``down`` likewise.
        accuracy: of the clients after each round.
        newcomers: their accuracy after the epochs of :data:`MARKS`; empty where not measured.
    """

    up: list[float]
    down: list[float]
    accuracy: list[float]
    newcomers: list[float]

    @property
    def cost(self) -> float:
        """Bytes that a client sends in all, for each percent of accuracy: the paper's Cef."""
        return sum(self.up) / (100 * self.accuracy[-1])

    def until(self, target: float) -> float | None:
        """Bytes sent until the accuracy is reached; None if it never is."""
        reached = [at for at, accuracy in enumerate(self.accuracy) if accuracy >= target]
        return sum(self.up[: reached[0] + 1]) if reached else None


def run(quick: bool) -> Findings:
    """Measure the rules on the digits, and on what ``--data-dir`` has."""
    torch.set_num_threads(1)
    rounds, marks, seeds = (1, (1, 1), 1) if quick else (20, MARKS, 3)
    rules = RULES[::3] if quick else RULES
    rows = [*_shares_of_the_paper(), _order_of_eq8(1 if quick else 24, judged=not quick)]
    tables = []
    for data in datasets():
        judged = not quick and data.name == "digits"
        found = {rule.name: _measured(data, rule, rounds, marks, seeds) for rule in rules}
        rows += _judged(found) if judged else []
        tables += [_costs(data, found), _targets(data, found), _curves(data, found)]
        mixed = {beta: _mixed(data, rules, beta, rounds, min(seeds, 2)) for beta in BETAS}
        tables.append(_dirichlet(data, mixed))
    return Findings(rows, [*tables, _ratios_of_the_paper()])


# --- measuring -----------------------------------------------------------------------------------


def _measured(
    data: Dataset, rule: Rule, rounds: int, marks: tuple[int, ...], seeds: int
) -> Outcome:
    outcomes = []
    for seed in range(seeds):
        population = of_halves(data, seed)
        found = train(population, rule, rounds=rounds, followed=True)
        outcomes.append((found, newcomers(population, found, marks)))
    return _mean(outcomes)


def _mixed(
    data: Dataset, rules: tuple[Rule, ...], beta: float, rounds: int, seeds: int
) -> dict[str, Outcome]:
    found = {}
    for rule in rules:
        federated = [
            train(of_mixes(data, seed, beta), rule, rounds=rounds) for seed in range(seeds)
        ]
        found[rule.name] = _mean([(each, []) for each in federated])
    return found


def newcomers(population: Population, found: Federated, marks: tuple[int, ...]) -> list[float]:
    """The accuracy of newcomers that inherit what is shared, but no head: their classes differ."""
    held = found.held[found.clusters]
    held[:, -1] = False
    clusters = torch.from_numpy(found.clusters)
    weights = inherited(found.models, clusters, held, fresh(population))
    generator = torch.Generator().manual_seed(population.start)
    accuracies, done = [], 0
    for mark in marks:
        population.newcomers.cohort.train(weights, mark - done, generator)
        accuracies.append(population.newcomers.accuracy(weights))
        done = mark
    return accuracies


def _mean(outcomes: list[tuple[Federated, list[float]]]) -> Outcome:
    return Outcome(
        np.mean([found.up for found, _ in outcomes], axis=0).tolist(),
        np.mean([found.down for found, _ in outcomes], axis=0).tolist(),
        np.mean([found.accuracy for found, _ in outcomes], axis=0).tolist(),
        np.mean([marks for _, marks in outcomes], axis=0).tolist(),
    )


def ranks_of_eq8(clients: int) -> tuple[list[float], list[float]]:
    """Spearman's correlation of Eq. 8 with 1/dim in each client, and the range of the changes."""
    correlations: list[float] = []
    moved: list[float] = []
    data = next(datasets())
    for seed in range(-(-clients // 20)):
        cohort = of_halves(data, seed).clients.cohort
        before = repeat(stack([cohort.template]), len(cohort))
        after = {name: values.clone() for name, values in before.items()}
        cohort.train(after, 10, torch.Generator().manual_seed(seed))
        scores, sizes = printed(before, after), layer_sizes(before)
        correlations += [float(spearmanr(row, 1 / sizes).statistic) for row in scores]
        moved += changes(before, after).mean(0).tolist()
    return correlations[:clients], moved


# --- judging -------------------------------------------------------------------------------------


def _shares_of_the_paper() -> list[Row]:
    fedavg = paper.COMM["FedAvg"]
    theirs = paper.COMM["FedFina"][0] / fedavg[0]
    rows = []
    for name, stem in (("for 32 x 32", 3), ("as published", 7)):
        share = paper.resnet18_share(stem=stem)
        rows.append(
            Row(
                f"last four convolutions of ResNet-18: {name}",
                f"{share:.4f} of its parameters",
                f"the paper's FedFina over FedAvg: {theirs:.4f}",
                f"{share - theirs:+.4f}",
                "within 0.001",
                abs(share - theirs) <= 0.001,
            )
        )
    ratios = [a / b for a, b in zip(fedavg, paper.COMM[paper.OURS], strict=True)]
    claimed = ratios[paper.SETTINGS.index("CIFAR-100, s = 10")]
    rows.append(
        Row(
            "the paper's FedAvg over its own method, CIFAR-100, s = 10",
            f"{claimed:.1f}× by its Table 1",
            "its text: 9.2×",
            f"{min(ratios):.1f}× to {max(ratios):.1f}×",
            "3.4× to 5.6× in all of Table 1",
            round(min(ratios), 1) == 3.4 and round(max(ratios), 1) == 5.6,
        )
    )
    return rows


def _order_of_eq8(clients: int, *, judged: bool) -> Row:
    correlations, moved = ranks_of_eq8(clients)
    return Row(
        f"rank correlation of Eq. 8 with 1/dim, {clients} clients",
        f"{min(correlations):.3f} to {max(correlations):.3f}",
        f"relative change of layers: {min(moved):.2f} to {max(moved):.2f}",
        "",
        "1.000" if judged else "",
        min(correlations) > 0.9995 if judged else None,
    )


def _judged(found: dict[str, Outcome]) -> list[Row]:
    rows = []
    for name, (expected, spread) in UPLOADS.items():
        up = float(np.mean(found[name].up)) / 1e3
        target = f"{expected:g} kB ± {spread:g}"
        met = abs(up - expected) <= spread + 0.05
        rows.append(Row(f"uploads a round: {name}", f"{up:.1f} kB", "", "", target, met))
    pruned = found["FedLPS, prune 0.8"].accuracy[-1]
    others = [each.accuracy[-1] for name, each in found.items() if not name.startswith("FedLPS")]
    local = found["local"].accuracy[-1]
    rows += [
        Row(
            "accuracy of clients: all rules but FedLPS",
            f"{min(others):.3f} to {max(others):.3f}",
            f"local: {local:.3f}",
            f"{min(others) - local:+.3f} to {max(others) - local:+.3f}",
            "0.94 to 0.98, ± 0.03",
            min(others) >= 0.91 and max(others) <= 1.01,
        ),
        Row(
            "accuracy of clients: FedLPS",
            f"{pruned:.3f}",
            f"local: {local:.3f}",
            f"{pruned - local:+.3f}",
            "0.85 ± 0.03",
            abs(pruned - 0.85) <= 0.03,
        ),
    ]
    late = [each.newcomers[-1] for each in found.values()]
    rows.append(
        Row(
            "accuracy of newcomers after 20 epochs: all rules",
            f"{min(late):.3f} to {max(late):.3f}",
            f"local, so from nothing: {found['local'].newcomers[-1]:.3f}",
            f"{max(late) - min(late):.3f} apart",
            "0.88 to 0.89, ± 0.03",
            min(late) >= 0.85 and max(late) <= 0.92,
        )
    )
    return rows


# --- tables --------------------------------------------------------------------------------------


def _costs(data: Dataset, found: dict[str, Outcome]) -> Table:
    whole = found["FedAvg"]
    fedavg = paper.COMM["FedAvg"][0], paper.CEF["FedAvg"][0]
    rows = []
    for name, each in found.items():
        comm, cef = sum(each.up) / sum(whole.up), each.cost / whole.cost
        theirs = ["", "", ""]
        if name in PAPER:
            gigabytes, cost = paper.COMM[PAPER[name]][0], paper.CEF[PAPER[name]][0]
            percent = paper.NEWCOMERS.get(PAPER[name], (0.0,))[0]
            theirs = [
                f"{gigabytes:.2f} ({gigabytes / fedavg[0]:.2f})",
                f"{cost:.4f} ({cost / fedavg[1]:.2f})",
                f"{percent:.2f}" if percent else "",
            ]
        early, late = each.newcomers
        rows.append(
            [
                name,
                f"{np.mean(each.up) / 1e3:.1f}, {np.mean(each.down[1:] or each.down) / 1e3:.1f}",
                f"{comm:.2f}",
                f"{cef:.2f}",
                f"{each.accuracy[-1]:.3f}",
                f"{early:.3f}, {late:.3f}",
                *theirs,
            ]
        )
    return Table(
        f"Tables 1 and 3 on {data.name}: kB of a client up and down in a round, uploads (Comm) and "
        f"uploads by accuracy (Cef) over FedAvg's, accuracy of clients, and of newcomers whose "
        f"classes no client has after {MARKS[0]} and {MARKS[1]} epochs; the last three columns are "
        f"the paper's on SVHN, s = 4: GB and Cef (over FedAvg's), newcomers' percent",
        [
            "rule", "kB up, down", "Comm", "Cef", "clients", "newcomers", "paper: Comm",
            "paper: Cef", "paper: newcomers",
        ],
        rows,
    )  # fmt: skip


def _targets(data: Dataset, found: dict[str, Outcome]) -> Table:
    rows = []
    for name, each in found.items():
        until = [each.until(target) for target in TARGETS]
        cells = ["never" if bytes_ is None else f"{bytes_ / 1e3:,.0f}" for bytes_ in until]
        rows.append([name, *cells, paper.TARGETS.get(PAPER.get(name, ""), "")])
    return Table(
        f"Table 2 on {data.name}: kB that a client uploads until the clients' accuracy",
        ["rule", *(f"is {target:g}" for target in TARGETS), "paper: GB until 90% on SVHN, s = 5"],
        rows,
    )


def _curves(data: Dataset, found: dict[str, Outcome]) -> Table:
    rounds = len(found["FedAvg"].up)
    marks = sorted({1, min(2, rounds), *range(4, rounds + 1, 4)})
    rows = [
        [name, *(f"{sum(each.up[:mark]) / 1e3:,.0f}" for mark in marks)]
        for name, each in found.items()
    ]
    return Table(
        f"Figure 3 on {data.name}: kB that a client has uploaded after a round",
        ["rule", *map(str, marks)],
        rows,
    )


def _dirichlet(data: Dataset, mixed: dict[float, dict[str, Outcome]]) -> Table:
    rows = []
    for name in mixed[BETAS[0]]:
        cells = []
        for at, beta in enumerate(BETAS):
            each, whole = mixed[beta][name], mixed[beta]["FedAvg"]
            cells += [
                f"{sum(each.up) / sum(whole.up):.2f}, {each.cost / whole.cost:.2f}",
                f"{each.accuracy[-1]:.3f}",
                "",
            ]
            if name in PAPER:
                comm, cef = paper.DIRICHLET[PAPER[name]][at]
                cells[-1] = f"{comm:.2f}, {cef:.3f}"
        rows.append([name, *cells])
    columns = ["rule"]
    for beta in BETAS:
        columns += [f"β = {beta}: Comm, Cef", "clients", "paper: Comm, Cef"]
    return Table(
        f"Table 6 on {data.name}: classes by Dirichlet(β), Comm and Cef over FedAvg's; the paper's "
        f"in GB, on CIFAR-10",
        columns,
        rows,
    )


def _ratios_of_the_paper() -> Table:
    fedavg, ours = paper.COMM["FedAvg"], paper.COMM[paper.OURS]
    rows = [
        [setting, f"{a:.2f}", f"{b:.2f}", f"{a / b:.1f}×"]
        for setting, a, b in zip(paper.SETTINGS, fedavg, ours, strict=True)
    ]
    for at, beta in enumerate(BETAS):
        a, b = paper.DIRICHLET["FedAvg"][at][0], paper.DIRICHLET[paper.OURS][at][0]
        rows.append([f"CIFAR-10, Dirichlet({beta})", f"{a:.2f}", f"{b:.2f}", f"{a / b:.1f}×"])
    return Table(
        "The paper's uploads in GB, by its Tables 1 and 6",
        ["setting", "FedAvg", "its own method", "ratio"],
        rows,
    )
