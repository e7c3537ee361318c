"""Measure clusterings end to end: the groups that are found, the time and the memory.

Models of known groups are in a service's own SQLite store. A job runs as in a worker, from the
request to the committed clustering. Beside it are the libraries' algorithms with their defaults,
on the matrix that the service computed.
"""

from __future__ import annotations

import itertools
import resource
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic_core import to_json
from sklearn.cluster import HDBSCAN, AffinityPropagation, AgglomerativeClustering

from app.container import Container
from app.infra.db.database import Database
from app.jobs.service import JobService
from app.kinship.clustering import service
from app.kinship.clustering.records import ClusteringRecord
from app.kinship.clustering.request import ALGORITHMS, ClusteringRequest
from app.kinship.clustering.service import ClusteringService
from app.kinship.graph import GraphService
from app.models.catalog.batches import BatchEntry
from app.models.catalog.reader import ModelReader
from app.models.spaces.records import SpaceRecord
from app.tenancy.auth.records import Tenant
from benchmarks.harness import extra_memory
from benchmarks.report import Findings, Row, Table, duration
from benchmarks.stored_space import stored
from modelkin.core.clustering.clustering import agreement
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.matrix import matrix
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support

LIBRARIES = ("numpy", "numba", "scipy", "scikit-learn", "igraph")

DENSITY = 0.1
KEEP = 0.65
"""The share of its group's common indices that a member has."""
ALONE = 0.1
"""The share of models that are in no group."""

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Size:
    """The number of models and groups, and the size of supports."""

    models: int
    num_parameters: int
    groups: int


SMALL = Size(1_000, 1_000_000, 40)
MIDDLE = Size(2_000, 1_000_000, 60)
LARGE = Size(10_000, 100_000, 200)
HUGE = Size(100_000, 20_000, 1_000)
TINY = Size(60, 2_000, 4)

MIDDLE_S, LARGE_S, HUGE_S = 45, 8, 300
"""Targets, in seconds from the request to the commit."""
HUGE_GB = 4
"""Growth of the process that a clustering of the most models may take."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished clustering.

    Attributes:
        record: the clustering's.
        agreement: the adjusted Rand index with the planted groups.
        seconds: from the request to the commit.
        stages: seconds of each.
        memory: largest growth of the process in bytes; None where the system does not show it.
    """

    record: ClusteringRecord
    agreement: float
    seconds: float
    stages: Mapping[str, float]
    memory: int | None


def run(quick: bool) -> Findings:
    """Cluster thousands of models by supports, ten and a hundred thousand by nearest neighbours."""
    small, middle, large, huge = (TINY,) * 4 if quick else (SMALL, MIDDLE, LARGE, HUGE)
    rows, tables = [], []
    with _space(small) as place:
        made = place.cluster(ClusteringRequest("affinity_propagation"))
        rows.append(_row(small, "exact matrix, affinity propagation", made))
        tables += [_stages(small, [("affinity propagation", made)]), _algorithms(small, place)]
    with _space(middle) as place:
        made = place.cluster(ClusteringRequest("affinity_propagation"))
        rows.append(_row(middle, "exact matrix, affinity propagation", made, MIDDLE_S))
        tables.append(_stages(middle, [("affinity propagation", made)]))
    with _space(large) as place:
        runs = [
            (
                f"leiden, similarity={kind}",
                place.cluster(ClusteringRequest("leiden", similarity=kind)),
            )
            for kind in ("auto", "signature")
        ]
        rows += [_row(large, name, made, LARGE_S) for name, made in runs]
        tables.append(_stages(large, runs))
    with _space(huge, signatures=True) as place:
        made = place.cluster(ClusteringRequest("leiden"))
        rows += [_row(huge, "leiden, signatures alone", made, HUGE_S), _memory_row(huge, made)]
        rows.append(_graph_row(huge, place))
        tables.append(_stages(huge, [("leiden", made)]))
    return Findings(rows, tables)


class Place:
    """A space with models, and their planted groups."""

    def __init__(self, services: Container, space: SpaceRecord, labels: Labels) -> None:
        self.services = services
        self.tenant = services[Tenant]
        self.space = space
        self.labels = labels

    def cluster(self, asked: ClusteringRequest) -> Run:
        """Compute a clustering twice: for its time, and for its memory."""
        begin = time.perf_counter()
        stopwatch = Stopwatch()
        record, found = self.make(asked, stopwatch)
        seconds = time.perf_counter() - begin
        memory = extra_memory(lambda: self.make(asked, Stopwatch()))
        return Run(record, agreement(self.labels, found), seconds, stopwatch.stages(), memory)

    def make(
        self, asked: ClusteringRequest, stopwatch: Stopwatch
    ) -> tuple[ClusteringRecord, Labels]:
        """A clustering from its request to its commit."""
        services, clusterings = self.services, self.services[ClusteringService]
        with services[Database].writing() as session:
            job = clusterings.create(session, services[Tenant], self.space, asked)
        end = services[JobService].handler(service.JOB_KIND)(job, stopwatch)
        assert callable(end)
        with services[Database].writing() as session:
            end(session)
            services[JobService].cancel(session, services[Tenant], job.id)  # no worker started it
        with services[Database].reading() as session:
            record = clusterings.get(session, self.space, job.id)
            held = clusterings.content(session, record)
        return record, np.array(held.labels, np.int64)

    def similarity(self) -> npt.NDArray[np.float64]:
        """The matrix of all models, in the order of their labels."""
        reader, space = self.services[ModelReader], self.space
        with self.services[Database].reading() as session:
            page = reader.models(session, space, limit=self.labels.size, cursor=None)
        packed = [reader.find_packed(space, model) for model in page.items]
        return matrix([PackedSupport.pack(p.unpack()) for p in packed if p is not None])


class Stopwatch:
    """A progress callback that records the time of each stage."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[float, float]] = {}

    def __call__(self, done: int, total: int, stage: str = "") -> None:
        del done, total
        now = time.perf_counter()
        self._reports[stage] = (self._reports.get(stage, (now, now))[0], now)

    def stages(self) -> dict[str, float]:
        """Seconds from the first report of a stage to that of the next, or to its own last."""
        begins = [begin for begin, _ in self._reports.values()]
        ends = [*begins[1:], max((end for _, end in self._reports.values()), default=0.0)]
        return {
            stage: end - begin
            for stage, begin, end in zip(self._reports, begins, ends, strict=True)
        }


@contextmanager
def _space(size: Size, *, signatures: bool = False) -> Iterator[Place]:
    """A service's store with models in groups of decreasing size, and some in no group.

    Args:
        signatures: store no supports.
    """
    rng = np.random.default_rng(0)
    labels = _labels(size, rng)
    entries = _entries(size, labels, rng)
    if signatures:
        entries = (replace(each, content=_signed(each)) for each in entries)
    with stored(entries, size.num_parameters) as (services, space):
        yield Place(services, space, labels)


def _signed(entry: BatchEntry) -> Signature:
    assert isinstance(entry.content, Support)
    return PackedSupport.pack(entry.content).signature()


def _labels(size: Size, rng: np.random.Generator) -> Labels:
    """The group of each model: few large ones, many small ones, some models alone."""
    shares = 1.0 / np.arange(4, 4 + size.groups)
    labels = rng.choice(size.groups, size.models, p=shares / shares.sum())
    alone = np.flatnonzero(rng.random(size.models) < ALONE)
    labels[alone] = size.groups + np.arange(alone.size)
    return labels.astype(np.int64)


def _entries(size: Size, labels: Labels, rng: np.random.Generator) -> Iterator[BatchEntry]:
    m = size.num_parameters
    bases = [np.flatnonzero(rng.random(m) < DENSITY) for _ in range(size.groups)]
    for number, label in enumerate(labels):
        held = rng.random(m, dtype=np.float32) < DENSITY * (1 - KEEP * (label < size.groups))
        if label < size.groups:
            base = bases[label]
            held[base[rng.random(base.size, dtype=np.float32) < KEEP]] = True
        yield BatchEntry(f"m{number:06d}", Support.from_indices(np.flatnonzero(held), m))


def _row(size: Size, how: str, made: Run, target: float | None = None) -> Row:
    memory = "" if made.memory is None else f", {made.memory / 1e6:,.0f} MB"
    figure = f"{size.models:,} models, M = {size.num_parameters:,}: {how}"
    found = f"{duration(made.seconds)}{memory}; ARI {made.agreement:.3f}"
    if target is None:
        return Row(figure, found, "", "")
    return Row(figure, found, "target", "", f"≤ {target:g} s", made.seconds <= target)


def _memory_row(size: Size, made: Run) -> Row:
    """The growth of the process, and the largest child of this run, which finds communities."""
    figure = f"{size.models:,} models, M = {size.num_parameters:,}: memory, with a child process"
    if made.memory is None:
        return Row(figure, "not shown by this system", "", "")
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    gigabytes = (made.memory + child) / 1e9
    met = gigabytes <= HUGE_GB
    return Row(figure, f"{gigabytes:.2f} GB", "target", "", f"≤ {HUGE_GB} GB", met)


def _graph_row(size: Size, place: Place) -> Row:
    """The graph of the ten nearest of each model, written as it is for a client."""
    services, sent = place.services, 0

    def write() -> None:
        nonlocal sent
        with services[Database].reading() as session:
            found = services[GraphService].graph(session, place.space)
        pieces = itertools.chain(found.node_pieces(), found.edge_pieces())
        sent = sum(len(to_json(piece.to_node_link())) for piece in pieces)

    begin = time.perf_counter()
    write()
    seconds, memory = time.perf_counter() - begin, extra_memory(write)
    took = duration(seconds) + ("" if memory is None else f", {memory / 1e6:,.0f} MB")
    how = "graph of the 10 nearest, found and written"
    figure = f"{size.models:,} models, M = {size.num_parameters:,}: {how}"
    return Row(figure, took, f"sent: {sent / 1e6:,.0f} MB", "")


def _stages(size: Size, runs: list[tuple[str, Run]]) -> Table:
    title = f"{size.models:,} models, M = {size.num_parameters:,}, stage by stage"
    rows = [
        [name, stage, duration(max(seconds, 1e-6))]
        for name, made in runs
        for stage, seconds in made.stages.items()
    ]
    rows += [[name, "all of it", duration(made.seconds)] for name, made in runs]
    return Table(title, ["clustering", "stage", "time"], rows)


def _algorithms(size: Size, place: Place) -> Table:
    """The result of each algorithm without a parameter, beside those of the libraries."""
    true = len(set(place.labels.tolist()))
    title = (
        f"What is found without any parameter: {size.models:,} models, {size.groups} groups and "
        f"{true - size.groups} models in none"
    )
    rows = []
    for algorithm in ALGORITHMS:
        made = place.cluster(ClusteringRequest(algorithm))
        rows.append(_found(f"modelkin, {algorithm}", made.record, made.agreement, made.seconds))
    similarity = place.similarity()
    distances = np.clip(1 - similarity, 0, 1)
    peers: dict[str, Any] = {
        "scikit-learn, AffinityPropagation": lambda: AffinityPropagation(
            affinity="precomputed", random_state=0
        ).fit_predict(similarity),
        "scikit-learn, AgglomerativeClustering": lambda: AgglomerativeClustering(
            metric="precomputed", linkage="average"
        ).fit_predict(distances),
        "scikit-learn, HDBSCAN": lambda: HDBSCAN(metric="precomputed", copy=True).fit_predict(
            distances
        ),
    }
    for name, fit in peers.items():
        begin = time.perf_counter()
        with (
            warnings.catch_warnings()
        ):  # a clustering that does not converge is visible in its figures
            warnings.simplefilter("ignore")
            labels = np.asarray(fit(), np.int64)
        seconds = time.perf_counter() - begin
        clusters, noise = int(labels.max()) + 1, int((labels < 0).sum())
        found = [str(clusters), str(noise), f"{agreement(place.labels, labels):.3f}"]
        rows.append([name, *found, f"{duration(seconds)}, the matrix given"])
    return Table(title, ["algorithm", "clusters", "in none", "ARI", "time"], rows)


def _found(name: str, record: ClusteringRecord, agreed: float, seconds: float) -> list[str]:
    agreement = f"{agreed:.3f}"
    return [
        name,
        str(record.clusters),
        str(record.noise),
        agreement,
        f"{duration(seconds)}, all of it",
    ]
