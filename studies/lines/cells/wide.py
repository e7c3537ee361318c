"""Wide lines, as large language models have them: how many kin share, and strangers by chance.

No network of that width is trained here. So matrices are drawn with what trained ones have: heavy
tails, a low rank, and places of very unequal size with outliers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import comb
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.lines import members_of_key, size_of_set, walk
from modelkin.core.fingerprints.scales import PlaceScales
from modelkin.core.kernels.choice import kernels
from studies.cells import Figures
from studies.lines.rounding import ROUNDED
from studies.sections.paragraphs import table

__all__ = [
    "DRIFTS",
    "LENGTHS",
    "WEIGHTS",
    "Weights",
    "of_kin",
    "of_wide_strangers",
    "section",
    "wide_figures",
]

Floats = npt.NDArray[np.float32]

DRIFTS: Final = (0.01, 0.05, 0.1, 0.3)
LENGTHS: Final = (4_096, 11_008, 16_384)
_LINES_OF_KIN: Final = 400
_LINES: Final = 32_000
"""Of each stranger: 1.02e9 pairs."""
_MEMBERS: Final = (2, 3)
"""Of keys that strangers are compared by. By those of five a pair in 1e10 is equal."""
_BLOCK: Final = 256
_RANK: Final = 64


_ABOUT: Final = """\
No network of this width is trained here, so matrices are drawn: with Student's t of 3 degrees, of
rank 64, and with places of lognormal sizes of which six are 30 times as large. Drift is noise of
one size everywhere, of the median place's. A cell has the share of rows that are found and, in
brackets, what the entries that two sets have in common let expect. Where places are of very
unequal size, rounding in blocks of four bits leaves next to no line of a file.
"""
_ABOUT_STRANGERS: Final = """\
Two strangers' rows with equal keys, and in brackets those by chance. By five members, as keys have
them, almost none is expected; so keys of two and three members are compared as well.
"""


class Weights:
    """Rows of a matrix that is never held, the same whenever they are asked for.

    Args:
        name: of :data:`WEIGHTS`.
        length: of a row.
        seed: another one is a stranger.
    """

    def __init__(self, name: str, length: int, seed: int) -> None:
        self._seed, self._length = seed, length
        self._of = WEIGHTS[name](np.random.default_rng((seed, length)), length)

    def block(self, number: int) -> Floats:
        """Some rows, shape ``(256, length)``."""
        draw = np.random.default_rng((self._seed, self._length, number))
        return self._of(draw).astype(np.float32)


Rows = Callable[[np.random.Generator], npt.NDArray[Any]]


def _heavy_tails(_: np.random.Generator, length: int) -> Rows:
    def rows(own: np.random.Generator) -> npt.NDArray[Any]:
        squares = np.square(own.standard_normal((3, _BLOCK, length), np.float32)).mean(axis=0)
        found: npt.NDArray[Any] = own.standard_normal(squares.shape, np.float32) / np.sqrt(squares)
        return found

    return rows


def _low_rank(draw: np.random.Generator, length: int) -> Rows:
    basis = draw.standard_normal((_RANK, length), np.float32)
    return lambda own: own.standard_normal((_BLOCK, _RANK), np.float32) @ basis


def _unequal_places(draw: np.random.Generator, length: int) -> Rows:
    """Lognormal sizes, and six outliers of thirty times theirs."""
    sizes = draw.lognormal(0, 1, length).astype(np.float32)
    sizes[draw.permutation(length)[:6]] *= 30
    return lambda own: own.standard_normal((_BLOCK, length), np.float32) * sizes


WEIGHTS: Final[dict[str, Callable[[np.random.Generator, int], Rows]]] = {
    "heavy tails": _heavy_tails,
    "low rank": _low_rank,
    "unequal places": _unequal_places,
}


def wide_figures(lines: int = _LINES) -> Figures:
    """Kin and strangers of each kind of weights and each length.

    Args:
        lines: of each stranger.
    """
    return {
        f"{name}, {length:,}": of_kin(name, length) | of_wide_strangers(name, length, lines)
        for name in WEIGHTS
        for length in LENGTHS
    }


def section(figures: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """What the cell shows."""
    yield _ABOUT
    yield table(
        ("weights, places", *(f"drift {drift}" for drift in DRIFTS), "Q8_0", "Q4_0"),
        [
            (
                name,
                *(f"{row[f'drift {d}']:.2f} ({row[f'expected at {d}']:.2f})" for d in DRIFTS),
                *(f"{row[kind]:.2f}" for kind in ("Q8_0", "Q4_0")),
            )
            for name, row in figures.items()
        ],
    )
    yield _ABOUT_STRANGERS
    kinds = [f"by {members}" for members in _MEMBERS]
    yield table(
        ("weights, places", "pairs", *kinds, "by 5"),
        [
            (
                name,
                f"{row['pairs']:,.0f}",
                *(f"{row[f'equal {kind}']:,.0f} ({row[f'chance {kind}']:,.0f})" for kind in kinds),
                f"{row['equal']:.0f} ({row['chance']:.2f})",
            )
            for name, row in figures.items()
        ],
    )


def of_kin(name: str, length: int, lines: int = _LINES_OF_KIN) -> dict[str, float]:
    """The shares of lines that are left by drift and by rounding.

    Drift is noise of one size in all entries, of the median place's. Beside the share by drift
    stands the one that is expected by how much the sets have in common.
    """
    weights = Weights(name, length, 0)
    base = np.concatenate([weights.block(number) for number in range(-(-lines // _BLOCK))])[:lines]
    own = _keys(base)
    draw, sigma = np.random.default_rng(length), np.median(base.std(axis=0))
    figures = {}
    for drift in DRIFTS:
        noise = draw.standard_normal(base.shape, np.float32)
        child = _keys(base + np.float32(drift * sigma) * noise)
        figures[f"drift {drift}"] = float((own[0] == child[0]).mean())
        figures[f"expected at {drift}"] = _expected_share(own[1], child[1], length)
    for kind in ("Q8_0", "Q4_0"):
        figures[kind] = float((own[0] == _keys(ROUNDED[kind](base))[0]).mean())
    return figures


def of_wide_strangers(name: str, length: int, lines: int = _LINES) -> dict[str, float]:
    """The equal keys of two, and how many chance expects, by keys of few members."""
    first, second = (_sampled_keys(Weights(name, length, seed), lines) for seed in (1, 2))
    figures: dict[str, float] = {"pairs": lines * lines}
    for members in _MEMBERS:
        mine, its = (np.unique(each[members], return_counts=True) for each in (first, second))
        _, at, other = np.intersect1d(mine[0], its[0], return_indices=True)
        figures[f"equal by {members}"] = float((mine[1][at] * its[1][other]).sum())
        figures[f"chance by {members}"] = lines * lines * _collisions(length, members)
    own = members_of_key(length)
    figures["equal"] = float(np.intersect1d(first[own], second[own]).size)
    figures["chance"] = lines * lines * _collisions(length, own)
    return figures


def _keys(rows: Floats) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """The keys of rows, and which entries are in their sets."""
    scales = PlaceScales(*rows.shape)
    scales.add(0, rows)
    length = rows.shape[1]
    keys, least = kernels().line_keys(
        rows, scales.of_rows, walk(length), size_of_set(length), members_of_key(length)
    )
    return keys, np.abs(rows) * scales.of_rows >= least[:, np.newaxis]


def _sampled_keys(weights: Weights, lines: int) -> dict[int, npt.NDArray[np.uint64]]:
    """The keys of a matrix's rows, by how many members make one."""
    first = weights.block(0)
    length = first.shape[1]
    blocks = range(lines // _BLOCK)
    scales = PlaceScales(lines // _BLOCK * _BLOCK, length)
    for number in blocks:
        scales.add(number * _BLOCK, weights.block(number))
    sought = (*_MEMBERS, members_of_key(length))
    found: dict[int, list[npt.NDArray[np.uint64]]] = {members: [] for members in sought}
    for number in blocks:
        rows = weights.block(number)
        for members, keys in found.items():
            asked = scales.of_rows, walk(length), size_of_set(length), members
            keys.append(kernels().line_keys(rows, *asked)[0])
    return {members: np.concatenate(keys) for members, keys in found.items()}


def _expected_share(
    own: npt.NDArray[np.bool_], others: npt.NDArray[np.bool_], length: int
) -> float:
    """Of pairs of sets with k entries in common of u: the mean of C(k, r) / C(u, r)."""
    common = np.count_nonzero(own & others, axis=1).tolist()
    union = np.count_nonzero(own | others, axis=1).tolist()
    members = members_of_key(length)
    shares = [comb(k, members) / comb(u, members) for k, u in zip(common, union, strict=True)]
    return float(np.mean(shares))


def _collisions(length: int, members: int) -> float:
    """As ``modelkin.core.fingerprints.chance`` for keys of any number of members."""
    size = size_of_set(length)
    return sum(_terms(length, size, members)) / comb(length, size)


def _terms(length: int, size: int, members: int) -> Iterator[int]:
    for k in range(members, size + 1):
        ways = comb(size, k) * comb(length - size, size - k) * comb(k, members)
        yield ways // comb(2 * size - k, members)
