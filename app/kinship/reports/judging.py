"""``BaseJudge``: has the declared bases of many models judged, as far as there is time.

It holds no transaction while it judges. What takes longer than its time is left out, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from app.infra.db.database import Database
from app.infra.errors import NotFound, TooMuch
from app.jobs.service import Progress
from app.kinship.lineage import LineageService
from app.kinship.lineage_evidence import UNREAD
from app.kinship.lines.service import FingerprintLineageService
from app.kinship.reports.known import KnownModel, Period
from app.kinship.reports.likenesses import Likenesses
from app.kinship.reports.repositories import evidence as queries
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.sources import WHOLE
from modelkin.types.lineages import FingerprintLineage, Lineage
from modelkin.types.reports import ContradictedBase, UndeclaredBase

__all__ = ["BaseJudge", "Judged"]

_JUDGING_S: Final = 600.0
"""Seconds that declared bases may take to be judged; a job may take half an hour."""


@dataclass
class Judged:
    """The verdicts on declared bases, as they come.

    Attributes:
        pairs: models with the bases that were judged.
        unknown: models with bases that are not stored.
        late: models for which no time was left.
    """

    contradicted: list[ContradictedBase] = field(default_factory=list)
    undeclared: list[UndeclaredBase] = field(default_factory=list)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    unknown: set[tuple[str, str]] = field(default_factory=set)
    late: int = 0

    def add(self, lineage: Lineage | FingerprintLineage, space: str | None) -> None:
        """Take over what a lineage says of each declared base."""
        for base in lineage.declared_bases:
            pair = lineage.model, base.base_model
            if pair in self.pairs or base.verdict not in {"consistent", "mismatch"}:
                continue
            self.pairs.add(pair)
            self.unknown.discard(pair)
            if base.verdict == "mismatch":
                self.contradicted.append(
                    ContradictedBase(
                        model=lineage.model,
                        declared_base=base.base_model,
                        space=space,
                        reason=base.reason,
                        likely_base=lineage.likely_base,
                        log10_p=base.log10_p,
                        no_p=base.no_p,
                        summary=lineage.summary,
                    )
                )

    def add_undeclared(self, lineage: Lineage, space: str) -> None:
        """Take over the model of a space that stands out near one that declares no base."""
        base = lineage.likely_base
        if lineage.verdict != "undeclared" or base is None:
            return
        similarity = next((kin.similarity for kin in lineage.kin if kin.model == base), None)
        self.undeclared.append(
            UndeclaredBase(
                model=lineage.model,
                base=base,
                space=space,
                similarity=similarity,
                sentence=lineage.summary,
            )
        )

    def notes(self) -> tuple[str, ...]:
        """What was left out, for people."""
        if not self.late:
            return ()
        models = "1 model was" if self.late == 1 else f"{self.late:,} models were"
        return (f"The declared bases of {models} not judged: it would have taken too long.",)


class BaseJudge:
    """Judges declared bases by lines that are known, by fingerprints, and in spaces.

    Args:
        database: the database, which is read.
        lines: judges declared bases by the lines of fingerprints.
        lineages: judges them within spaces.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        database: Database,
        lines: FingerprintLineageService,
        lineages: LineageService,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._lines = lines
        self._lineages = lineages
        self._clock = clock

    def judge(
        self,
        tenant: Tenant,
        period: Period,
        models: Mapping[str, KnownModel],
        likenesses: Likenesses,
        progress: Progress,
    ) -> Judged:
        """Judge the declared bases: by lines that are known, by fingerprints, and in spaces."""
        judged, until = Judged(), self._clock() + _JUDGING_S
        left = list(_left_open(models, likenesses, judged))
        for done, name in enumerate(left):
            progress(done, len(left), "judging declared bases")
            if self._clock() > until:
                judged.late += 1
                continue
            with self._database.reading() as session, suppress(NotFound, TooMuch):
                judged.add(self._lines.lineage(session, tenant, name), None)
        for space in self._spaces(tenant):
            self._judge_space(space, period, models, judged, until, progress)
        return judged

    def _judge_space(
        self,
        space: SpaceRecord,
        period: Period,
        models: Mapping[str, KnownModel],
        judged: Judged,
        until: float,
        progress: Progress,
    ) -> None:
        """Judge the models of a space that lines have not judged."""
        with self._database.reading() as session:
            found = queries.changed_names(session, space.id, period.since)
        left = [(name, bases) for name, bases in found if _is_open(name, bases, models, judged)]
        for done, (name, _) in enumerate(left):
            progress(done, len(left), f"judging declared bases in {space.name}")
            if self._clock() > until:
                judged.late += 1
                continue
            with self._database.reading() as session, suppress(NotFound, TooMuch):
                lineage = self._lineages.lineage(session, space, name)
                judged.add(lineage, space.name)
                judged.add_undeclared(lineage, space.name)

    def _spaces(self, tenant: Tenant) -> list[SpaceRecord]:
        """The tenant's spaces in which lineages can be read."""
        with self._database.reading() as session:
            found = spaces.all_spaces(session, tenant=tenant)
        return [
            space
            for space in found
            if space.kind == "supports" and space.importance.kind not in UNREAD
        ]


def _left_open(
    models: Mapping[str, KnownModel],
    likenesses: Likenesses,
    judged: Judged,
) -> Iterator[str]:
    """The models with a declared base that is stored, and that known lines do not confirm."""
    for model in models.values():
        if not model.is_reported:
            continue
        whole = {e.other for e in likenesses.of(model.name) if e.verdict in WHOLE}
        judged.pairs |= {(model.name, base) for base in model.declared if base in whole}
        judged.unknown |= {(model.name, base) for base in model.declared if base not in models}
        if any(base in models and base not in whole for base in model.declared):
            yield model.name


def _is_open(
    name: str, bases: Sequence[str], models: Mapping[str, KnownModel], judged: Judged
) -> bool:
    """Whether a space may say more of a model than its lines have said."""
    if not bases:
        return name not in models
    return any((name, base) not in judged.pairs for base in bases)
