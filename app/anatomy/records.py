"""What anatomies and relatives are, as plain frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from app.fingerprints.records import FingerprintRecord
from modelkin.core.fingerprints.anatomy import Anatomy, AnatomyVerdict, Parent
from modelkin.core.fingerprints.comparison import Comparison
from modelkin.core.fingerprints.relations.edges import EdgeReason, edge_reason
from modelkin.core.fingerprints.relations.relation import Relation
from modelkin.core.fingerprints.sources import Verdict

__all__ = [
    "Kin",
    "ModelAnatomy",
    "Relative",
    "Relatives",
    "Summary",
    "TensorPairs",
    "base_among",
    "edge_to",
    "put_together_of",
]


@dataclass(frozen=True, eq=False)
class ModelAnatomy:
    """The anatomy of a checkpoint among a tenant's models.

    Attributes:
        record: of the checkpoint; None where it is not stored.
        anatomy: as the core makes it.
        records: those of its parents, by name.
        comparisons: with its parents, by name.
        compared: how many models were asked.
        common: finding keys that several unrelated models have; they make nobody kin.
        truncated: whether there may be parents that are not named.
        is_whole: whether the time was enough for all models that were found.
        degraded: as :class:`app.fingerprints.finding.records.Found` has it.
        unrelated: ids of models that it was to be compared with, which have common keys of it and
            nothing else.
        sharing: as :class:`app.fingerprints.finding.records.Found` has it.
    """

    record: FingerprintRecord | None
    anatomy: Anatomy
    records: Mapping[str, FingerprintRecord]
    comparisons: Mapping[str, Comparison]
    compared: int
    common: int
    truncated: bool
    is_whole: bool = True
    degraded: bool = False
    unrelated: tuple[int, ...] = ()
    sharing: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_lasting(self) -> bool:
        """Whether it stays right until a fingerprint changes."""
        return self.is_whole and not self.degraded


@dataclass(frozen=True, eq=False)
class Relative:
    """A model with lines in common.

    Attributes:
        record: of the model.
        parent: what is said of it by itself, where chance is excluded; else None.
        relations: what the checkpoint is to it, each in a sentence; none as ``parent``.
        comparison: of the checkpoint with it.
        log10_e: the logarithm of how many strangers would have so many lines in common.
        edge: why it is a base of the checkpoint; None where it is none.
    """

    record: FingerprintRecord
    parent: Parent | None
    relations: tuple[Relation, ...]
    comparison: Comparison
    log10_e: float
    edge: EdgeReason | None


@dataclass(frozen=True, eq=False)
class Relatives:
    """The models with lines in common, the nearest first; see :class:`ModelAnatomy`."""

    record: FingerprintRecord | None
    items: tuple[Relative, ...]
    compared: int
    common: int
    truncated: bool
    is_whole: bool = True
    degraded: bool = False

    @property
    def is_lasting(self) -> bool:
        """Whether it stays right until a fingerprint changes."""
        return self.is_whole and not self.degraded


@dataclass(frozen=True, eq=False)
class TensorPairs:
    """Two models compared tensor by tensor.

    Attributes:
        anatomy: of the first, with the other one alone.
        comparison: of both.
    """

    record: FingerprintRecord
    other: FingerprintRecord
    anatomy: Anatomy
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Kin:
    """What a stored model is to another one, as it was measured. Each pair has two.

    Attributes:
        fingerprint_id: of the model.
        other_id: of the other one.
        verdict: what the model is to the other one.
        relation: the name of the relation that says most of the two.
        sentence: all relations of the two in English, without a full stop; it names the other one.
        share: of the model's lines, those that the other one has.
        share_of_other: of the other one's lines.
        share_of_parameters: of the model's parameters, by the share of each tensor.
        keys: the lines in common that were sampled.
        expected: how many strangers would have, at most.
        log10_p: the decimal logarithm of the probability of so many by chance.
        made_at: when they were compared.
    """

    fingerprint_id: int
    other_id: int
    verdict: Verdict
    relation: str
    sentence: str
    share: float
    share_of_other: float
    share_of_parameters: float
    keys: int
    expected: float
    log10_p: float
    made_at: datetime


@dataclass(frozen=True, slots=True)
class Summary:
    """The last anatomy of a stored model.

    Attributes:
        verdict: what the model is as a whole.
        relations: what it is to its parents.
        parents: the ids of these, the one that adds most first.
        first_share: of its lines, those that the first parent has.
        covered: those that any parent has.
        compared: how many models were asked.
        common: finding keys that several unrelated models have.
        truncated: whether there may be parents that are not named.
        base: the id of the model whose family it is of, see :func:`base_among`; None for a root.
        is_due: whether another model came since that may change it.
        made_at: when it was made.
    """

    fingerprint_id: int
    verdict: AnatomyVerdict
    relations: tuple[Relation, ...]
    parents: tuple[int, ...]
    first_share: float
    covered: float
    compared: int
    common: int
    truncated: bool
    base: int | None
    is_due: bool
    made_at: datetime


def edge_to(
    record: FingerprintRecord | None, other: FingerprintRecord, verdict: Verdict, share: float
) -> EdgeReason | None:
    """Why a model is drawn as made from another one; None where it is not.

    Args:
        record: of the model; None where nothing is known of it beside its lines.
        other: of the other one.
        verdict: what the model is to it.
        share: of the model's lines, those that the other one has.
    """
    if record is None:
        return edge_reason(verdict, share)
    declared = other.name in record.facts.base_models and other.name != record.name
    if record.name in other.facts.base_models and not declared:
        return None  # the other one says that it came later
    return edge_reason(
        verdict,
        share,
        declared=declared,
        published_at=record.facts.published_at,
        base_published_at=other.facts.published_at,
    )


def base_among(
    record: FingerprintRecord, parents: Iterable[tuple[FingerprintRecord, Verdict, float]]
) -> int | None:
    """The id of the one base by which a model is counted as a member of a family.

    Of its edges it is the first that the model declares, else the first; a family tree has the same
    ones. Copies are nobody's members, as neither has to be the first. None for a root.

    Args:
        parents: models with lines in common, what the model is to each, and the share of its lines;
            the one that adds most first.
    """
    edges = [(other, edge_to(record, other, verdict, share)) for other, verdict, share in parents]
    for wanted in ("declared",), ("part", "lines"):
        for other, edge in edges:
            if edge in wanted:
                return other.id
    return None


def put_together_of(relations: Iterable[Relation]) -> set[str]:
    """The names of the models that a checkpoint is an average of, or was assembled of."""
    return {
        name
        for each in relations
        if each.relation in ("average", "assembled")
        for name in each.models
    }
