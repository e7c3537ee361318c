"""Models of spaces and the verdicts on them, planted as the jobs of a service keep them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from app.infra.db.tables.base import table_of
from app.kinship.findings.records import RANKS
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from modelkin.core.kinship.lineage import LineageVerdict
from modelkin.types.reports.audits import LineageFinding
from tests.support.app.harness import AppHarness
from tests.support.backends import Backend, PostgresBackend

__all__ = ["finding_row", "made_space", "model_row", "settle", "write_rows"]

_ROWS: Final = 20_000
_SHARES: Final[tuple[tuple[int, LineageVerdict], ...]] = (
    *((2, "mismatch"), (3, "cycle"), (10, "undeclared")),
    *((15, "unknown_base"), (20, "inconclusive"), (100, "consistent")),
)
"""Verdicts by the last two digits of a model's number: each has those below its bound."""
_BESIDE: Final = {"found_at", "judged_at", "acknowledgement"}
"""Fields of a finding that have columns of their own."""


def made_space(app: AppHarness, name: str) -> int:
    """The id of a new space."""
    request = RequestedSpace(
        num_parameters=1_000_000, layout=None, scheme=None, num_perm=256, seed=1
    )
    with app.database.writing() as session:
        return app.services[SpaceService].create(session, app.tenant, name, request)[0].id


def model_row(number: int, space: int, name: str, base: str | None, at: datetime) -> dict[str, Any]:
    """A model without a support, whose id is the number."""
    return {
        "id": number,
        "space_id": space,
        "name": name,
        "kind": "signature",
        "support_size": 1,
        "revision": 1,
        "version": number,
        "attributes": {},
        "base_model": base,
        "created_at": at,
        "updated_at": at,
        "content_id": 0,
    }


def finding_row(model: dict[str, Any], at: datetime) -> dict[str, Any]:
    """The kept verdict on a model: of each hundred, two are contradicted and eighty confirmed."""
    place = model["id"] % 100
    verdict = next(each for below, each in _SHARES if place < below)
    base = model["base_model"] or model["name"]
    declared = None if verdict == "undeclared" else base
    finding = LineageFinding(
        model=model["name"],
        verdict=verdict,
        declared_base=declared,
        declared_bases=() if declared is None else (declared,),
        likely_base=None if verdict == "consistent" else base,
        similarity=0.62,
        kappa=0.6,
        base_similarity=0.62,
        nearest=base,
        nearest_similarity=0.62,
        log10_p=-812.5,
        summary=f"S to {base} is 0.620, where chance gives 0.050: {verdict.replace('_', ' ')}.",
    )
    return {
        "model_id": model["id"],
        "space_id": model["space_id"],
        "name": model["name"],
        "rank": RANKS[verdict],
        "base": base,
        "finding": {key: each for key, each in asdict(finding).items() if key not in _BESIDE},
        "news_from": 0.62,
        "state": "planted",
        "asked": 1,
        "answered": 1,
        "judged_at": at,
        "found_at": at - timedelta(seconds=model["id"]),
    }


def write_rows(app: AppHarness, row: Any, values: Iterable[dict[str, Any]]) -> None:
    """Write rows of the tenant, many at a time."""
    left = iter(values)
    while some := [{**each, "tenant_id": app.tenant.id} for each in islice(left, _ROWS)]:
        with app.database.writing() as session:
            session.execute(table_of(row).insert(), some)


def settle(backend: Backend, folder: Path) -> None:
    """Have Postgres look at its new rows, as autovacuum does within a minute."""
    if isinstance(backend, PostgresBackend):
        backend.server.execute("VACUUM ANALYZE", urlsplit(backend.url(folder)).path[1:])
