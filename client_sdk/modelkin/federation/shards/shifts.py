"""Shifts: references that member and aggregator move alike, so that only differences are sent.

A member sends ``v_k = C(D_k - s_k)``, and the aggregator answers ``s + v`` for the mean v of the
cells. Then both move: ``s_k += gamma * v_k`` and ``s += gamma * pi * v``, where pi is the weight of
who took part. They move when the shard's result is known to have counted, not before: so
``s = sum of W_k s_k`` holds through absent members, lost aggregators, refused cells and repeats.

Source: DIANA (Mishchenko et al., 2019) and SoteriaFL (Li et al., 2022); pi and the receipts are
modelkin's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Shift", "gamma"]

Floats = npt.NDArray[np.float32]


def gamma(omega: float) -> float:
    """The step of the shifts for a variance of the compression.

    Source: SoteriaFL, theorem 2; from a tenth of it to twice of it, convergence is the same.
    """
    return math.sqrt((1 + 2 * omega) / (2 * (1 + omega) ** 3))


@dataclass(slots=True, eq=False)
class Shift:
    """The reference of one piece of one shard, and the step that waits for its receipt.

    Attributes:
        values: s, shape ``(size,)``; zeros at the beginning of an epoch.
        round: the round that the waiting step belongs to; 0 if none waits.
        positions: where it moves s, ascending; None for everywhere.
        step: how far it moves s there.
    """

    values: Floats
    round: int = 0
    positions: npt.NDArray[np.int64] | None = None
    step: Floats | None = None

    @classmethod
    def zeros(cls, size: int) -> Shift:
        """The shift of an epoch that begins."""
        return cls(np.zeros(size, np.float32))

    def propose(
        self, round_number: int, step: Floats, positions: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Keep a step until its receipt; it replaces one that waited."""
        self.round, self.step, self.positions = round_number, step, positions

    def settle(self, round_number: int, *, counted: bool) -> None:
        """Take the receipt of a round: move if it counted, and forget the step.

        A receipt of another round than the step's changes nothing, so it may be repeated.
        """
        if self.round != round_number or self.step is None:
            return
        if counted:
            if self.positions is None:
                self.values += self.step
            else:
                self.values[self.positions] += self.step
        self.round, self.step, self.positions = 0, None, None

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The shift as arrays, for a process that ends between rounds."""
        arrays: dict[str, npt.NDArray[Any]] = {"values": self.values}
        if self.step is not None:
            arrays |= {"round": np.array([self.round]), "step": self.step}
            if self.positions is not None:
                arrays["positions"] = self.positions
        return arrays

    @classmethod
    def restore(cls, arrays: dict[str, npt.NDArray[Any]]) -> Shift:
        """The shift of :meth:`state`."""
        waiting = "step" in arrays
        return cls(
            arrays["values"].copy(),
            int(arrays["round"][0]) if waiting else 0,
            arrays.get("positions"),
            arrays["step"] if waiting else None,
        )
