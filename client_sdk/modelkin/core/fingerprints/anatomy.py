"""The anatomy of a checkpoint: which of given models each of its tensors comes from.

Equal keys are lines in common. That of two strangers some are equal is expected, and how many
``chance`` says; so an answer carries the probability of what was found, and nothing is said of a
model or a tensor where chance explains it. Equal lines mean a common origin: a base, a checkpoint,
or the same random seed. That there are none proves nothing, since a rotation removes them all.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from modelkin._printing import MAX_ROWS, Printed, Table, excerpt
from modelkin.core.fingerprints.arrays import kept
from modelkin.core.fingerprints.comparison import ALL_LINES, MODEL_LIMIT, Comparison, compare
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.relations.relation import ORIGIN, Relation
from modelkin.core.fingerprints.relations.relations import Among, relations
from modelkin.core.fingerprints.rows import COLUMNS, LeftOut, Row, left_out, rows
from modelkin.core.fingerprints.sources import (
    WHOLE,
    Parent,
    TensorAnatomy,
    TensorSource,
    Verdict,
)

__all__ = [
    "Anatomy",
    "AnatomyVerdict",
    "Parent",
    "Relation",
    "TensorAnatomy",
    "TensorSource",
    "Verdict",
    "anatomy",
    "anatomy_of",
    "parent_of",
]

AnatomyVerdict = Literal[Verdict, "average", "assembled", "unknown"]
"""What a checkpoint is: an average of two models, put together of several, or what it is to one."""

_MOST_COMMON: Final = 0.9
_ENOUGH: Final = 0.25


@dataclass(frozen=True, repr=False)
class Anatomy(Printed):
    """Where a checkpoint comes from. It prints as its rows, also in a notebook.

    Attributes:
        tensors: each of its tensors, in its order.
        parents: models with which it has lines in common, the one that adds most first.
        scale: the coarsest scale that was compared.
        relations: what it is to them, each in a sentence; one alone where nothing was found.
    """

    tensors: tuple[TensorAnatomy, ...]
    parents: tuple[Parent, ...]
    scale: int
    relations: tuple[Relation, ...]

    @property
    def verdict(self) -> AnatomyVerdict:
        """What it is as a whole: that of the nearest model, unless several have a part in it."""
        names = {relation.relation for relation in self.relations}
        if "average" in names:
            return "average"
        if "assembled" in names:
            return "assembled"
        return self.parents[0].verdict if self.parents else "unknown"

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of its relations, and what equal lines mean where there are any."""
        said = tuple(relation.sentence for relation in self.relations)
        return (*said, ORIGIN) if self.parents else said

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The tensors that were compared, in rows for people: those of a kind from one place."""
        return tuple(rows(self.tensors, [parent.model for parent in self.parents]))

    @cached_property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The tensors that cannot be compared, by reason."""
        return tuple(left_out([each.tensor for each in self.tensors]))

    def to_json(self) -> dict[str, Any]:
        """All of it in JSON's types."""
        return {
            "scale": self.scale,
            "verdict": self.verdict,
            "parents": [asdict(parent, dict_factory=_plain) for parent in self.parents],
            "relations": [asdict(each, dict_factory=_plain) for each in self.relations],
            "tensors": [each.to_json() for each in self.tensors],
        }

    def _table(self) -> Table:
        shown = self.rows[:MAX_ROWS]
        parents = f"{len(self.parents):,} parent{'' if len(self.parents) == 1 else 's'}"
        return Table(
            f"Anatomy, {len(self.tensors):,} tensors, {parents}",
            tuple((excerpt(each.model), each.summary) for each in self.parents),
            COLUMNS,
            tuple(tuple(map(excerpt, row.cells)) for row in shown),
            (False, False, False, True, True),
            len(self.rows) - len(shown),
            (
                *(("found", sentence) for sentence in self.sentences),
                *(("not compared", each.sentence) for each in self.left_out),
            ),
        )


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in items}


def anatomy(checkpoint: Fingerprint, models: Mapping[str, Fingerprint]) -> Anatomy:
    """Find the tensors of models whose lines a checkpoint has.

    Args:
        checkpoint: its fingerprint.
        models: those of the models that may be its parents, by name. Two fingerprints are compared
            at the coarser of their scales.
    """
    return anatomy_of(checkpoint, [compare(checkpoint, *model) for model in models.items()])


def anatomy_of(
    checkpoint: Fingerprint,
    comparisons: Sequence[Comparison],
    *,
    asked: int | None = None,
    preferred: Collection[str] = (),
    of_equals: Sequence[str] = (),
    made_from_it: Collection[str] = (),
    of_catalogue: bool = False,
) -> Anatomy:
    """Make an anatomy of what the comparisons with models have found.

    Args:
        checkpoint: its fingerprint.
        comparisons: of it and each of the models.
        asked: how many models these were chosen among by their keys; by default no others.
        preferred: names of models whose files were read by whoever asks. Where these are no mere
            origin of a few tensors, they stand before models of which others say what they are.
        of_equals: names of models that stand first among those that add as many lines, in this
            order: of a base and its children one cannot tell by lines which a layer comes from.
        made_from_it: names of models that are declared to be made from the checkpoint. They stand
            last, and it is no average of them: two that drifted from it in other ways have it
            between them.
        of_catalogue: whether they were chosen among the bases of a catalogue.
    """
    among: Among = "catalogue" if of_catalogue else "given" if asked is None else "stored"
    asked = max(len(comparisons), asked or 0)
    found = [each for each in comparisons if each.log10_p < MODEL_LIMIT]
    scale = max([checkpoint.scale, *(each.ours.scale for each in comparisons)])
    alone = {each.model: parent_of(checkpoint, each, asked) for each in found}
    heirs = {name for name in alone if name in made_from_it}
    whole = {name for name, each in alone.items() if each.verdict in WHOLE}
    first = (whole & {*preferred}) - heirs
    held = np.bincount(checkpoint.owners, minlength=len(checkpoint.tensors))
    tensors = tuple(
        TensorAnatomy(
            tensor,
            int(held[number]),
            tuple(
                sorted(
                    (source for each in found for source in each.sources.get(number, ())),
                    key=lambda source: (
                        -source.share,
                        source.model not in first,
                        source.log10_p,
                        source.model,
                    ),
                )
            ),
            {
                each.model: float(each.of_tensor[number] / each.held[number])
                for each in found
                if number in each.sources
            },
        )
        for number, tensor in enumerate(checkpoint.tensors)
    )
    copies = {name for name, each in alone.items() if each.verdict == "copy"}
    tiers = [copies & first, first, alone.keys() - heirs]
    ranked = _nearest_first(found, tiers, of_equals)
    parents = tuple(replace(alone[each.model], added=added) for each, added in ranked)
    said = relations(
        checkpoint,
        [each for each, _ in ranked],
        parents,
        asked,
        among=among,
        made_from_it=made_from_it,
    )
    return Anatomy(tensors, parents, scale, said)


def _nearest_first(
    found: list[Comparison], tiers: Sequence[Collection[str]], of_equals: Sequence[str]
) -> list[tuple[Comparison, float]]:
    """The models by what each adds to those before, and this share of the checkpoint's lines.

    Args:
        tiers: names of models, those of the first before those of the next, and last all others.
        of_equals: as :func:`anatomy_of` has it.
    """
    ranks = {name: rank for rank, name in enumerate(of_equals)}
    ranked, left = list[tuple[Comparison, float]](), list(found)
    covered: dict[int, npt.NDArray[np.uint64]] = {}

    def tier_of(each: Comparison) -> int:
        return next((at for at, tier in enumerate(tiers) if each.model in tier), len(tiers))

    while left:
        added = [_added(each, covered) for each in left]
        tier = min(map(tier_of, left))
        most = max(by for each, by in zip(left, added, strict=True) if tier_of(each) == tier)
        at = min(
            range(len(left)),
            key=lambda i: (
                tier_of(left[i]),
                ranks.get(left[i].model, len(ranks))
                if 0 < ALL_LINES * most <= added[i]
                else len(ranks),
                -added[i],
                -left[i].share,
                -left[i].share_of_model,
                left[i].model,
            ),
        )
        ranked.append((left[at], added[at]))
        taken = left.pop(at)
        before = covered.get(taken.ours.scale, np.zeros(0, np.uint64))
        covered[taken.ours.scale] = np.union1d(before, taken.keys)
    return ranked


def _added(found: Comparison, covered: Mapping[int, npt.NDArray[np.uint64]]) -> float:
    """The share of lines that a model adds to those that others have.

    A model of a coarser scale has more of the lines than it has keys of. Of those that are left it
    has the part that it has of their keys at its scale.

    Args:
        found: of the model.
        covered: the keys that others have in common with the checkpoint, by their scale.
    """
    share, left = found.share, found.keys
    for scale, keys in sorted(covered.items()):
        asked = left[: kept(left, scale)]
        left = np.setdiff1d(asked, keys, assume_unique=True)
        if asked.size:
            share *= left.size / asked.size
    return share


def parent_of(checkpoint: Fingerprint, found: Comparison, asked: int) -> Parent:
    """What is said of one model with lines in common, whatever the others are.

    Args:
        checkpoint: its fingerprint.
        found: of it and the model; chance does not explain it.
        asked: how many models were asked.
    """
    shares = found.of_tensor / np.maximum(found.held, 1)
    sizes = np.array([0 if each.reason else each.size for each in checkpoint.tensors], np.float64)
    order = np.argsort(-shares, kind="stable")
    reached = np.cumsum(found.of_tensor[order])
    fewest = order[: int(np.searchsorted(reached, _MOST_COMMON * reached[-1])) + 1]
    held = float(found.held[fewest].sum() / found.held.sum())
    return Parent(
        found.model,
        _verdict(found, held),
        found.share,
        found.share,
        float((sizes * shares).sum() / sizes.sum()),
        found.keys.size,
        found.expected,
        found.log10_p,
        found.log10_p + math.log10(asked),
        tuple(checkpoint.tensors[number].name for number in sorted(fewest.tolist())),
    )


def _verdict(found: Comparison, held: float) -> Verdict:
    if found.share >= ALL_LINES:
        own, of_model = (_parameters(each) for each in (found.ours, found.theirs))
        if found.share_of_model >= ALL_LINES and ALL_LINES <= own / of_model <= 1 / ALL_LINES:
            return "copy"
        # A checkpoint of more parameters, such as an up-scaled one, is no part; nor is one of as
        # many of which a few lines were changed.
        is_part = own < of_model or (own == of_model and found.share == 1)
        return "part" if is_part else "derived"
    if not found.sources:
        return "related"
    return "derived" if held >= _ENOUGH else "reuses"


def _parameters(fingerprint: Fingerprint) -> int:
    """The parameters that are compared, those of equal tensors once for each name."""
    return sum(each.size * len(each.names) for each in fingerprint.tensors if each.lines)
