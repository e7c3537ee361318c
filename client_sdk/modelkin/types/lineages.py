"""Answers about declared bases: the lineage of a model or a fingerprint, and audits of spaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from modelkin._printing import Printed
from modelkin.types.kinship import SimilarityBaseline
from modelkin.types.paging import table
from modelkin.types.vocabulary import (
    BaseRelation,
    Estimate,
    LineageReason,
    LineageRelation,
    LineageVerdict,
    LineFinding,
    LineVerdict,
    Relation,
)

if TYPE_CHECKING:
    import pandas

__all__ = [
    "DeclaredBase",
    "FingerprintLineage",
    "Kin",
    "LikelyBase",
    "LineEvidence",
    "LineRelation",
    "Lineage",
    "LineageLink",
]


@dataclass(frozen=True, slots=True)
class Kin:
    """A model as evidence for or against a lineage.

    Attributes:
        similarity: S to the model in question, 0 to 1.
        estimate: as in :class:`modelkin.Neighbor`.
        standard_error: the standard error of ``similarity``; 0 where it is exact.
        z_score: how many deviations it is above what is usual; None without a spread.
        stands_out: whether it is beyond what unrelated models have; None where its error allows
            either, or too few models say.
        base_model: what it declares itself; None where that is several.
        base_models: all that it declares itself.
        relation: what the declared bases make of it: ``"base"``, ``"ancestor"``, ``"derivative"``
            (of the model), ``"sibling"`` (of one base) or None.
        to_base: the model's S to the declared base, where that is known and it is not a relative.
        expected, kappa: S by chance and S beyond it, as in :class:`modelkin.Neighbor`.
        covered: the share of the parameters that both have, as in :class:`modelkin.Neighbor`.
        log10_p: the decimal logarithm of the P of so much between unrelated models, which have a
            kappa of .1 at the most; None where kappa is unknown.
    """

    model: str
    similarity: float
    estimate: Estimate
    standard_error: float
    z_score: float | None = None
    stands_out: bool | None = None
    base_model: str | None = None
    relation: Relation | None = None
    to_base: float | None = None
    expected: float | None = None
    kappa: float | None = None
    base_models: tuple[str, ...] = ()
    covered: float | None = None
    log10_p: float | None = None


@dataclass(frozen=True, slots=True)
class LineRelation:
    """One thing that was found out about a model and others, whatever their layouts.

    Attributes:
        relation: one word for it; ``"changed"`` where lines do not tell a training from rounding.
        models: the names of the others.
        sentence: the same for people, in English, without a full stop.
    """

    relation: LineageRelation
    models: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineEvidence:
    """What lines in common say of a model and its declared base, whatever their layouts.

    Attributes:
        verdict: ``"consistent"``, ``"mismatch"`` or ``"inconclusive"``, by lines alone.
        finding: why: it ``"shares"`` weights with the base; lines in ``"few_tensors"`` alone;
            ``"related"``, with no tensor that has enough; ``"nothing"`` in common, which proves
            nothing; too ``"few_lines"`` to tell; or an ``"other_source"`` has most of its lines.
        relation: what the model is to its bases, in one word; None where nothing was measured.
        relations: the same in sentences, all that was measured.
        share_of_lines: of the model's sampled lines, those that the base has.
        share_of_base: of the base's lines, those that the model has.
        share_of_parameters: of the parameters that are compared, by the share of each tensor.
        keys: the lines in common that were sampled.
        expected: how many strangers would have, at most.
        log10_p: the decimal logarithm of the probability of so many by chance.
        scale: one line in so many was compared.
        tensors: how many tensors were compared; those of equal values are one.
        found: how many of them have lines of the base.
        tensors_of_base: which these are, in words; None for none.
        new_tensors: which have none, in words; None for none. A tensor that was trained for long
            has none either.
        stated_by: ``"hub"`` where the service read the base's file, else ``"client"``.
        sources: the models that contradict the base, the one with most lines first.
    """

    verdict: LineageVerdict
    finding: LineFinding
    relation: LineageRelation | None = None
    relations: tuple[LineRelation, ...] = ()
    share_of_lines: float
    share_of_base: float
    share_of_parameters: float
    keys: int
    expected: float
    log10_p: float
    scale: int
    tensors: int
    found: int
    tensors_of_base: str | None = None
    new_tensors: str | None = None
    stated_by: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelyBase:
    """A model whose lines another one has, and that may be its base.

    Attributes:
        verdict: what the model in question is to it: ``"copy"``, ``"part"`` or ``"derived"``.
        share_of_lines: of the lines of the model in question, those that it has.
        log10_p: the decimal logarithm of the probability of so many by chance.
        edge: why it is drawn as a base: ``"copy"``, ``"part"``, or ``"lines"`` where it is the
            older; None where nothing says which of the two came first.
        stated_by: ``"hub"`` where the service read its file, else ``"client"``.
    """

    model: str
    verdict: LineVerdict
    share_of_lines: float
    log10_p: float
    edge: str | None = None
    stated_by: str


@dataclass(frozen=True, slots=True)
class DeclaredBase:
    """A base that a model declares, judged by itself.

    Attributes:
        verdict: ``"consistent"``, ``"mismatch"``, ``"inconclusive"``, or ``"unknown_base"`` where
            the base is not in the space, and has no fingerprint.
        reason: as in :class:`modelkin.Lineage`.
        similarity, kappa: S of the two and S beyond chance; None where they are not measured.
        revision: the earlier revision of the base that was compared; None for the present one.
        covered: the share of the parameters that both have, as in :class:`modelkin.Neighbor`.
        log10_p, no_p: as in :class:`modelkin.Lineage`.
        lines: what lines in common say; None where one of the two has no fingerprint.
    """

    base_model: str
    verdict: LineageVerdict
    reason: LineageReason | None = None
    similarity: float | None = None
    kappa: float | None = None
    revision: int | None = None
    covered: float | None = None
    log10_p: float | None = None
    lines: LineEvidence | None = None
    no_p: str | None = None


@dataclass(frozen=True, slots=True)
class LineageLink:
    """A step from a model to the base that it declares.

    Attributes:
        similarity: S of the two; None where the base is not in this space.
        estimate, standard_error: those of ``similarity``; None where the base is not in this space.
        expected, kappa: S by chance and S beyond it, as in :class:`modelkin.Neighbor`.
        covered: the share of the parameters that both have, as in :class:`modelkin.Neighbor`.
        share_of_lines: of the model's sampled lines, those that the base has; None where one of the
            two has no fingerprint.
        log10_p: the decimal logarithm of the probability of so many by chance.
    """

    model: str
    base_model: str
    similarity: float | None = None
    estimate: Estimate | None = None
    standard_error: float | None = None
    expected: float | None = None
    kappa: float | None = None
    covered: float | None = None
    share_of_lines: float | None = None
    log10_p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Lineage(Printed):
    """A declared base beside the measured similarities.

    Attributes:
        verdict: ``"consistent"``, ``"mismatch"``, ``"inconclusive"``, ``"unknown_base"`` (the base
            is not in this space), ``"undeclared"`` or ``"cycle"`` (the declared bases lead back to
            the model).
        reason: what decided on the declared base, where it was measured: ``"chance"``,
            ``"rival"``, ``"background"`` or ``"farther"`` contradict it, ``"kappa"``,
            ``"stands_out"`` or ``"nearest"`` agree with it, and ``"doubt"``, ``"few"``,
            ``"unclear"``, ``"differences"``, ``"changed"`` or ``"pinned"`` leave it open.
            ``"lines"`` where the base is not in this space, and lines in common judged it.
        summary: why, in a sentence or two.
        declared_base: what the model declares; of several bases the one that decides: the first
            that is contradicted, else not in the space, else left open.
        declared_bases: all that it declares, each with its own verdict.
        base_relation: what the model is said to be of its bases, ``"merge"`` for one; or None.
        likely_base: the nearest model that stands out, apart from declared derivatives and
            siblings, unless the declared base is confirmed; or a base that it declares which is as
            near within .05, and no farther than an equal model. S has no direction, so that model
            may as well derive from this one.
        base: the declared base as evidence; None where it is not in this space.
        base_revision: the revision of the base that ``base`` is about, where that is an earlier one
            than the present; else None.
        rival: the model that contradicts the declared base, or leaves it in doubt.
        kin: the nearest models, nearest first.
        usual: the similarities of the other models, without declared relatives; of the lower
            population, where these are two.
        limit: the S from which on a model stands out, 1 at most. In a space of weights kappa
            decides first.
        chain: the declared bases, one after another, until nothing is declared or known; of several
            the first.
        cycle: the chain returns to a model that is already in it.
        note: a caveat in words: the space does not state the importance of its supports, or holds
            differences; else None.
        constant_tensors: the tensors that no training changed, which S and chance leave out.
        log10_p: the decimal logarithm of the P of the verdict: of as large an S to the declared
            base, or without one to the likely base, between unrelated models. These have a kappa of
            .1 at the most. Where S is not measured, of as many lines in common by chance. None
            where that is not known, and ``no_p`` says why.
        no_p: why the verdict has no P; None where it has one.
        relation: what lines show that the model is to its bases, in one word; None where nothing
            was measured.
        lines: what lines in common say of ``declared_base``, whatever its layout; None where one of
            the two has no fingerprint.
        lines_agree: whether lines come to the same verdict as S; None where one of them leaves it
            open. The summary says why they differ.
        likely_by_lines: the evidence of a ``likely_base`` that was found by lines.
    """

    _first_columns: ClassVar[tuple[str, ...]] = (
        *("model", "similarity", "kappa", "expected", "stands_out", "relation", "z_score"),
    )
    model: str
    verdict: LineageVerdict
    reason: LineageReason | None = None
    summary: str
    declared_base: str | None = None
    declared_bases: tuple[DeclaredBase, ...] = ()
    base_relation: BaseRelation | None = None
    likely_base: str | None = None
    base: Kin | None = None
    base_revision: int | None = None
    rival: Kin | None = None
    kin: tuple[Kin, ...]
    usual: SimilarityBaseline
    limit: float
    chain: tuple[LineageLink, ...]
    cycle: bool
    note: str | None = None
    constant_tensors: tuple[str, ...] = ()
    log10_p: float | None = None
    no_p: str | None = None
    relation: LineageRelation | None = None
    lines: LineEvidence | None = None
    lines_agree: bool | None = None
    likely_by_lines: LikelyBase | None = None

    def to_pandas(self) -> pandas.DataFrame:
        """The kin as a ``pandas.DataFrame``, nearest first.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return table(self.kin, Kin)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FingerprintLineage(Printed):
    """The declared bases of a stored fingerprint, judged by lines in common.

    Attributes:
        verdict, declared_base, declared_bases, chain, cycle: as in :class:`modelkin.Lineage`; an
            ``"unknown_base"`` has no fingerprint.
        reason: ``"lines"``; None where nothing was compared.
        summary: why, in a few sentences.
        base_relation: what the model is said to be of its bases.
        relation: what lines show that it is to them, in one word; None where nothing was measured.
        lines: the evidence of ``declared_base``.
        likely_base: a model whose lines it has, unless a declared base is confirmed; None for none.
        likely_by_lines: the evidence of that.
        log10_p: the decimal logarithm of the P of the verdict: of as many lines in common with the
            declared base, or without its fingerprint with the likely base, by chance. None where
            nothing was compared, and ``no_p`` says so.
        no_p: why the verdict has no P; None where it has one.
        compared: how many models were asked for a likely base or another source; 0 where that was
            not needed.
        truncated: whether more of them may be kin than were looked at.
    """

    model: str
    verdict: LineageVerdict
    reason: LineageReason | None = None
    summary: str
    declared_base: str | None = None
    declared_bases: tuple[DeclaredBase, ...] = ()
    base_relation: str | None = None
    relation: LineageRelation | None = None
    lines: LineEvidence | None = None
    likely_base: str | None = None
    likely_by_lines: LikelyBase | None = None
    log10_p: float | None = None
    no_p: str | None = None
    chain: tuple[LineageLink, ...] = ()
    cycle: bool = False
    compared: int = 0
    truncated: bool = False
