"""The chart of an anatomy: layers by kinds of tensors, coloured by the models they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from modelkin._printing import excerpt
from modelkin.core.fingerprints.anatomy import Anatomy
from modelkin.core.fingerprints.labels import Kind, label, short_kinds
from modelkin.core.fingerprints.rows import Slice, slices
from modelkin.errors import InvalidParameter
from modelkin.plots.chart import Cells, Chart
from modelkin.plots.style import GREY

__all__ = ["LAYERS", "anatomy_chart", "colors_of_parents"]

LAYERS: Final = "layer"
"""The label of an axis whose values are the numbers of layers."""
_NAME_WIDTH: Final = 40
_GAP: Final = 0.08
"""The space between cells, as a share of a layer's."""
_OTHERS: Final = GREY - 1
"""The colour of all models beyond those that have one of their own."""
_SPARSE: Final = 2
"""Numbers of layers that are so many times as wide apart are counted instead."""


class _Cell(NamedTuple):
    """A tensor in the picture, at its layer and kind."""

    x: float
    y: float
    width: float
    of: Slice


def anatomy_chart(found: Anatomy, name: str) -> Chart:
    """Cells for the tensors that are compared, each filled by the share of its lines found.

    Args:
        found: the anatomy.
        name: of the checkpoint, for the title.
    """
    cut = slices(found.tensors, [parent.model for parent in found.parents])
    if not cut:
        raise InvalidParameter(
            "no tensor of this anatomy can be compared, so there is nothing to draw", field="found"
        )
    kinds = list(dict.fromkeys(each.place.kind for each in cut))
    layers = _positions(cut)
    of_model = dict[str | None, list[_Cell]]()
    for cell in _cells(cut, kinds, layers):
        of_model.setdefault(cell.of.model, []).append(cell)
    colors = colors_of_parents(found)
    marks = [
        _mark(
            of_model[parent.model],
            f"{excerpt(parent.model, _NAME_WIDTH)}, {parent.share_of_lines:.0%} of lines",
            colors[parent.model],
        )
        for parent in found.parents
        if parent.model in of_model
    ]
    if None in of_model:
        marks.append(_mark(of_model[None], f"unknown, {len(of_model[None])} tensors", GREY))
    sparse = bool(layers) and max(layers) >= _SPARSE * len(layers)
    wide, high = max(len(layers), 1), len(kinds)
    return Chart(
        f"Where the tensors of {excerpt(name, _NAME_WIDTH)} come from" if name else "Anatomy",
        _axis(layers, sparse=sparse),
        "",
        tuple(marks),
        tuple(_names(cut, kinds)),
        across=True,
        x_range=(-0.6, wide - 0.4),
        size=(min(6.5 + 0.22 * wide, 16.0), min(1.6 + 0.3 * high, 16.0)),
        legend="filled: the lines that are found",
    )


def colors_of_parents(found: Anatomy) -> dict[str, int]:
    """The number of each parent's colour in the palette."""
    return {parent.model: min(number, _OTHERS) for number, parent in enumerate(found.parents)}


def _axis(layers: Mapping[int, float], *, sparse: bool) -> str:
    if not layers:
        return ""
    return "layers, in their order" if sparse else LAYERS


def _positions(cut: Sequence[Slice]) -> dict[int, float]:
    """The place of each layer on the axis: its number, or its rank where numbers have wide gaps."""
    numbers = sorted({each.place.numbers[0] for each in cut if each.place.numbers})
    if numbers and numbers[-1] < _SPARSE * len(numbers):
        return {number: float(number) for number in numbers}
    return {number: float(rank) for rank, number in enumerate(numbers)}


def _cells(cut: Sequence[Slice], kinds: Sequence[Kind], layers: Mapping[int, float]) -> list[_Cell]:
    """Tensors of one kind and layer, such as experts, have a slice of one cell each."""
    rows = {kind: float(row) for row, kind in enumerate(kinds)}
    together = dict[tuple[float, float, float], list[Slice]]()
    last = max(layers.values(), default=0.0)
    for each in cut:
        numbers = each.place.numbers
        x, width = (layers[numbers[0]], 1.0) if numbers else (last / 2, last + 1)
        together.setdefault((x, rows[each.place.kind], width), []).append(each)
    cells = list[_Cell]()
    for (x, y, width), tensors in together.items():
        part = (width - _GAP) / len(tensors)
        left = x - (width - _GAP) / 2
        cells += [_Cell(left + (at + 0.5) * part, y, part, each) for at, each in enumerate(tensors)]
    return cells


def _mark(cells: Sequence[_Cell], name: str, color: int) -> Cells:
    return Cells(
        tuple(cell.x for cell in cells),
        tuple(cell.y for cell in cells),
        tuple(cell.width for cell in cells),
        tuple(cell.of.share for cell in cells),
        name,
        color,
        tuple(_label(cell.of) for cell in cells),
    )


def _label(each: Slice) -> str:
    """What the mouse shows: the tensor, and where it comes from."""
    place = label(each.place.kind, [[number] for number in each.place.numbers])
    if not each.sources:
        return f"{place}: unknown"
    there = ", ".join(source.tensor.name for source in each.sources)
    return f"{place}: {each.share:.0%} of {each.model} {there}"


def _names(cut: Sequence[Slice], kinds: Sequence[Kind]) -> list[str]:
    """The kinds, with the share of their lines that is found."""
    short = short_kinds(kinds)
    names = list[str]()
    for kind in kinds:
        of_kind = [each for each in cut if each.place.kind == kind]
        held = sum(each.of.keys for each in of_kind)
        share = sum(each.of.keys * each.share for each in of_kind) / max(held, 1)
        words = " ".join(filter(None, (part.strip("._/") for part in _without_layers(short[kind]))))
        names.append(f"{excerpt(words, _NAME_WIDTH)}  {share:.0%}")
    return names


def _without_layers(kind: Kind) -> Kind:
    """The words of a kind; of those with layers, the words behind these."""
    return kind[1:] if len(kind) > 1 and any(kind[1:]) else kind
