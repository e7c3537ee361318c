"""The steps of the demo: train, select supports, upload, query, and compare with the truth.

Every printed figure is computed in this run, from the service's answers and the clients' labels.
"""

from __future__ import annotations

import copy
import io
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from demo import data, training
from demo.federation import Federation
from demo.hub import show_origins
from demo.newcomers import EXAMPLES, STEPS, Newcomers
from demo.report import Report
from demo.service import Service, choose_port, running
from modelkin import Client, Neighbors, Support, layout_of, select_support

__all__ = ["run", "serve"]

SPACE = "digits-cnn"
NUM_CLIENTS = 40
ALPHA = 0.1
SEED = 0
NEIGHBORS = 8
COVERAGE = 0.8
LARGEST_SHARE = 0.2
SHOWN = (0, 13, 26)


def serve(
    folder: Path,
    wanted_port: int,
    *,
    once: bool,
    splits: int = 1,
    act: Callable[[Service, Client, Report], None] | None = None,
    settings: Mapping[str, str] | None = None,
) -> int:
    """Start a service in ``folder``, run the demo, and serve until Ctrl-C unless ``once``.

    With an ``act`` it shows that instead; with more than one split it measures these and ends.
    ``settings`` are more variables of the service's environment. Return 0. The service is stopped
    before an error leaves.

    Raises:
        DemoError, ModelkinError, OSError: the demo cannot go on.
    """
    report = Report()
    port = choose_port(wanted_port)
    if port != wanted_port != 0:
        report.say(f"Port {wanted_port} is taken: this serves on {port}.")
    report.say(f"Starting a service on its embedded store in {folder} ...")
    with running(folder, port, settings) as service:
        report.say(f"It answers at {service.url}")
        with Client(service.url) as client:
            if act is not None:
                act(service, client, report)
            elif splits > 1:
                run_splits(client, report, splits)
            else:
                run(client, report)
        if once or splits > 1:
            return 0
        try:
            report.say(f"\nExplore the models at {service.url}/ (Ctrl-C ends the service).")
            service.wait()
        except KeyboardInterrupt:
            report.say("\nStopping the service.")
    return 0


def run(client: Client, report: Report) -> None:
    """Run the demo on the service of ``client`` and print it."""
    started = time.monotonic()
    # The network is too small for several threads, and one thread always adds in the same order.
    torch.set_num_threads(1)
    federation = prepare(report)
    supports = choose_supports(federation, report)
    trained = train_all(federation, report)
    upload(client, federation, supports, report)
    found = [client.neighbors(federation.space, name, k=NEIGHBORS) for name in federation.names]
    show_neighbors(federation, found, report)
    show_recall(federation, found, report)
    show_groups(client, federation, report)
    show_donors(client, Newcomers(federation, supports[0].k, trained, NEIGHBORS), report)
    show_origins(client, report)
    report.say(f"\nAll of it took {time.monotonic() - started:.0f} s.")


def run_splits(client: Client, report: Report, splits: int) -> None:
    """Repeat the demo's measurements on several splits, and print their means and spread."""
    torch.set_num_threads(1)
    recalls: list[float] = []
    accuracies: dict[str, list[tuple[float, ...]]] = {}
    for seed in report.progress(range(splits), "Measuring split", str):
        quiet = Report(Console(file=io.StringIO()))
        federation = prepare(quiet, seed)
        supports = choose_supports(federation, quiet)
        trained = train_all(federation, quiet)
        upload(client, federation, supports, quiet)
        found = [client.neighbors(federation.space, name, k=NEIGHBORS) for name in federation.names]
        recalls.append(mean_recall(federation, found))
        newcomers = Newcomers(federation, supports[0].k, trained, NEIGHBORS)
        for start in newcomers.starts(newcomers.shares(client)):
            accuracies.setdefault(start.name, []).append(start.accuracies)
    report.say(f"\nMean Recall@{NEIGHBORS} over {splits} splits: {_spread(recalls)}")
    report.table(
        f"Test accuracy of newcomers with {EXAMPLES} examples, mean ± deviation over {splits} "
        f"splits, after steps of training from",
        ("", *(f"{steps} steps " for steps in STEPS)),
        [
            (name, *(_spread(column) for column in zip(*rows, strict=True)))
            for name, rows in accuracies.items()
        ],
    )


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


def prepare(report: Report, seed: int = SEED) -> Federation:
    split = data.load_split(NUM_CLIENTS, ALPHA, seed)
    model = training.common_model(seed)
    names = tuple(f"digits/client-{i:02d}" for i in range(NUM_CLIENTS))
    report.section("Clients")
    report.say(
        f"{NUM_CLIENTS} clients hold {len(split.clients[0])} handwritten digits each, in very "
        f"different mixes (Dirichlet {ALPHA}). All receive one network of "
        f"{layout_of(model).num_parameters:,} parameters."
    )
    space = f"{SPACE}-{seed}" if seed != SEED else SPACE
    return Federation(seed, space, split, model, names)


def choose_supports(federation: Federation, report: Report) -> list[Support]:
    """Choose each client's support at the received weights, of the size that all clients agree on.

    Every client finds the smallest K that covers its importance, the clients agree on the median of
    these sizes, and each keeps its K most important parameters.
    """
    importances = [
        training.importance(federation.model, federation.split, client)
        for client in range(NUM_CLIENTS)
    ]
    wanted = [select_support(s, coverage=COVERAGE, k_max=LARGEST_SHARE).k for s in importances]
    agreed = int(statistics.median(wanted))
    report.say(
        f"{COVERAGE:.0%} of a client's importance lies in {min(wanted):,} to {max(wanted):,} "
        f"parameters; they agree on the median, K = {agreed:,} "
        f"({agreed / len(importances[0]):.1%}), before any of them trains."
    )
    return [select_support(s, k=agreed) for s in importances]


def train_all(federation: Federation, report: Report) -> Tensor:
    """Return every client's weights after training on its own digits alone, ``(clients, M)``."""
    clients = report.progress(range(NUM_CLIENTS), "Training", lambda i: federation.names[i])
    return torch.stack(
        [
            training.train(copy.deepcopy(federation.model), federation.split, i, federation.seed)
            for i in clients
        ]
    )


def upload(client: Client, federation: Federation, supports: list[Support], report: Report) -> None:
    client.ensure_space(federation.space, layout=layout_of(federation.model), importance="fisher")
    pairs = list(zip(federation.names, supports, strict=True))
    for name, support in report.progress(pairs, "Uploading", lambda pair: pair[0]):
        client.put_support(federation.space, name, support, tags=["demo"])
        # The explorer shows these attributes beside the groups that the service finds without them.
        client.models.update(federation.space, name, attributes=federation.attributes(name))
    sent = sum(len(support.to_bytes()) for support in supports)
    report.say(
        f"{sent / len(supports):,.0f} bytes a client, against "
        f"{4 * supports[0].num_parameters:,} for the weights; no value of any parameter was sent."
    )


def show_neighbors(federation: Federation, found: list[Neighbors], report: Report) -> None:
    report.section("Neighbours: what the service finds, and the true order of the label mixes")
    for client in SHOWN:
        true = [
            int(i) for i in np.argsort(federation.divergences[client], kind="stable") if i != client
        ]
        near = data.true_neighbors(federation.divergences, client, NEIGHBORS)
        rows = []
        for neighbor, truth in zip(found[client], true, strict=False):
            number = federation.number(neighbor.model)
            rows.append(
                (
                    "✓" if near[number] else "·",
                    f"{number:02d}",
                    f"{neighbor.similarity:.2f}",
                    federation.digits(number),
                    f"{truth:02d}",
                    f"{federation.divergences[client, truth]:.2f}",
                    federation.digits(truth),
                )
            )
        title = f"{federation.names[client]}: {federation.digits(client)}"
        report.table(title, ("", "found", "S ", "its digits", "true", "JS ", "its digits"), rows)


def mean_recall(federation: Federation, found: list[Neighbors]) -> float:
    """Mean recall of the truly nearest clients, over all clients."""
    recalls = [
        data.recall([federation.number(n.model) for n in neighbors], federation.divergences, client)
        for client, neighbors in enumerate(found)
    ]
    return float(np.mean(recalls))


def show_recall(federation: Federation, found: list[Neighbors], report: Report) -> None:
    by_chance = data.chance(federation.divergences, NEIGHBORS)
    report.say(
        f"Mean Recall@{NEIGHBORS} over all {NUM_CLIENTS} clients: "
        f"{mean_recall(federation, found):.3f} (by chance: {by_chance:.3f})"
    )


def show_donors(client: Client, newcomers: Newcomers, report: Report) -> None:
    """Show one newcomer's donors, and what donors are worth to a client with five examples."""
    federation = newcomers.federation
    shares, shown = newcomers.shares(client), SHOWN[0]
    labels = federation.split.labels[newcomers.samples[shown]]
    report.section(f"Donors: what a client with {EXAMPLES} examples of its own learns from others")
    order = np.argsort(-shares[shown], kind="stable")[:NEIGHBORS]
    report.table(
        f"A newcomer with {EXAMPLES} digits ({', '.join(map(str, sorted(labels.tolist())))}) of "
        f"{federation.names[shown]}: {federation.digits(shown)}",
        ("donor", "weight ", "its digits"),
        [
            (federation.names[j], f"{shares[shown, j]:.3f}", federation.digits(int(j)))
            for j in order
        ],
    )
    report.table(
        f"Test accuracy on its own mix of digits, mean over {NUM_CLIENTS} newcomers, after steps "
        f"of training on the {EXAMPLES} examples from",
        ("", *(f"{steps} steps " for steps in STEPS)),
        [
            (start.name, *(f"{accuracy:.3f}" for accuracy in start.accuracies))
            for start in newcomers.starts(shares)
        ],
    )


def show_groups(client: Client, federation: Federation, report: Report) -> None:
    """Show all groups of kin that the service finds, and the members of one client's group."""
    clustering = client.clusterings.create(federation.space)
    shown = SHOWN[0]
    name = federation.names[shown]
    own = clustering.labels[name]
    report.section("Groups of kin")
    report.table(
        f"The service finds {clustering.num_clusters} groups (by "
        f"{clustering.algorithm.replace('_', ' ')}, which chose their number by itself; "
        f"silhouette {clustering.quality.silhouette or 0:.2f}):",
        ("group", "clients ", "its exemplar", "whose digits"),
        [
            (
                str(group.cluster),
                str(group.size),
                group.exemplar,
                federation.digits(federation.number(group.exemplar)),
            )
            for group in clustering.clusters
        ],
    )
    members = next(group.members for group in clustering.clusters if group.cluster == own)
    similarity = client.similarity(federation.space, [name, *(m for m in members if m != name)])
    client.maps.create(federation.space)  # the explorer shows it
    report.table(
        f"{name} is in group {own}:",
        ("member", "S ", "its digits"),
        [
            (member, f"{s:.2f}", federation.digits(federation.number(member)))
            for member, s in zip(similarity.models, similarity.values[0], strict=True)
        ],
    )
