"""An anatomy in rows for people: one row for the tensors of a kind that come from one place.

So a model of 32 layers has a row for all its q_proj, and not 32 of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Final, NamedTuple

from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.core.fingerprints.labels import Kind, NumberedName, label, short_kinds
from modelkin.core.fingerprints.sources import TensorAnatomy, TensorSource
from modelkin.core.fingerprints.tensors import LinesOfTensor, NotComparable

__all__ = ["COLUMNS", "WHY", "LeftOut", "Row", "Slice", "left_out", "rows", "slices"]

COLUMNS: Final = ("tensors", "from", "its tensors", "share", "P")
"""The names of the cells of a row."""

_MOST_ROWS: Final = 24
"""Rows beyond which kinds with the same layers of one model share a row: they fill a screen."""
_EXPLAINED: Final = 0.9
"""The share of what is found of a tensor that the named tensors hold."""
_NAMED: Final = 3
"""The sources that a row names."""
WHY: Final = {
    NotComparable.SHORT: "vectors, or a side below 64",
    NotComparable.STRUCTURED: "tables that no training made",
    NotComparable.FEW_VALUES: "few values, as ternary weights have",
    NotComparable.NO_KEYS: "constant lines, or lines repeated too often",
}
"""What tensors are that are not compared, by the reason."""


@dataclass(frozen=True)
class Row:
    """Tensors that come from one place.

    Attributes:
        tensors: what they are, ``layers 0-31 self_attn.q_proj``.
        count: how many these are.
        model: the model that they come from; None where nothing is found.
        sources: what they are there; empty where nothing is found.
        same: whether they have the same places there.
        share: of their sampled lines, those that the model has; None where nothing is found.
        log10_p: that of the tensor with the weakest evidence; None where nothing is found.
    """

    tensors: str
    count: int
    model: str | None
    sources: str
    same: bool
    share: float | None
    log10_p: float | None

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """What a table shows of it, under :data:`COLUMNS`."""
        if self.model is None or self.share is None or self.log10_p is None:
            return self.tensors, "unknown", "", "", ""
        there = "the same" if self.sources == self.tensors else self.sources
        return self.tensors, self.model, there, f"{self.share:.0%}", power_of_ten(self.log10_p)


@dataclass(frozen=True)
class LeftOut:
    """Tensors that cannot be compared, for one reason.

    Attributes:
        reason: why.
        count: how many these are.
        share_of_parameters: of all parameters of the checkpoint.
        example: the first of their names.
    """

    reason: NotComparable
    count: int
    share_of_parameters: float
    example: str

    @property
    def sentence(self) -> str:
        """The same in English, without a full stop."""
        many = f"{self.count:,} tensor{'' if self.count == 1 else 's'}"
        share = f"{self.share_of_parameters:.1%} of the parameters"
        return f"{many} ({share}): {WHY[self.reason]}, such as {self.example}"


class Slice(NamedTuple):
    """One tensor by one of its names, with what is said of its source.

    Attributes:
        place: of the name.
        of: the tensor.
        model: the model that it comes from; None where nothing is found.
        sources: the fewest tensors there that hold most of what is found of it.
        places: of these, by the names that are the most alike.
    """

    place: NumberedName
    of: TensorAnatomy
    model: str | None
    sources: tuple[TensorSource, ...]
    places: tuple[NumberedName, ...]

    @property
    def share(self) -> float:
        """Of the tensor's sampled lines, those that the model has."""
        return 0.0 if self.model is None else self.of.shares[self.model]


def slices(tensors: Iterable[TensorAnatomy], models: Sequence[str]) -> list[Slice]:
    """All tensors that are compared, by all their names; one kind after the other.

    Args:
        tensors: those of a checkpoint.
        models: the models with a source. Where two have as much of a tensor, but for the error of a
            sample, it is of the one that is named first.
    """
    order = {model: at for at, model in enumerate(models)}
    cut = [
        _slice(each, NumberedName.of(name), order)
        for each in tensors
        if each.tensor.reason is None
        for name in each.tensor.names
    ]
    first = dict[Kind, int]()
    for each in cut:
        first.setdefault(each.place.kind, len(first))
    return sorted(cut, key=lambda each: (first[each.place.kind], each.place.numbers))


def _slice(tensor: TensorAnatomy, place: NumberedName, order: Mapping[str, int]) -> Slice:
    if not tensor.sources:
        return Slice(place, tensor, None, (), ())
    counts = {model: share * tensor.keys for model, share in tensor.shares.items()}
    most = max(counts.values())
    near = [model for model in counts if most - counts[model] <= 2 * math.sqrt(most)]
    model = min(near, key=lambda each: order[each])
    sources, reached = list[TensorSource](), 0.0
    for source in tensor.sources:
        if source.model == model and reached < _EXPLAINED * tensor.shares[model]:
            sources.append(source)
            reached += source.share
    placed = sorted(
        ((_alike(source, place), source) for source in sources),
        key=lambda each: (each[0].numbers, each[0].kind),
    )
    return Slice(
        place, tensor, model, tuple(each for _, each in placed), tuple(each for each, _ in placed)
    )


def _alike(source: TensorSource, place: NumberedName) -> NumberedName:
    """The place of a source, by the name that is the most like the tensor's own."""
    places = [NumberedName.of(name) for name in source.tensor.names]
    return max(places, key=lambda each: (each == place, each.kind == place.kind))


def rows(tensors: Iterable[TensorAnatomy], models: Sequence[str]) -> list[Row]:
    """The rows of an anatomy: kinds in the order of the checkpoint, and their layers.

    Where these are more than 24, kinds whose layers come from the same layers share one.

    Args:
        tensors: as for :func:`slices`, and ``models`` too.
    """
    cut = slices(tensors, models)
    groups = _groups(cut)
    names = _Names(cut)
    made = [names.row(group) for group in groups]
    if len(made) <= _MOST_ROWS:
        return made
    alike = dict[object, list[list[Slice]]]()
    for group in groups:
        alike.setdefault(_layers(group), []).append(group)
    return [names.row_of_kinds(each) for each in alike.values()]


def _groups(cut: Sequence[Slice]) -> list[list[Slice]]:
    """The tensors of each row: of one kind, and of sources that are as many layers away.

    Where tensors were fused, a sample finds all parts in some layers, and in others a part. So a
    tensor with a single source joins those that have this source among several.
    """
    of_several = {
        (each.place.kind, each.model, step)
        for each in cut
        for step in _steps(each)
        if len(each.places) > 1
    }
    groups = dict[object, list[Slice]]()
    for each in cut:
        steps = _steps(each)
        fused = any((each.place.kind, each.model, step) in of_several for step in steps)
        far = frozenset(distance for _, distance in steps)
        key = far if fused else steps
        groups.setdefault((each.place.kind, each.model, key), []).append(each)
    return list(groups.values())


def _steps(each: Slice) -> tuple[tuple[Kind, object], ...]:
    """From a tensor's place to those of its sources: their kinds, and how far their layers are."""
    own = each.place.numbers
    return tuple(
        (there.kind, (there.numbers[0] - own[0], _rest(own, there.numbers)))
        if own and there.numbers
        else (there.kind, there.numbers)
        for there in each.places
    )


def _rest(own: tuple[int, ...], there: tuple[int, ...]) -> object:
    """The numbers behind the layer's, where they are not the tensor's own."""
    return there[1:] == own[1:] or there[1:]


def _layers(group: list[Slice]) -> object:
    """What kinds have in common that are told in one row: their layers, there and here."""
    first = group[0]
    if not first.place.numbers or len(first.places) > 1:
        return first.place.kind, first.model, _steps(first)
    of_source = (first.places[0].kind == first.place.kind) if first.places else None
    numbers = tuple(each.place.numbers for each in group)
    there = tuple(place.numbers for each in group for place in each.places)
    return first.place.kind[:-1], first.model, of_source, numbers, there


class _Names:
    """The labels of tensors and of their sources, as short as they can be."""

    def __init__(self, cut: list[Slice]) -> None:
        self._own = short_kinds(each.place.kind for each in cut)
        self._theirs = short_kinds(place.kind for each in cut for place in each.places)

    def row(self, group: list[Slice]) -> Row:
        """The row of tensors of one kind."""
        own = _label(self._own, [each.place for each in group])
        there = [place for each in group for place in each.places]
        layers = {place.numbers[:1] for place in there}
        by_kind = {
            kind: [place for place in there if place.kind == kind]
            for kind in sorted({place.kind for place in there})
        }
        labels = [
            _label(self._theirs, [*of_kind, *_in_layers(of_kind[0], layers)])
            for of_kind in by_kind.values()
        ]
        return _row(own, _joined(labels), group)

    def row_of_kinds(self, groups: list[list[Slice]]) -> Row:
        """The row of several kinds with the same layers."""
        if len(groups) == 1:
            return self.row(groups[0])
        several = [each for group in groups for each in group]
        own = _of_layers([each.place for each in groups[0]])
        sources = _of_layers([place for each in groups[0] for place in each.places])
        return _row(f"{own}, {len(groups)} kinds", sources, several)


def _in_layers(place: NumberedName, layers: Iterable[tuple[int, ...]]) -> list[NumberedName]:
    """The same place in other layers, of which a sample found other parts."""
    return [
        NumberedName(place.kind, (*layer, *place.numbers[1:])) for layer in layers if place.numbers
    ]


def _of_layers(places: list[NumberedName]) -> str:
    """The label of layers, without the kind of their tensors."""
    if not places:
        return ""
    kind = next(iter(short_kinds([(*places[0].kind[:-1], "")]).values()))
    return label(kind, _by_position(places)).rstrip(".")


def _row(own: str, sources: str, group: list[Slice]) -> Row:
    model = group[0].model
    if model is None:
        return Row(own, len(group), None, "", False, None, None)
    held = sum(each.of.keys for each in group)
    return Row(
        own,
        len(group),
        model,
        sources,
        all(each.places == (each.place,) for each in group),
        sum(each.of.keys * each.share for each in group) / held,
        max(min(source.log10_p for source in each.sources) for each in group),
    )


def _label(short: Mapping[Kind, Kind], places: Iterable[NumberedName]) -> str:
    listed = list(places)
    return label(short[listed[0].kind], _by_position(listed))


def _by_position(places: list[NumberedName]) -> list[tuple[int, ...]]:
    return list(zip(*(place.numbers for place in places), strict=True))


def _joined(labels: list[str]) -> str:
    """Labels with what all begin with said once: ``layers 0-3 self_attn.q, k, v``."""
    common = commonprefix(labels)  # noqa: RUF071 they are texts, and no paths
    begin = common[: max(common.rfind(" "), common.rfind(".")) + 1]
    named = [labels[0], *(each.removeprefix(begin) for each in labels[1:])] if labels else []
    more = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def left_out(tensors: Sequence[LinesOfTensor]) -> list[LeftOut]:
    """The tensors that cannot be compared, by reason, that of the most parameters first."""
    total = max(sum(each.size * len(each.names) for each in tensors), 1)
    return sorted(_left_out(tensors, total), key=lambda each: -each.share_of_parameters)


def _left_out(tensors: Sequence[LinesOfTensor], total: int) -> Iterator[LeftOut]:
    for reason in NotComparable:
        found = [each for each in tensors if each.reason is reason]
        if found:
            size = sum(each.size for each in found)
            yield LeftOut(reason, len(found), size / total, found[0].name)
