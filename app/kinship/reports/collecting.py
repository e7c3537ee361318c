"""``EvidenceCollector``: reads what a report is made from, and has declared bases judged.

It holds no transaction while it judges. What takes longer than its time is left out, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast

from app.infra.db.database import Database, Reader
from app.infra.errors import NotFound, TooMuch
from app.jobs.service import Progress
from app.kinship.lineage import LineageService
from app.kinship.lineage_evidence import UNREAD
from app.kinship.lines.service import FingerprintLineageService
from app.kinship.reports.evidence import Evidence, KnownModel, Likeness, Period
from app.kinship.reports.merges import MergeReader
from app.kinship.reports.repositories import evidence as queries
from app.kinship.reports.repositories.evidence import KinOf, MeasuredModel
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.sources import WHOLE, Verdict
from modelkin.types.lineages import FingerprintLineage, Lineage
from modelkin.types.reports import ContradictedBase, UndeclaredBase

__all__ = ["EvidenceCollector"]

_JUDGING_S: Final = 600.0
"""Seconds that declared bases may take to be judged; a job may take half an hour."""


@dataclass
class _Judged:
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


class EvidenceCollector:
    """Collects the evidence of reports.

    Args:
        database: the database, which is read.
        merges: takes merges apart.
        lines: judges declared bases by the lines of fingerprints.
        lineages: judges them within spaces.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        database: Database,
        merges: MergeReader,
        lines: FingerprintLineageService,
        lineages: LineageService,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._merges = merges
        self._lines = lines
        self._lineages = lineages
        self._clock = clock

    def collect(self, tenant: Tenant, period: Period, progress: Progress) -> Evidence:
        """Read all that a report of this time is made from."""
        progress(0, 0, "reading")
        with self._database.reading() as session:
            count = queries.count_fingerprints(session, tenant.id)
            reported = list(queries.measured_since(session, tenant.id, period.since, period.until))
            found = list(queries.kin_of(session, tenant.id, [each.id for each in reported]))
            others = _others(session, tenant, reported, found)
            found += _between(session, tenant, (*reported, *others), found)
            names = [each.name for each in (*reported, *others)]
            weights = queries.weights_of(session, tenant.id, names)
        models = {
            each.name: _known(each, weights.get(each.name), period, is_reported=is_reported)
            for is_reported, some in ((True, reported), (False, others))
            for each in some
        }
        likenesses = _likenesses((*reported, *others), found)
        judged = self._judge_all(tenant, period, models, likenesses, progress)
        return Evidence(
            owner=tenant.name,
            period=period,
            fingerprints=count,
            models=models,
            likenesses=likenesses,
            contradicted=judged.contradicted,
            judged=len(judged.pairs),
            unknown=len(judged.unknown),
            undeclared=judged.undeclared,
            merges=self._merges.take_apart(
                reported,
                {each.name: each.id for each in (*reported, *others)},
                likenesses,
                progress,
            ),
            notes=() if not judged.late else (_late(judged.late),),
        )

    def _judge_all(
        self,
        tenant: Tenant,
        period: Period,
        models: Mapping[str, KnownModel],
        likenesses: Mapping[str, Sequence[Likeness]],
        progress: Progress,
    ) -> _Judged:
        """Judge the declared bases: by lines that are known, by fingerprints, and in spaces."""
        judged, until = _Judged(), self._clock() + _JUDGING_S
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
        judged: _Judged,
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
    likenesses: Mapping[str, Sequence[Likeness]],
    judged: _Judged,
) -> Iterator[str]:
    """The models with a declared base that is stored, and that known lines do not confirm."""
    for model in models.values():
        if not model.is_reported:
            continue
        whole = {e.other for e in likenesses.get(model.name, ()) if e.verdict in WHOLE}
        judged.pairs |= {(model.name, base) for base in model.declared if base in whole}
        judged.unknown |= {(model.name, base) for base in model.declared if base not in models}
        if any(base in models and base not in whole for base in model.declared):
            yield model.name


def _is_open(
    name: str, bases: Sequence[str], models: Mapping[str, KnownModel], judged: _Judged
) -> bool:
    """Whether a space may say more of a model than its lines have said."""
    if not bases:
        return name not in models
    return any((name, base) not in judged.pairs for base in bases)


def _others(
    session: Reader, tenant: Tenant, reported: Sequence[MeasuredModel], found: Sequence[KinOf]
) -> list[MeasuredModel]:
    """The models that are kin or declared bases of those that a report is about."""
    ids = {each.other_id for each in found} - {each.id for each in reported}
    declared = {base for each in reported for base in each.declared}
    names = declared - {each.name for each in reported}
    met = queries.find_measured(session, tenant.id, ids=ids, names=names)
    return list({each.id: each for each in met}.values())


def _between(
    session: Reader, tenant: Tenant, models: Sequence[MeasuredModel], found: Sequence[KinOf]
) -> list[KinOf]:
    """What models are to declared bases: those that name them, and the kin of these."""
    ids = {each.name: each.id for each in models}
    bases = {ids[base] for each in models for base in each.declared if base in ids}
    named = {each.id for each in models if any(base in ids for base in each.declared)}
    kin = {each.other_id for each in found if each.fingerprint_id in named}
    return list(queries.kin_between(session, tenant.id, named | kin, bases))


def _known(
    model: MeasuredModel, weights: str | None, period: Period, *, is_reported: bool
) -> KnownModel:
    return KnownModel(
        name=model.name,
        is_reported=is_reported,
        is_new=is_reported and (period.since is None or model.created_at > period.since),
        stored_at=model.created_at,
        changed_at=model.changed_at,
        published_at=model.published_at,
        stated_by=model.stated_by,
        parameters=model.parameters,
        file_bytes=model.file_bytes,
        digest=model.digest,
        weights=weights,
        license=model.license,
        declared=tuple(base for base in model.declared if base != model.name),
        verdict=model.verdict,
        sentences=tuple(each["sentence"] for each in model.relations),
    )


def _likenesses(
    models: Sequence[MeasuredModel], found: Sequence[KinOf]
) -> dict[str, list[Likeness]]:
    names = {each.id: each.name for each in models}
    pairs = {(each.fingerprint_id, each.other_id): each for each in found}
    likenesses: dict[str, list[Likeness]] = {}
    for (own, other), kin in pairs.items():
        if own in names and other in names:
            like = Likeness(
                model=names[own],
                other=names[other],
                verdict=cast(Verdict, kin.verdict),
                share=kin.share,
                log10_p=kin.log10_p,
                sentence=kin.sentence,
            )
            likenesses.setdefault(like.model, []).append(like)
    return likenesses


def _late(count: int) -> str:
    models = "1 model was" if count == 1 else f"{count:,} models were"
    return f"The declared bases of {models} not judged: it would have taken too long."
