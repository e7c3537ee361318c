"""``EvidenceCollector``: reads what a report is made from, and has declared bases judged.

What is read grows with the models that a report is about and their kin, and with nothing else: the
figures of pairs are kept in arrays, and only the sentences that a report shows are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from app.infra.db.database import Database, Reader
from app.jobs.service import Progress
from app.kinship.reports.evidence import Evidence
from app.kinship.reports.families import Families
from app.kinship.reports.judging import BaseJudge
from app.kinship.reports.known import KnownModel, Period
from app.kinship.reports.likenesses import Likenesses, Pairs
from app.kinship.reports.merges import MERGED, MergeReader
from app.kinship.reports.repositories import evidence as queries
from app.kinship.reports.repositories.evidence import NEAREST, MeasuredModel
from app.tenancy.auth.records import Tenant

__all__ = ["EvidenceCollector"]

_AT_ONCE = 1_000
"""Models that are read together."""


@dataclass(eq=False)
class _Models:
    """The models that were read.

    Attributes:
        known: what a report needs of them, by name.
        ids: of their fingerprints, by name.
        merged: those reported that are averages, or put together of several.
    """

    known: dict[str, KnownModel] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    merged: list[MeasuredModel] = field(default_factory=list)

    def add(self, model: MeasuredModel, known: KnownModel) -> None:
        """Take over a model."""
        self.known[model.name] = known
        self.ids[model.name] = model.id
        if known.is_reported and any(each["relation"] in MERGED for each in model.relations):
            self.merged.append(model)


class EvidenceCollector:
    """Collects the evidence of reports.

    Args:
        database: the database, which is read.
        merges: takes merges apart.
        judge: judges declared bases.
    """

    def __init__(self, database: Database, merges: MergeReader, judge: BaseJudge) -> None:
        self._database = database
        self._merges = merges
        self._judge = judge

    def collect(self, tenant: Tenant, period: Period, progress: Progress) -> Evidence:
        """Read all that a report of this time is made from."""
        progress(0, 0, "reading")
        with self._database.reading() as session:
            count = queries.count_fingerprints(session, tenant.id)
            models, pairs = _Models(), Pairs()
            measured = queries.measured_since(session, tenant.id, period.since, period.until)
            self._read(session, tenant, period, measured, models, is_reported=True)
            whole = _read_kin(session, tenant, models, pairs, progress)
            others = _others(session, tenant, models, pairs)
            self._read(session, tenant, period, others, models, is_reported=False)
            wanted = _towards_bases(models, pairs, whole)
            for rows in queries.kin_between(session, tenant.id, wanted):
                pairs.add(rows)
            likenesses = Likenesses({id_: name for name, id_ in models.ids.items()}, pairs)
            families = Families(models.known, likenesses)
            sentences = _sentences(session, tenant, models, families)
        judged = self._judge.judge(tenant, period, models.known, likenesses, progress)
        taken = self._merges.take_apart(models.merged, models.ids, likenesses, progress)
        return Evidence(
            owner=tenant.name,
            period=period,
            fingerprints=count,
            models=models.known,
            likenesses=likenesses,
            families=families,
            sentences=sentences,
            contradicted=judged.contradicted,
            judged=len(judged.pairs),
            unknown=len(judged.unknown),
            undeclared=judged.undeclared,
            merges=taken.found,
            notes=(*judged.notes(), *taken.notes()),
        )

    def _read(
        self,
        session: Reader,
        tenant: Tenant,
        period: Period,
        measured: Iterable[MeasuredModel],
        models: _Models,
        *,
        is_reported: bool,
    ) -> None:
        """Take over models with the digests of their weights."""
        for some in _parts(measured):
            weights = queries.weights_of(session, tenant.id, [each.name for each in some])
            for each in some:
                digest = weights.get(each.name)
                models.add(each, _known(each, digest, period, is_reported=is_reported))


def _read_kin(
    session: Reader, tenant: Tenant, models: _Models, pairs: Pairs, progress: Progress
) -> set[int]:
    """Read the kin of models; the ids of those of which all were read."""
    ids, whole = sorted(models.ids.values()), set(models.ids.values())
    done = 0
    for some, rows in queries.kin_of(session, tenant.id, ids):
        pairs.add(rows)
        done += len(some)
        progress(done, len(ids), "reading kin")
        counts: dict[int, int] = {}
        for row in rows:
            counts[row[0]] = counts.get(row[0], 0) + 1
        whole -= {each for each, count in counts.items() if count == NEAREST}
    return whole


def _others(
    session: Reader, tenant: Tenant, models: _Models, pairs: Pairs
) -> Iterator[MeasuredModel]:
    """The models that are kin or declared bases of those that a report is about."""
    ids = pairs.others() - set(models.ids.values())
    names = {base for each in models.known.values() for base in each.declared}
    met = set[int]()
    for each in queries.find_measured(
        session, tenant.id, ids=ids, names=names - models.known.keys()
    ):
        if each.id not in met:
            met.add(each.id)
            yield each


def _towards_bases(models: _Models, pairs: Pairs, whole: set[int]) -> Mapping[int, set[int]]:
    """The models of which it is not known what they are to a base: those that name it, their kin.

    Args:
        whole: ids of those of which all kin are known.

    Returns:
        Their ids, by that of the base.
    """
    declared = {
        models.ids[each.name]: [models.ids[base] for base in each.declared if base in models.ids]
        for each in models.known.values()
    }
    wanted: dict[int, set[int]] = {}
    for model, bases in declared.items():
        for base in bases:
            wanted.setdefault(base, set()).add(model)
    for model, other in pairs.ids():
        for base in declared.get(model, ()):
            wanted[base].add(other)
    return {base: ids - whole - {base} for base, ids in wanted.items()}


def _sentences(
    session: Reader, tenant: Tenant, models: _Models, families: Families
) -> dict[tuple[str, str], str]:
    """What was seen of each model and the base that it does not name."""
    found = (families.undeclared(each) for each in models.known.values() if each.is_reported)
    wanted = {
        models.ids[each.model]: (models.ids[each.other], (each.model, each.other))
        for each in found
        if each is not None
    }
    said = queries.sentences(session, tenant.id, {id_: base for id_, (base, _) in wanted.items()})
    return {wanted[id_][1]: sentence for id_, sentence in said}


def _parts(models: Iterable[MeasuredModel]) -> Iterator[list[MeasuredModel]]:
    left = iter(models)
    while some := list(islice(left, _AT_ONCE)):
        yield some


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
