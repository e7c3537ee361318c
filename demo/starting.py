"""``python -m demo --starting``: newcomers with 20 samples and no model find where to start.

Twenty clients hold digits, each group turned in its own way, and post a fingerprint of their data.
The service clusters them; each cluster's model, trained by averaging, is published as its
learngene. A newcomer posts its fingerprint, gets its cluster and that cluster's weights, and trains
on from there.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Final

import torch
from torch import nn

from demo.planted import GROUPS
from demo.report import Report
from demo.service import DemoError, Service
from demo.starts import Newcomer, World, accuracy, network, train, world
from modelkin import Client, Subspace
from modelkin.torch import cut_learngene, fit_subspace, inherit
from modelkin.types.clusterings import Assignment, Clustering

__all__ = ["SETTINGS", "run"]

SETTINGS: Final[Mapping[str, str]] = {"MODELKIN_MAX_LEARNGENE_BYTES": str(1 << 20)}
"""Settings that let this service keep learngenes, since it has no hub; by default it keeps none."""

SPACE = "digits-data"
FEATURES = 64
ROUNDS, NEWCOMERS = 30, 12
EPOCHS = 5
TRUNK = ("head.*",)
"""Patterns of the tensors that a kept trunk leaves out."""


def run(_service: Service, client: Client, report: Report) -> None:
    """Print the whole story, from fingerprints to what a start is worth."""
    started = time.monotonic()
    torch.set_num_threads(1)
    report.say(f"Training the models of {GROUPS} groups, by averaging in {ROUNDS} rounds ...")
    planted = world(0, rounds=ROUNDS, num_newcomers=NEWCOMERS)
    clustering = cluster(client, planted, report)
    with TemporaryDirectory() as folder:
        publish(client, clustering, planted, Path(folder), report)
        places = [place(client, newcomer) for newcomer in planted.newcomers]
        show_places(clustering, planted, places, report)
        show_worth(client, planted.newcomers, places, Path(folder), report)
    report.say(f"\nAll of it took {time.monotonic() - started:.0f} s.")


def fingerprint(samples: torch.Tensor) -> Subspace:
    """Fit the fingerprint that a client posts: with 20 to 39 samples, one direction of them all."""
    return fit_subspace([samples])


def cluster(client: Client, planted: World, report: Report) -> Clustering:
    """Post the clients' fingerprints, and let the service find the clusters."""
    client.ensure_space(
        SPACE, kind="subspaces", num_parameters=FEATURES, features="8x8 grey, standardised"
    )
    sizes = []
    for number, samples in enumerate(planted.samples):
        made = fingerprint(samples)
        sizes.append(len(made.to_bytes()))
        client.subspaces.put(SPACE, name(number), made)
    # With all samples, a free number of clusters ends at two: digits upside down look like digits.
    clustering = client.clusterings.create(SPACE, "agglomerative", n_clusters=GROUPS)
    report.section("Fingerprints of data, and their clusters")
    report.say(
        f"{len(sizes)} clients posted {max(sizes)} bytes each: one direction of their 32 images of "
        f"{FEATURES} pixels. The service was asked for {len(clustering.clusters)} clusters."
    )
    return clustering


def name(number: int) -> str:
    """The name of a client, without its group."""
    return f"site-{number:02d}"


def publish(
    client: Client, clustering: Clustering, planted: World, folder: Path, report: Report
) -> None:
    """Publish each cluster's model as its learngene: any part of a model may be one."""
    for group, model in enumerate(planted.models):
        path = folder / f"group-{group}.safetensors"
        cut_learngene(model, path, tensors=["*"])
        members = [name(at) for at in range(group, len(planted.samples), GROUPS)]
        ids = {clustering.labels[member] for member in members}
        if len(ids) != 1:
            raise DemoError(f"the clients of group {group} are in {len(ids)} clusters")
        client.learngenes.publish(
            SPACE, ids.pop(), path, keep=True, members=len(members), rounds=ROUNDS
        )
    report.say("Each cluster's model is published as its learngene, bound by its digest.")


def place(client: Client, newcomer: Newcomer) -> Assignment:
    """Ask where a newcomer's data belong."""
    return client.clusterings.assign(SPACE, fingerprint(newcomer.samples))


def show_places(
    clustering: Clustering, planted: World, places: Sequence[Assignment], report: Report
) -> None:
    """Show how many newcomers are in the cluster of their group."""
    right = sum(
        placed.cluster == clustering.labels[name(newcomer.group)]
        for newcomer, placed in zip(planted.newcomers, places, strict=True)
    )
    margin = fmean(placed.margin or 0.0 for placed in places)
    report.section(f"{len(places)} newcomers with {len(planted.newcomers[0].labels)} samples")
    report.say(
        f"{right} of {len(places)} are placed in their own cluster, by {margin:.2f} on average."
    )


def show_worth(
    client: Client,
    newcomers: Sequence[Newcomer],
    places: Sequence[Assignment],
    folder: Path,
    report: Report,
) -> None:
    """Accuracy on the newcomers' own test images, before and after a few epochs."""
    starts = ("random weights", "its cluster's trunk, kept", "its cluster's whole model")
    before: dict[str, list[float]] = {start: [] for start in starts}
    after: dict[str, list[float]] = {start: [] for start in starts}
    for number, (newcomer, placed) in enumerate(zip(newcomers, places, strict=True)):
        path = client.learngenes.fetch(placed.learngene, folder / f"{number}.safetensors")
        for start in starts:
            model = start_from(start, path, seed=number)
            before[start].append(accuracy(model, newcomer))
            train(model, newcomer.samples, newcomer.labels, EPOCHS, number)
            after[start].append(accuracy(model, newcomer))
    report.table(
        "Mean accuracy of the newcomers on images of their own, started from",
        ("", "before a step ", f"after {EPOCHS} epochs "),
        [(start, f"{fmean(before[start]):.3f}", f"{fmean(after[start]):.3f}") for start in starts],
    )


def start_from(start: str, path: Path, *, seed: int) -> nn.Sequential:
    """A newcomer's network with the weights of a start; the rest is random."""
    model = copy.deepcopy(network(1000 + seed))
    if "whole" in start:
        inherit(model, path)
    elif "trunk" in start:
        inherit(model, path, keep=True, exclude=TRUNK)
    return model
