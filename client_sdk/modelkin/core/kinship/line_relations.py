"""What a model is to its base, in the words of hubs: only what lines and the files have shown.

Lines do not tell a training from rounding, noise or a mean. The bits that a file takes for each
parameter tell that it is rounded, and not whether it was trained before. So a model is ``changed``
or ``quantised``, unless its publisher says what was done and all that is measured goes with that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from modelkin.core.fingerprints.comparison import Comparison
from modelkin.core.fingerprints.relations.changes import CHANGED, changed_alone
from modelkin.core.fingerprints.relations.differences import Differences
from modelkin.core.fingerprints.relations.layer_maps import layers_of
from modelkin.core.fingerprints.relations.positions import position_of
from modelkin.core.fingerprints.relations.relation import Relation, RelationName
from modelkin.core.fingerprints.relations.wording import plain
from modelkin.core.fingerprints.sources import Verdict
from modelkin.core.kinship.lineage import BaseRelation

__all__ = [
    "LineageRelation",
    "Said",
    "StoredAs",
    "headline",
    "in_words",
    "in_words_of_hubs",
]

LineageRelation: TypeAlias = Literal[
    "copy",
    "part",
    "layout",
    "fine_tuned",
    "quantised_copy",
    "quantised",
    "adapter_merged",
    "changed",
    "vocabulary_resized",
    "head_changed",
    "depth_up_scaled",
    "layers_moved",
    "pruned",
    "widened",
    "upcycled",
    "added",
    "assembled",
    "average",
    "reuses",
    "related",
    "shares",
]
"""What a model is to its base, see :class:`modelkin.LineRelation`."""

_FEW_BITS: Final = 9.0
"""The most bits a parameter of a quantised file: eight, and the scales of their blocks."""
_NEAR_EIGHT_BITS: Final = 7.5
"""The bits from which on rounding leaves nearly all lines."""
_WHOLE_BITS: Final = 15.0
"""The least bits a parameter of weights that are not quantised."""
_FEWER: Final = 1.6
"""How many times the bits of a quantised file its base has."""
_ROUNDED: Final = 0.85
"""The share of lines that rounding to eight bits leaves at least, of the formats measured but FP8.
With a light training before, .80 are left."""
_DECLARED: Final = "as is declared"
_RANKED: Final[tuple[LineageRelation, ...]] = (
    *("average", "assembled", "upcycled", "depth_up_scaled", "pruned", "widened", "layers_moved"),
    *("head_changed", "vocabulary_resized", "copy", "part", "quantised_copy", "quantised"),
    *("fine_tuned", "adapter_merged", "changed"),
)
"""Of several relations the first of these is the word for all."""


@dataclass(frozen=True)
class StoredAs:
    """How a model's file stores it.

    Attributes:
        parameters: the number of its values.
        file_bytes: the bytes of the file; None where they are not known.
        relation: what its publisher says that it is of its base; None where nothing is said.
    """

    parameters: int
    file_bytes: int | None = None
    relation: BaseRelation | str | None = None

    @property
    def bits(self) -> float | None:
        """The bits a parameter; None where they are not known."""
        if self.file_bytes is None or not self.parameters:
            return None
        return 8 * self.file_bytes / self.parameters


@dataclass(frozen=True)
class Said:
    """A relation in the words of hubs.

    Attributes:
        relation: one word for programs.
        models: the names of the models that it is about.
        sentence: the same for people, in English, without a full stop.
    """

    relation: LineageRelation
    models: tuple[str, ...]
    sentence: str


def in_words_of_hubs(
    relations: Sequence[Relation],
    comparison: Comparison,
    model: StoredAs,
    base: StoredAs,
) -> tuple[Said, ...]:
    """The relations of a model to its base, each in the word that was measured.

    Args:
        relations: those of the anatomy.
        comparison: of the model and the base.
        model: how the model is stored.
        base: how the base is.
    """
    named = [each for each in relations if each.relation != "none"]
    is_alone = {each.relation for each in relations} <= {"layout", "changed"}
    return tuple(
        _changed(each, comparison, model, base, is_alone=is_alone)
        if each.relation == "changed" and each.models == (comparison.model,)
        else said
        for each, said in zip(named, in_words(named), strict=True)
    )


def in_words(relations: Sequence[Relation]) -> tuple[Said, ...]:
    """The relations of a model to several others, which say nothing of its file."""
    return tuple(
        Said(_word(each.relation), each.models, each.sentence)
        for each in relations
        if each.relation != "none"
    )


def headline(relations: Collection[Said], verdict: Verdict | None) -> LineageRelation | None:
    """The one word for several relations; None without any.

    Args:
        relations: of the model and its base.
        verdict: what the model is to the base, whatever its layout.
    """
    words = [each.relation for each in relations]
    told = next((word for word in _RANKED if word in words), None)
    if told is None and verdict in ("copy", "part"):
        return verdict
    return told or next(iter(words), None)


def _word(relation: RelationName) -> LineageRelation:
    assert relation != "none"
    return "pruned" if relation == "layers_dropped" else relation


def _changed(
    said: Relation, comparison: Comparison, model: StoredAs, base: StoredAs, *, is_alone: bool
) -> Said:
    """A change, which may be a training or rounding."""
    bits, of_base = model.bits, base.bits
    if bits is None or of_base is None:
        return Said("changed", said.models, said.sentence)
    sentence = said.sentence.replace(f", {CHANGED}", "", 1)
    stored = f"stored in {bits:.1f} bits a parameter, {plain(comparison.model)} in {of_base:.1f}"
    if bits <= _FEW_BITS and of_base >= max(_WHOLE_BITS, _FEWER * bits):
        is_copy = is_alone and bits >= _NEAR_EIGHT_BITS and comparison.share >= _ROUNDED
        is_copy &= model.relation == "quantized"
        if is_copy and len(comparison.sources) == _compared(comparison):
            words = f"quantised copy, {_DECLARED}, {stored}; {sentence}"
            return Said("quantised_copy", said.models, words)
        left_open = "; whether it was trained as well, lines do not tell"
        return Said("quantised", said.models, f"quantised, {stored}; {sentence}{left_open}")
    if bits < _WHOLE_BITS or of_base >= _FEWER * bits:
        return Said("changed", said.models, said.sentence)
    how = (model.relation, _how(comparison))
    if how == ("finetune", "layers"):
        return Said("fine_tuned", said.models, f"fine-tuned, {_DECLARED}: {sentence}")
    if how == ("adapter", "kinds"):
        return Said("adapter_merged", said.models, f"an adapter merged, {_DECLARED}: {sentence}")
    return Said("changed", said.models, said.sentence)


def _compared(comparison: Comparison) -> int:
    return sum(1 for each in comparison.ours.tensors if each.lines)


def _how(comparison: Comparison) -> Literal["layers", "kinds"] | None:
    """Whether whole layers were left as they were, or some kinds of every layer were changed.

    Trainings freeze layers, and an adapter changes what it targets everywhere. Both may be due to
    rounding that leaves some tensors as they are.
    """
    ours = comparison.ours.tensors
    compared = [number for number, each in enumerate(ours) if each.lines]
    changed = changed_alone(Differences(comparison, set(compared)))
    if not changed:
        return None
    layers = {layer for number in compared for layer in layers_of(ours[number])}
    touched = {layer for number in changed for layer in layers_of(ours[number])}
    if layers - touched:
        return "layers"
    kinds = {position_of(ours[number].name).kind for number in changed}
    of_kinds = {
        number
        for number in compared
        if position_of(ours[number].name).kind in kinds and layers_of(ours[number])
    }
    return "kinds" if changed == of_kinds else None
