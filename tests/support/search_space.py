"""Searching without HTTP: the services of one process, and brute force over their models."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import pytest

from app.container import Container
from app.infra.db.database import Database
from app.models.catalog.batches import BatchEntry, BatchService
from app.models.catalog.reader import ModelReader
from app.models.spaces.records import SpaceRecord
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.search.service import SearchService
from app.tenancy.auth.records import Tenant
from modelkin import Neighbors, Signature, Support
from modelkin.core.similarity.overlap import similarity

Kind = Literal["support", "signature", "sketch"]
_names = itertools.count()


@dataclass(frozen=True)
class Stored:
    """A model as brute force stores it."""

    name: str
    kind: Kind
    support: Support
    tags: tuple[str, ...] = ()


def make(services: Container, m: int) -> SpaceRecord:
    """A new, empty space."""
    with services[Database].writing() as session:
        space, _ = services[SpaceService].create(
            session,
            services[Tenant],
            f"search-{next(_names)}",
            RequestedSpace(num_parameters=m, layout=None, scheme="affine32", num_perm=256, seed=1),
        )
    return space


def put(services: Container, space: SpaceRecord, models: list[Stored]) -> None:
    """Store models according to their kinds."""
    entries = [
        BatchEntry(
            model.name,
            model.support if model.kind == "support" else model.support.signature(),
            model.tags,
            sketch=model.support.sketch() if model.kind == "sketch" else None,
        )
        for model in models
    ]
    with services[Database].reading() as session:
        results = services[BatchService].put(session, space, entries)
    assert {"created"} == {getattr(each.outcome, "status", each.outcome) for each in results}


def ask(
    services: Container, space: SpaceRecord, query: str | Support | Signature, **how: object
) -> Neighbors:
    """The neighbours of a stored model, or of a support or signature."""
    with services[Database].reading() as session:
        space = services[SpaceService].get(session, services[Tenant], space.name)
        reader = services[ModelReader]
        if isinstance(query, str):
            subject = reader.stored_subject(session, space, query)
        else:
            subject = reader.given_subject(session, space, query)
        return services[SearchService].neighbors(session, space, subject, **how)  # type: ignore[arg-type]


def compared(a: Stored, b: Stored) -> tuple[str, float, str]:
    """The expected answer for ``b`` when ``a`` is the query, as precise as both kinds allow."""
    if a.kind == b.kind == "support":
        return b.name, similarity(a.support, b.support), "exact"
    one, other = a.support.sketch(), b.support.sketch()
    union = one.members + other.members - one.shared(other)
    whole = a.support.num_parameters <= one.size
    if "signature" not in {a.kind, b.kind} and (whole or min(union, one.members) > 256):
        return b.name, one.similarity(other), "sketch"
    return b.name, a.support.signature().similarity(b.support.signature()), "signature"


def brute(asked: Stored, others: list[Stored], k: int, least: float = 0.0) -> list[object]:
    """The expected answer: best first, ties by name."""
    found = [compared(asked, other) for other in others if other.name != asked.name]
    near = sorted((row for row in found if row[1] >= least), key=lambda row: (-row[1], row[0]))
    return [(name, pytest.approx(s), how) for name, s, how in near[:k]]


def triples(found: Neighbors) -> list[tuple[str, float, str]]:
    """The same triples from an answer."""
    return [(item.model, item.similarity, item.estimate) for item in found]
