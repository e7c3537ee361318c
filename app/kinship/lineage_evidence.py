"""``LineageEvidence``: all that was measured around a model, and what follows from it.

:mod:`modelkin.core.kinship.lineage` has the rules. Here one of the declared bases decides, and the
answer is put together, with what has to be said beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from app.hubs.ingestion.stored_models import hub_of
from app.infra.db.database import Reader
from app.kinship.declared_bases import JudgedBase, deciding_base
from app.kinship.family import Family
from app.kinship.lines.judge import Lines
from app.kinship.measurements import Measurements, kin_of
from app.kinship.neighborhood import Neighborhood
from app.kinship.repository import declared_bases, ids_declaring
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.catalog.repositories.models import find_models
from app.models.spaces.records import SpaceRecord
from app.search.constants import LATE, Constants, tensors_in_words
from modelkin.core.kinship.lineage import (
    Judgement,
    LineageVerdict,
    Reason,
    is_between,
    lineage_verdict,
    stands_out,
)
from modelkin.types.kinship import SimilarityBaseline
from modelkin.types.lineages import Kin, Lineage, LineageLink
from modelkin.types.search import Neighbor

__all__ = ["OF_DATA", "UNREAD", "LineageEvidence", "settled"]

_DIFFERENCES_NOTE = (
    "this space holds differences from a base, which show what was tuned alike; lineage is read in "
    "a space of weights"
)
OF_DATA: Final = frozenset({"fisher", "grad_moment", "adam"})
"""Kinds of importance that depend on the data of a model more than on its base."""
_DATA_NOTE = (
    "in this space near models have similar data, whatever they were made from; lineage is read in "
    "a space of weights"
)
UNREAD: Final = {"delta": _DIFFERENCES_NOTE, **dict.fromkeys(OF_DATA, _DATA_NOTE)}
"""The note of an answer, by the space's kind of importance, if lineages cannot be read there."""
_MANY_TIMES: Final = 1.25
"""The ratio of two sizes of supports beyond which S says little: S is 0.89 at most."""
_MAX_COPIES: Final = 3
"""Models with the same support that a summary names."""


@dataclass(frozen=True, eq=False)
class LineageEvidence:
    """What was measured around a model of a space.

    Attributes:
        near: the nearest models, the nearest first.
        bases: its declared bases, as they are settled; one that stands for none where none is.
        lines: what lines say of it; None where it has no fingerprint.
    """

    space: SpaceRecord
    model: ModelRecord
    constants: Constants
    family: Family
    neighborhood: Neighborhood
    near: Sequence[Neighbor]
    bases: Sequence[JudgedBase]
    lines: Lines | None

    @cached_property
    def decided(self) -> JudgedBase:
        """The base that the verdict is about."""
        return deciding_base(self.bases)

    @property
    def verdict(self) -> LineageVerdict:
        """The verdict on the model."""
        is_declared = self.decided.measured.declared is not None
        circular = self.family.leads_back
        return lineage_verdict(self.decided.judgement, declared=is_declared, circular=circular)

    @property
    def reason(self) -> Reason | None:
        """The reason of the verdict; None without a judgement that counts."""
        judgement = self.decided.judgement
        return None if judgement is None or self.verdict == "cycle" else judgement.reason

    @property
    def rival(self) -> Neighbor | None:
        """The rival that decided, if one did."""
        judgement = self.decided.judgement
        if judgement is None or judgement.rival is None:
            return None
        return self.decided.measured.rivals[judgement.rival]

    def lineage(self, session: Reader, chain: Sequence[LineageLink], kin: int) -> Lineage:
        """The lineage by S alone, without a summary.

        Args:
            chain: the declared bases, one after another.
            kin: the most of the nearest models that are in it.
        """
        measured, usual = self.decided.measured, self.decided.measured.background
        return Lineage(
            model=self.model.name,
            verdict=self.verdict,
            reason=self.reason,
            summary="",
            declared_base=measured.declared,
            declared_bases=tuple(each.shown for each in self.bases if each.measured.declared),
            base_relation=self.model.base_relation,
            likely_base=self._likely_base(session),
            base=self._kin(measured.base),
            base_revision=self.decided.revision,
            rival=self._kin(self.rival),
            kin=tuple(kin_of(item, measured, self.family) for item in self.near[:kin]),
            usual=SimilarityBaseline(usual.mean, usual.deviation, usual.models),
            limit=usual.limit,
            chain=tuple(chain),
            cycle=self.family.cycle,
            note=UNREAD.get(self.space.importance.kind, self.space.note),
            constant_tensors=self.constants.names,
        )

    def caveats(self, session: Reader) -> list[str | None]:
        """Clauses for people about how far the measurements go; None for none."""
        measured = self.decided.measured
        is_partial = measured.base is not None and measured.base.covered is not None
        return [
            self.decided.note,
            # Of a part K is smaller by itself.
            None if self._is_of_differences or is_partial else self._of_two_sizes(session),
            UNREAD.get(self.space.importance.kind),
            _over_a_part(measured),
            _over_common(measured, self.rival),
            _left_out(self.constants, unseen=_is_unseen(self.decided, self.constants)),
            LATE if self.constants.late else None,
            self._copies(session),
        ]

    @property
    def _made_of_it(self) -> Collection[str]:
        return () if self.lines is None else self.lines.made_of_it

    def _copies(self, session: Reader) -> str | None:
        """A clause on the models with the very same support, and when each was stored."""
        same = [item.model for item in self.near if item.similarity >= 1.0]
        if not same or self.model.digest is None:
            return None
        found = find_models(session, self.space, same)
        copies = sorted(
            (each for each in found.values() if each.digest == self.model.digest),
            key=lambda each: (each.created_at, each.name),
        )
        if not copies:
            return None
        names = ", ".join(f"{each.name!r} ({_stored(each)})" for each in copies[:_MAX_COPIES])
        more = f" and {len(copies) - _MAX_COPIES} more" if len(copies) > _MAX_COPIES else ""
        return (
            f"its support is identical to that of {names}{more}, and it was {_stored(self.model)}: "
            f"copies, or models that were changed too little to tell"
        )

    @property
    def _is_of_differences(self) -> bool:
        return self.space.importance.kind == "delta"

    def _kin(self, item: Neighbor | None) -> Kin | None:
        """The model as evidence, or None without a model."""
        return None if item is None else kin_of(item, self.decided.measured, self.family)

    def _likely_base(self, session: Reader) -> str | None:
        """The model that stands out as the likely base, if the declared one may not be it."""
        measured, verdict = self.decided.measured, self.verdict
        if self.reason == "rival" and self.rival is not None:
            return self.rival.model
        if self._is_of_differences or verdict == "consistent":
            return None
        open_between = measured.base is not None and is_between(measured.estimate(measured.base))
        if verdict == "inconclusive" and measured.base is not None and not open_between:
            return None
        if self.is_root:
            return self._other_root(session)
        likely = measured.standing_out(measured.background, self.family.bases, self._made_of_it)
        if likely is not None or verdict != "mismatch":
            return likely
        # The base is contradicted, so those that declare it are strangers too.
        made_from_it = self.family.derivatives(session, self.space)
        everyone = self.neighborhood.background(unrelated=True, without=made_from_it)
        return measured.standing_out(everyone, self.family.bases, self._made_of_it)

    @cached_property
    def is_root(self) -> bool:
        """Whether this model declares no base, and others declare it that stand out near it.

        Lines show kin where S does not, as after another order of rows or in another layout.
        """
        if self.verdict != "undeclared":
            return False
        measured = self.decided.measured
        return (self.lines is not None and self.lines.is_root) or any(
            self.family.relation(item.model) == "derivative"
            and stands_out(measured.estimate(item), measured.beside(item))
            for item in self.near
        )

    def roots(self, session: Reader) -> set[str]:
        """The roots with lines in common with this one, where it is a root itself."""
        if not self.is_root or self.lines is None or self.lines.near is None:
            return set()
        names = [each.record.name for each in self.lines.near.items]
        declared = declared_bases(session, self.space, names)
        return {
            name
            for name in names
            if not declared.get(name) and ids_declaring(session, self.space, [name])
        }

    def _other_root(self, session: Reader) -> str | None:
        """The nearest root beside this one: either may be the base of the other.

        What else is near, such as a copy, a model that says nothing, or one that declares a wrong
        base, may be made from this root, and is itself the finding.
        """
        measured = self.decided.measured
        for item in measured.all_standing_out(measured.background):
            if not self.family.bases.get(item.model) and ids_declaring(
                session, self.space, [item.model]
            ):
                return item.model
        return None

    def _of_two_sizes(self, session: Reader) -> str | None:
        """The clause for a base whose support has a very different size, which bounds S."""
        size, declared = self.model.support_size, self.decided.measured.declared
        found = candidates_by_name(session, self.space, [] if declared is None else [declared])
        for base in found:
            small, large = sorted((size, base.support_size))
            if small and large > _MANY_TIMES * small:
                return (
                    f"the model's support has {size:,} indices and the base's "
                    f"{base.support_size:,}, so S is at most {2 * small / (small + large):.3f}, "
                    f"and less than models of one size would have: send both at one size to "
                    f"compare them"
                )
        return None


def settled(
    base: JudgedBase,
    space: SpaceRecord,
    model: ModelRecord,
    constants: Constants,
    lines: Lines | None,
    elsewhere: Collection[str] = (),
) -> JudgedBase:
    """A declared base with all that its space and lines say beside the measured judgement.

    Args:
        elsewhere: the declared bases that other spaces of the tenant, or fingerprints, have.
    """
    if space.importance.kind == "delta":
        base = _of_differences(space, model, base, elsewhere)
    else:
        base = replace(base, judgement=_judgement_outside(base, constants))
    return base.beside(lines)


def _of_differences(
    space: SpaceRecord, model: ModelRecord, base: JudgedBase, elsewhere: Collection[str]
) -> JudgedBase:
    """A declared base that a space holds differences from, so that it need not be in the space.

    Where nobody but the model says what its difference is from, as of a pushed adapter, any base
    that is stored counts.
    """
    if base.judgement is not None or base.measured.declared is None:
        return base
    stated = (space.importance.base or "").rpartition("@")[0]
    taken = str(hub_of(model).get("base")).rpartition("@")[0] or hub_of(model).get("base")
    said = {stated, taken} - {"", None}
    if base.measured.declared not in (said or elsewhere):
        return base
    return replace(base, judgement=Judgement("inconclusive", "differences"))


def _judgement_outside(base: JudgedBase, constants: Constants) -> Judgement | None:
    """The judgement of a base; it stays open where constants may be all that the two share."""
    if base.judgement is None:
        return None
    early = constants.late and base.judgement.verdict == "consistent"
    if early or _is_unseen(base, constants):
        return Judgement("inconclusive", "unclear")
    return base.judgement


def _is_unseen(base: JudgedBase, constants: Constants) -> bool:
    """Whether a base may share constants alone with the model, as far as can be compared."""
    found = base.measured.base
    return bool(constants) and found is not None and found.kappa is None


def _over_a_part(measured: Measurements) -> str | None:
    """The clause for a model and a base that do not have all parameters of the space."""
    share = None if measured.base is None else measured.base.covered
    if share is None:
        return None
    return f"the two are compared over the {share:.1%} of the space's parameters that both have"


def _over_common(measured: Measurements, rival: Neighbor | None) -> str | None:
    """The clause for a rival that decided over what it, the model and the base all have."""
    found = None if rival is None else measured.over_common.get(rival.model)
    if found is None or found.base is None:
        return None
    return (
        f"over the parameters that all three have, S is {found.to_model.similarity:.3f} to the "
        f"other model and {found.base.similarity:.3f} to the base"
    )


def _left_out(constants: Constants, *, unseen: bool) -> str | None:
    """The clause for tensors that are left out; None without any."""
    if not constants:
        return None
    left = f"{tensors_in_words(constants.names)}, which no training changed"
    if unseen:
        return f"there is nothing to compare but {left}, or a signature, which cannot leave it out"
    return f"the comparison leaves out {left}"


def _stored(model: ModelRecord) -> str:
    """When a model was first stored here, in words; its content may be of a later day."""
    revised = f", now revision {model.revision}" if model.revision > 1 else ""
    return f"first stored {model.created_at:%Y-%m-%d %H:%M} UTC{revised}"
