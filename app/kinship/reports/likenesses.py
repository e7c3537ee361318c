"""``Likenesses``: what many models are to each other, as figures in arrays.

A hub of 100,000 models has millions of pairs of kin. As values they would take gigabytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from app.kinship.reports.known import Likeness
from app.kinship.reports.records import Pair
from modelkin.core.fingerprints.sources import Verdict

__all__ = ["Likenesses", "Pairs"]

_VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
_CODES: Final = {verdict: code for code, verdict in enumerate(_VERDICTS)}
_COPY: Final = _CODES["copy"]
_BITS: Final = np.uint64(32)


class Pairs:
    """Pairs of models with what one is to the other, as they are read."""

    def __init__(self) -> None:
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []

    def add(self, rows: Sequence[Pair]) -> None:
        """Take over some rows."""
        if not rows:
            return
        models, others, verdicts, shares, chances = zip(*rows, strict=True)
        self._parts.append(
            (
                np.array(models, np.int64),
                np.array(others, np.int64),
                np.array([_CODES[each] for each in verdicts], np.uint8),
                np.array(shares, np.float64),
                np.array(chances, np.float64),
            )
        )

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """All that came: ids of models and others, codes of verdicts, shares, log10 of P."""
        empty = (np.int64, np.int64, np.uint8, np.float64, np.float64)
        parts = [tuple(np.empty(0, kind) for kind in empty), *self._parts]
        return tuple(map(np.concatenate, zip(*parts, strict=True)))

    def ids(self) -> Iterator[tuple[int, int]]:
        """The ids of the models and the others, pair by pair."""
        for models, others, *_ in self._parts:
            yield from zip(models.tolist(), others.tolist(), strict=True)

    def others(self) -> set[int]:
        """The ids of the models to which others are something."""
        return {other for _, others, *_ in self._parts for other in others.tolist()}


class Likenesses:
    """What models are to each other. Each pair stands once in either order.

    Args:
        ids: the models by their ids; pairs with others are left out.
        pairs: what is known; of several about one pair, the first counts.
    """

    def __init__(self, ids: Mapping[int, str], pairs: Pairs) -> None:
        ordered = sorted(ids)
        self._names = [ids[each] for each in ordered]
        self._places = {name: place for place, name in enumerate(self._names)}
        known = np.array(ordered, np.int64)
        models, others, verdicts, shares, chances = pairs.columns()
        is_known = np.isin(models, known) & np.isin(others, known)
        keys = _keys(np.searchsorted(known, models), np.searchsorted(known, others))[is_known]
        self._keys, first = np.unique(keys, return_index=True)
        of_known = np.flatnonzero(is_known)[first]
        self._verdicts = verdicts[of_known]
        self._shares, self._chances = shares[of_known], chances[of_known]
        begins = np.arange(len(ordered) + 1, dtype=np.uint64) << _BITS
        self._begins: list[int] = np.searchsorted(self._keys, begins).tolist()
        self._sought: memoryview[int] = self._keys.data

    @classmethod
    def of_values(cls, likenesses: Iterable[Likeness]) -> Likenesses:
        """Those of single values."""
        ids: dict[str, int] = {}
        rows = [
            (
                ids.setdefault(each.model, len(ids)),
                ids.setdefault(each.other, len(ids)),
                each.verdict,
                each.share,
                each.log10_p,
            )
            for each in likenesses
        ]
        pairs = Pairs()
        pairs.add(rows)
        return cls({place: name for name, place in ids.items()}, pairs)

    def of(self, model: str) -> list[Likeness]:
        """What a model is to others."""
        place = self._places.get(model)
        if place is None:
            return []
        begin, end = self._begins[place], self._begins[place + 1]
        return list(self._read(slice(begin, end)))

    def between(self, model: str, other: str) -> Likeness | None:
        """What a model is to another one; None where nothing is known of it."""
        at = self._find(model, other)
        return None if at is None else next(self._read(slice(at, at + 1)))

    def has(self, model: str, other: str) -> bool:
        """Whether something is known of what a model is to another one."""
        return self._find(model, other) is not None

    def copies(self) -> Iterator[Likeness]:
        """The pairs of which one is a copy of the other."""
        for at in np.flatnonzero(self._verdicts == _COPY).tolist():
            yield from self._read(slice(at, at + 1))

    def _find(self, model: str, other: str) -> int | None:
        place, sought = self._places.get(model), self._places.get(other)
        if place is None or sought is None:
            return None
        begin, end = self._begins[place], self._begins[place + 1]
        key = (place << 32) | sought
        at = bisect_left(self._sought, key, begin, end)
        return at if at < end and self._sought[at] == key else None

    def _read(self, rows: slice) -> Iterator[Likeness]:
        for key, verdict, share, log10_p in zip(
            self._keys[rows].tolist(),
            self._verdicts[rows].tolist(),
            self._shares[rows].tolist(),
            self._chances[rows].tolist(),
            strict=True,
        ):
            model, other = self._names[key >> 32], self._names[key & 0xFFFF_FFFF]
            yield Likeness(model, other, _VERDICTS[verdict], share, log10_p)


def _keys(models: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """One number for each pair, ascending by the model and then by the other one."""
    return (models.astype(np.uint64) << _BITS) | others.astype(np.uint64)
