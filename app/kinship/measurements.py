"""Measurements around a model, and the judgement of its declared base by them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.kinship.family import Family
from app.kinship.pair_backgrounds import PairBackgrounds
from modelkin.core.kinship.lineage import (
    SIMILARITY_TOLERANCE,
    Estimate,
    Judgement,
    Rival,
    is_between,
    judge,
    stands_out,
)
from modelkin.core.similarity.background import Background
from modelkin.types.lineages import Kin, LineageLink
from modelkin.types.search import Neighbor
from modelkin.types.vocabulary import Relation

__all__ = ["Measurements", "judge_base", "kin_of", "link_of"]


@dataclass(frozen=True, slots=True)
class Measurements:
    """The similarities of the models around a model.

    Attributes:
        declared: the declared base; None without one.
        weights: whether the space is of weights, so that kappa decides first.
        near: the nearest models, the nearest first.
        base: the declared base; None if it is not in the space.
        rivals: the models of ``near``, besides the base, that the model may be made from.
        to_base: the similarity of compared rivals to the declared base, by name.
        over_common: rivals that lack parameters which the others have, or have more, as they are
            over what all three have, by name.
        background: the background of the declared strangers, or of all models but the base if
            strangers are too few.
        unrelated: whether the background is that of the strangers.
        pairs: the backgrounds of a model and another one together, for kappas that do not decide.
    """

    declared: str | None
    weights: bool
    near: Sequence[Neighbor]
    base: Neighbor | None
    rivals: Sequence[Neighbor]
    to_base: Mapping[str, Neighbor]
    background: Background
    unrelated: bool
    over_common: Mapping[str, Rival] = field(default_factory=dict)
    pairs: PairBackgrounds | None = None

    def rival(self, item: Neighbor) -> Rival:
        """A rival as the rules take it."""
        found = self.over_common.get(item.model)
        if found is None:
            return Rival(self.estimate(item), self.estimate(self.to_base[item.model]))
        if self.weights or found.base is None:
            return found
        each = (found.to_model, found.to_base, found.base)
        return Rival(*(replace(estimate, kappa=None) for estimate in each))

    def estimate(self, item: Neighbor) -> Estimate:
        """A similarity as the rules take it: with kappa where that decides."""
        kappa = item.kappa if self.weights else None
        return Estimate(item.similarity, item.standard_error, kappa)

    def beside(self, item: Neighbor, background: Background | None = None) -> Background:
        """The background that a similarity is compared with.

        Args:
            item: the other model.
            background: that of the unrelated models, if it is another one than the own.
        """
        found = None
        if self.pairs is not None and is_between(self.estimate(item)):
            found = self.pairs.of(item.model)
        return found or background or self.background

    def all_standing_out(self, background: Background) -> list[Neighbor]:
        """The rivals that stand out from a background, the nearest first."""
        return [
            item
            for item in self.rivals
            if stands_out(self.estimate(item), self.beside(item, background))
        ]

    def standing_out(
        self,
        background: Background,
        bases: Mapping[str, Sequence[str]],
        made_of_it: Collection[str] = (),
    ) -> str | None:
        """The nearest rival that stands out from a background, or a base of it that is as near.

        Fine-tunes of one base are about as near to each other as to the base. A rival that is equal
        is no fine-tune, so only an equal base of it stands in for that. Of two copies it is the one
        that others declare.

        Args:
            background: the background of unrelated models.
            bases: the declared bases of every model that was read.
            made_of_it: models that were put together of this one, and so are no base of it.
        """
        standing = self.all_standing_out(background)
        out = {each.model: each.similarity for each in standing if each.model not in made_of_it}
        equal = {item.model for item in self.rivals if _is_equal(item)}
        named = {base for each in bases.values() for base in each}
        likely = max(out, key=lambda name: (name in equal, out[name], name in named), default=None)
        seen: set[str] = set()
        while likely is not None and likely not in seen:
            seen.add(likely)
            for base in bases.get(likely, ()):
                near = base in out and out[base] >= out[likely] - SIMILARITY_TOLERANCE
                if near and (likely not in equal or base in equal):
                    likely = base
                    break
        return likely


def _is_equal(item: Neighbor) -> bool:
    """Whether two supports are the same."""
    return item.estimate == "exact" and item.similarity == 1.0


def judge_base(measured: Measurements, family: Family, *, contradict: bool) -> Judgement | None:
    """The judgement of the declared base; None where it cannot be measured.

    Args:
        contradict: whether the space can contradict a base.
    """
    base = measured.base
    if base is None:
        return None
    judgement = judge(
        measured.estimate(base),
        [measured.rival(item) for item in measured.rivals],
        measured.beside(base),
        unrelated=measured.unrelated,
        runner_up=_runner_up(measured, family),
    )
    if judgement.verdict == "mismatch" and not contradict:
        return Judgement("inconclusive", "differences")
    return judgement


def _runner_up(measured: Measurements, family: Family) -> Estimate | None:
    """The nearest model, except the base and models made from the model; so another declared base.

    If no other model is near, it is the base if that is near, since every other model is farther;
    else the nearest model made from the model.
    """
    relations = [_relation(item.model, measured, family) for item in measured.near]
    for wanted in ({None, "ancestor", "sibling"}, {"base"}, {"derivative"}):
        for item, relation in zip(measured.near, relations, strict=True):
            if relation in wanted:
                return measured.estimate(item)
    return None


def _relation(name: str, measured: Measurements, family: Family) -> Relation | None:
    """The relation of a model; none of a base that is not the one in question."""
    relation = family.relation(name)
    return None if relation == "base" and name != measured.declared else relation


def kin_of(item: Neighbor, measured: Measurements, family: Family) -> Kin:
    """A model as evidence."""
    to_base = measured.to_base.get(item.model)
    return Kin(
        model=item.model,
        similarity=item.similarity,
        estimate=item.estimate,
        standard_error=item.standard_error,
        z_score=measured.background.z_score(item.similarity),
        stands_out=stands_out(measured.estimate(item), measured.beside(item)),
        base_model=_only(family.bases.get(item.model, ())),
        base_models=family.bases.get(item.model, ()),
        relation=family.relation(item.model),
        to_base=None if to_base is None else to_base.similarity,
        expected=item.expected,
        kappa=item.kappa,
        covered=item.covered,
    )


def link_of(model: str, base: str, found: Neighbor | None) -> LineageLink:
    """A step of a chain, with the similarity of the two where that is known."""
    if found is None:
        return LineageLink(model, base)
    return LineageLink(
        model=model,
        base_model=base,
        similarity=found.similarity,
        estimate=found.estimate,
        standard_error=found.standard_error,
        expected=found.expected,
        kappa=found.kappa,
        covered=found.covered,
    )


def _only(bases: Sequence[str]) -> str | None:
    """The base of a model that declares one; None of several."""
    return bases[0] if len(bases) == 1 else None
