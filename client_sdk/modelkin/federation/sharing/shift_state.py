"""The shifts of a member or an aggregator as named arrays, for a process that ends in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from modelkin.federation.shards.shifts import Shift

__all__ = ["pack_shifts", "unpack_shifts"]

Arrays = dict[str, npt.NDArray[Any]]


def pack_shifts(shifts: Mapping[tuple[int, int], Shift]) -> Arrays:
    """Arrays named ``shard/piece/field``."""
    return {
        f"{shard}/{piece}/{name}": array
        for (shard, piece), shift in shifts.items()
        for name, array in shift.state().items()
    }


def unpack_shifts(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[tuple[int, int], Shift]:
    """The shifts of :func:`pack_shifts`, by shard and piece."""
    fields: dict[tuple[int, int], Arrays] = {}
    for name, array in arrays.items():
        shard, piece, field = name.split("/")
        fields.setdefault((int(shard), int(piece)), {})[field] = array
    return {key: Shift.restore(each) for key, each in fields.items()}
