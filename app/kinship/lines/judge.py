"""``LineJudge``: declared bases judged by lines in common, whatever their layouts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.fingerprints.records import FingerprintRecord
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.infra.errors import FingerprintNotFound
from app.kinship.family import Family
from app.kinship.lineage_comparer import require_time
from app.kinship.lines.kinfolk import Kinfolk, NearModels
from app.kinship.lines.records import JudgedByLines, NearByLines, ReadModel, Whole
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.anatomy import anatomy_of
from modelkin.core.fingerprints.comparison import Comparison, compare
from modelkin.core.fingerprints.relations.edges import EDGE_SHARE
from modelkin.core.fingerprints.sources import WHOLE
from modelkin.core.kinship.line_relations import LineageRelation, headline, in_words
from modelkin.core.kinship.lines import judge_by_lines
from modelkin.types.lineages import LineEvidence

__all__ = ["LineJudge", "Lines"]

_TOGETHER = ("average", "assembled")
"""Verdicts about several bases."""
_MOST_RIVALS = 5
"""Models that are compared as other sources: together they must have half of the lines."""
_NEARLY = 0.05
"""Shares of lines that differ by no more count as equal: fine-tunes of one base are as near to each
other as to that."""


@dataclass(frozen=True, eq=False)
class Lines:
    """What lines say of a model.

    Attributes:
        bases: its declared bases that have a fingerprint, by name.
        whole: what it is to several of them together; None where each is by itself.
        near: the models with lines in common; None where they were not needed.
        family: what it and these models declare; None where they were not needed.
        made_of_it: names of near models that anatomies say were put together of it and others.
    """

    model: ReadModel
    bases: Mapping[str, JudgedByLines]
    whole: Whole | None
    near: NearModels | None
    family: Family | None
    made_of_it: Collection[str] = ()

    @property
    def is_root(self) -> bool:
        """Whether the model declares no base, and models with lines in common declare it."""
        if self.near is None or self.family is None or self.family.declared:
            return False
        return _has_derivatives(self.near, self.family)

    def likely_base(
        self, *, is_root: bool = False, roots: Collection[str] = ()
    ) -> NearByLines | None:
        """The model that may be the base; None for none, or where a base is confirmed.

        Args:
            is_root: whether the model is known to be a root, by lines or by anything else.
            roots: other models that are known to be roots, besides those that lines show.
        """
        if self.near is None or self.family is None:
            return None
        among = {*roots, *_roots(self.family)} if is_root or self.is_root else None
        items = [each for each in self.near.items if each.record.name not in self.made_of_it]
        near = replace(self.near, items=items)
        return _likely(self.model.record, near, self.family, among)

    def relation(self, evidence: LineEvidence | None) -> LineageRelation | None:
        """What the model is to its bases in one word: to several together, else to one.

        Args:
            evidence: of the base that decides; None where it was not judged.
        """
        if self.whole is not None:
            return headline(self.whole.relations, None)
        return None if evidence is None else evidence.relation


class LineJudge:
    """Judges declared bases by lines.

    Args:
        fingerprints: the stored fingerprints.
        kinfolk: the models with lines in common.
    """

    def __init__(self, fingerprints: FingerprintService, kinfolk: Kinfolk) -> None:
        self._fingerprints = fingerprints
        self._kinfolk = kinfolk

    def of(
        self,
        session: Reader,
        tenant: Tenant,
        name: str,
        declared: Sequence[str],
        deadline: Deadline,
    ) -> Lines | None:
        """What lines say of a model and its declared bases; None if it has no fingerprint.

        Raises: as :meth:`judge`.
        """
        model = self.find(session, tenant, name)
        return None if model is None else self.judge(session, tenant, model, declared, deadline)

    def find(self, session: Reader, tenant: Tenant, name: str) -> ReadModel | None:
        """The fingerprint of a model name; None if it has none."""
        record = self._fingerprints.find(session, tenant, name)
        return None if record is None else self._read(session, record)

    def declared_bases(
        self, session: Reader, tenant: Tenant, names: Iterable[str]
    ) -> dict[str, tuple[str, ...]]:
        """What fingerprints declare as their bases, of the names that have one."""
        found = self._fingerprints.find_many(session, tenant, names)
        return {name: record.facts.base_models for name, record in found.items()}

    def judge(
        self,
        session: Reader,
        tenant: Tenant,
        model: ReadModel,
        declared: Sequence[str],
        deadline: Deadline,
    ) -> Lines:
        """Judge the declared bases of a model that have a fingerprint.

        Raises:
            TooMuch, ClientLeft: the deadline is over, or the client has gone.
        """
        named = [name for name in dict.fromkeys(declared) if name != model.name]
        records = self._fingerprints.find_many(session, tenant, named)
        bases, compared = dict[str, JudgedByLines](), list[Comparison]()
        for name in named:
            require_time(deadline)
            base = self._read(session, records[name]) if name in records else None
            if base is not None:
                judgement = judge_by_lines(model.fingerprint, name, base.fingerprint)
                compared.append(judgement.comparison)
                bases[name] = JudgedByLines.of(model, base.record, judgement)
        near, family, made_of_it = None, None, set[str]()
        if not any(each.judgement.verdict == "consistent" for each in bases.values()):
            near = self._kinfolk.near(session, tenant, model.record, deadline)
            family = self._family(session, tenant, model, declared, near)
            bases = self._contradicted(session, model, bases, near, family, deadline)
            made_of_it = self._kinfolk.made_of(session, tenant, model.record, near.items, deadline)
        together = self._whole(session, tenant, model, compared, bases)
        return Lines(model, bases, together, near, family, made_of_it)

    def share(
        self, session: Reader, tenant: Tenant, name: str, base: str, known: Lines | None
    ) -> tuple[float, float] | None:
        """The share of a model's lines that its base has, and P; None without both fingerprints.

        Args:
            known: what lines say of a model, which need not be compared with its bases again.
        """
        if known is not None and name == known.model.name and base in known.bases:
            judged = known.bases[base].judgement.comparison
            return judged.share, judged.log10_p
        records = self._fingerprints.find_many(session, tenant, [name, base])
        if len(records) < 2:
            return None
        read = [self._read(session, records[each]) for each in (name, base)]
        both = [each for each in read if each is not None]
        if len(both) < 2:
            return None
        found = compare(both[0].fingerprint, base, both[1].fingerprint)
        return found.share, found.log10_p

    def _read(self, session: Reader, record: FingerprintRecord) -> ReadModel | None:
        """A stored fingerprint; None if it was removed meanwhile."""
        try:
            return ReadModel(record, self._fingerprints.read(session, record))
        except FingerprintNotFound:
            return None

    def _family(
        self,
        session: Reader,
        tenant: Tenant,
        model: ReadModel,
        declared: Sequence[str],
        near: NearModels,
    ) -> Family:
        known = {each.record.name: each.record.facts.base_models for each in near.items}

        def read(names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
            found = {name: known[name] for name in names if name in known}
            others = [name for name in names if name not in known]
            return {**self.declared_bases(session, tenant, others), **found} if others else found

        return Family.by(read, model.name, declared, list(known))

    def _contradicted(
        self,
        session: Reader,
        model: ReadModel,
        bases: Mapping[str, JudgedByLines],
        near: NearModels,
        family: Family,
        deadline: Deadline,
    ) -> dict[str, JudgedByLines]:
        """Judge again, beside the models that have most lines of this one and may be its source.

        Clients may state anything of models: what they state contradicts no file that was read.
        """
        rivals = [
            each
            for each in near.items
            if each.verdict in WHOLE and each.edge and family.relation(each.record.name) is None
            if _counts(each.record, model)
        ]
        others = list[Comparison]()
        if any(each.judgement.finding == "nothing" for each in bases.values()):
            for each in rivals[:_MOST_RIVALS]:
                require_time(deadline)
                rival = self._read(session, each.record)
                if rival is not None:
                    others.append(compare(model.fingerprint, rival.name, rival.fingerprint))
        return {
            name: _again(model, each, others) if _counts(each.base, model) else each
            for name, each in bases.items()
        }

    def _whole(
        self,
        session: Reader,
        tenant: Tenant,
        model: ReadModel,
        compared: Sequence[Comparison],
        bases: Mapping[str, JudgedByLines],
    ) -> Whole | None:
        """What the model is to several models together, of which one is a declared base."""
        if len(compared) > 1:
            found = anatomy_of(model.fingerprint, compared)
            if found.verdict in _TOGETHER:
                return Whole(in_words(found.relations))
        summary = self._kinfolk.summary(session, tenant, model.record) if bases else None
        if summary is None or summary.verdict not in _TOGETHER:
            return None
        whole = Whole(in_words(summary.relations))
        return whole if whole.models & bases.keys() else None


def _counts(record: FingerprintRecord, model: ReadModel) -> bool:
    """Whether what is known of another model may contradict this one."""
    return record.stated_by == "hub" or model.record.stated_by == "client"


def _again(model: ReadModel, base: JudgedByLines, others: Sequence[Comparison]) -> JudgedByLines:
    before = base.judgement
    if before.finding != "nothing" or not others:
        return base
    compared = before.comparison
    judgement = judge_by_lines(model.fingerprint, base.base.name, compared.theirs, others)
    return replace(base, judgement=judgement)


def _has_derivatives(near: NearModels, family: Family) -> bool:
    """Whether a model that is declared to be made from this one has lines in common with it.

    How many does not matter, as for the edge of a declared base: a heavy training leaves few.
    """
    return any(
        each.verdict in WHOLE
        for each in near.items
        if family.relation(each.record.name) == "derivative"
    )


def _roots(family: Family) -> set[str]:
    """The models that others declare, and that declare no base."""
    declared = {base for bases in family.bases.values() for base in bases}
    return {name for name in declared if not family.bases.get(name)}


def _likely(
    record: FingerprintRecord, near: NearModels, family: Family, roots: Collection[str] | None
) -> NearByLines | None:
    """The model that may be the base: one that is drawn as it, else the nearest that may be older.

    Models that the service read stand before those that others state. A base of the nearest that is
    about as near stands for it. Of a root, which others declare as their base, it is another root,
    or one that is known to be older: all else may be made from it, and is itself the finding.

    Args:
        roots: the roots among the near models, if the model is one itself.
    """
    found = {
        each.record.name: each
        for each in near.items
        if each.verdict in WHOLE and each.share >= EDGE_SHARE
        if roots is None or each.record.name in roots or not _may_be_made_from(record, each)
        if each.edge is not None or not _is_younger(each.record, record)
        if family.relation(each.record.name) in (None, "ancestor", "sibling")
    }
    ranked = sorted(
        found.values(),
        key=lambda each: (
            each.edge is None,
            each.record.stated_by != "hub",
            -each.share,
            each.record.name,
        ),
    )
    if not ranked:
        return None
    likely, seen = ranked[0], set[str]()
    while likely.record.name not in seen:
        seen.add(likely.record.name)
        for base in family.bases.get(likely.record.name, ()):
            if base in found and found[base].share >= likely.share - _NEARLY:
                likely = found[base]
                break
    return likely


def _may_be_made_from(record: FingerprintRecord, other: NearByLines) -> bool:
    """Whether a near model may be made from this one, and would be found to be.

    A copy, or a model that this one is a part of, is drawn as the base though no date says so. Of
    a far larger one too few lines are this one's to find it there.
    """
    dated = record.facts.published_at is not None and other.record.facts.published_at is not None
    if other.edge is None:
        return True
    if other.edge == "declared" or dated:
        return False
    return other.share * record.parameters >= EDGE_SHARE * other.record.parameters


def _is_younger(other: FingerprintRecord, record: FingerprintRecord) -> bool:
    """Whether the dates say that another model is no older."""
    theirs, own = other.facts.published_at, record.facts.published_at
    return theirs is not None and own is not None and theirs >= own
