"""Measure what chance costs: neighbours with expected overlap and kappa, beside those without.

Both are the service's own code in one process, from the question to the answer, the query for the
index counts included. The same questions are asked in turn, of one space: with its layout, and as
if it had none. They are asked once before, so both find the files of supports in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from app.container import Container
from app.infra.db.database import Database
from app.models.catalog.reader import ModelReader
from app.models.spaces.records import SpaceRecord
from app.search.service import SearchService
from benchmarks.families import M, filled_space, layout_of
from benchmarks.harness import Contender, Race, race
from benchmarks.report import Findings, Row, Table, at_most, duration
from modelkin.types.search import Neighbors

LIBRARIES = ("numpy", "numba", "sqlalchemy")

MODELS, QUICK_MODELS = 10_000, 60
TENSORS = 300
"""As many as a transformer of 25 layers has."""
QUESTIONS, ROUNDS = 10, 40
TARGET = 1.2
WITH, WITHOUT = "with chance", "without"
SEED = 3


def run(quick: bool) -> Findings:
    """Measure neighbours by every method that needs no buckets."""
    n = QUICK_MODELS if quick else MODELS
    rows: list[Row] = []
    facts: list[list[str]] = []
    with filled_space(n, layout_of(TENSORS)) as (services, space):
        for k in (10, 100):
            measured = _measured(services, space, k, 3 if quick else ROUNDS)
            rows.append(_row(n, k, measured))
            facts.append([f"k = {k}", *_medians(measured)])
    what = f"Neighbours in one process, n = {n:,}, M = {M:,}, {TENSORS} tensors, method auto"
    return Findings(rows, [Table(what, ["", WITH, WITHOUT], facts)])


def _row(n: int, k: int, measured: Race) -> Row:
    ours, peer = _medians(measured)
    return at_most(
        f"neighbours with chance, n = {n:,}, {TENSORS} tensors, k = {k}",
        ours,
        f"{WITHOUT}: {peer}",
        measured.ratio(WITH, WITHOUT),
        TARGET,
    )


def _medians(measured: Race) -> list[str]:
    return [duration(measured.seconds(name).median) for name in (WITH, WITHOUT)]


def _measured(services: Container, space: SpaceRecord, k: int, rounds: int) -> Race:
    plain = replace(space, layout_digest=None)
    drawn = np.random.default_rng(SEED).choice(space.models, QUESTIONS, replace=False)
    names = [f"m{i:05d}" for i in drawn]
    found = _ask(services, space, k, names)[0], _ask(services, plain, k, names)[0]
    if [item.model for item in found[0]] != [item.model for item in found[1]]:
        raise AssertionError("chance has changed the order of the neighbours")
    if any(item.kappa is None for item in found[0]) or found[1][0].kappa is not None:
        raise AssertionError("chance is not where it should be")
    passes = race(
        [
            Contender(WITH, partial(_ask, services, space, k, names)),
            Contender(WITHOUT, partial(_ask, services, plain, k, names)),
        ],
        rounds,
    )
    return Race({name: [s / len(names) for s in each] for name, each in passes.samples.items()})


def _ask(services: Container, space: SpaceRecord, k: int, names: Sequence[str]) -> list[Neighbors]:
    """Ask about one model after another."""
    answers = []
    for name in names:
        with services[Database].reading() as session:
            subject = services[ModelReader].stored_subject(session, space, name)
            answers.append(services[SearchService].neighbors(session, space, subject, k=k))
    return answers
