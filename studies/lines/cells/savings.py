"""What storing a child as its difference to its base saves, which reports estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import zstandard

from studies.cells import Figures
from studies.lines.comparing import fingerprints_of, share_of_lines
from studies.lines.derivatives import Derivative
from studies.lines.networks.architecture import Architecture
from studies.lines.networks.texts import GPT2, LLAMA
from studies.lines.trained import Trained
from studies.lines.zoo import Tensors, Zoo
from studies.sections.paragraphs import table

__all__ = ["saved", "savings_figures", "section"]

_STRANGER: Final = "a stranger"
_LEVEL: Final = 3
_WORDS: Final = """\
Each child is stored as its difference to its base: its numbers as integers less those of the base,
compressed byte by byte with zstandard. Of a matrix of another size, each row or column is beside
the one of the base that is most like it. A report estimates that half of the share of lines is
saved. Beside it stand the parts of a child's bytes that are saved as bfloat16 and as float32; and
in brackets those that compressing its file by itself saves, without a base.
"""


def savings_figures(
    zoo: Zoo, architectures: Sequence[Architecture] = (LLAMA, GPT2), longest: int | None = None
) -> Figures:
    """The share of lines of each child of language models, and the parts of its bytes saved."""
    figures: Figures = {}
    for each in architectures:
        trained = Trained(each, zoo, longest)
        base = trained.base()
        lines = fingerprints_of(base).whole
        for child in (*trained.children(), Derivative(_STRANGER, trained.base(1))):
            share = share_of_lines(fingerprints_of(child.tensors).whole, lines)
            figures[f"{each.name}: {child.name}"] = {"lines": share, **saved(child, base)}
    return figures


def section(figures: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """What was measured of each child."""
    yield _WORDS
    yield table(
        ("child", "share of lines", "half of it", "bfloat16", "float32"),
        [
            (
                name,
                f"{row['lines']:.2f}",
                f"{row['lines'] / 2:.2f}",
                *(_cell(row, k) for k in _BITS),
            )
            for name, row in figures.items()
        ],
    )


def _cell(row: Mapping[str, float], kind: str) -> str:
    return f"{row[kind]:.2f} ({row[f'{kind} alone']:.2f})"


def saved(child: Derivative, base: Tensors) -> dict[str, float]:
    """The parts of a child's bytes that are saved, as each type, with its base and alone."""
    distinct = {values.tobytes(): (name, values) for name, values in child.tensors.items()}
    figures = dict[str, float]()
    for kind, bits_of in _BITS.items():
        size, beside, alone = 0, 0, 0
        for name, values in distinct.values():
            own = bits_of(values)
            found = _of_base(values, [base[e] for e in child.origins_of((name,)) if e in base])
            size += own.nbytes
            alone += _packed(own)
            beside += _packed(own if found is None else own - bits_of(found))
        figures |= {kind: 1 - beside / size, f"{kind} alone": 1 - alone / size}
    return figures


def _of_base(
    values: npt.NDArray[np.float32], origins: Sequence[npt.NDArray[np.float32]]
) -> npt.NDArray[np.float32] | None:
    """The numbers of the base that are beside those of a tensor; None where it has none."""
    if not origins:
        return None
    other = origins[0]
    differing = [
        a for a, (x, y) in enumerate(zip(values.shape, other.shape, strict=True)) if x != y
    ]
    if not differing:
        return other
    if values.ndim == 1 or len(differing) > 1:
        return None
    [axis] = differing
    rows, others = (np.moveaxis(each, axis, 0) for each in (values, other))
    alike = _directions(rows) @ _directions(others).T
    beside: npt.NDArray[np.float32] = np.moveaxis(others[alike.argmax(axis=1)], 0, axis)
    return beside


def _directions(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    flat = rows.reshape(len(rows), -1)
    norms = np.linalg.norm(flat, axis=1, keepdims=True)
    norms[norms == 0] = 1
    directions: npt.NDArray[np.float32] = flat / norms
    return directions


def _packed(bits: npt.NDArray[Any]) -> int:
    """The bytes of numbers, compressed: first the first byte of each, then the second."""
    split = np.ascontiguousarray(bits).reshape(-1, 1).view(np.uint8).T
    return len(zstandard.ZstdCompressor(level=_LEVEL).compress(split.tobytes()))


def _of_float32(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(values).view(np.uint32)


def _of_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Rounded to the nearest, and to even ones."""
    bits = _of_float32(values)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


_BITS: Final[dict[str, Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]]]] = {
    "bfloat16": _of_bfloat16,
    "float32": _of_float32,
}
