"""``ModelBuffer``: a model that takes a step whenever enough updates of it are there.

No client waits for another one. A client trains the model that it received, and its update, what
the training changed, is added to the newest model. A stale update, of a model that has since taken
s steps, counts 1 / sqrt(1 + s).

Source: Nguyen et al., "Federated learning with buffered asynchronous aggregation" (FedBuff),
AISTATS 2022, algorithm 1 and section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter
from modelkin.federation.layouts import MOST_EXACT, misfit

__all__ = ["Arrays", "Counted", "ModelBuffer", "Update", "staleness_weight"]

Arrays = Mapping[str, npt.NDArray[Any]]
"""A model: its arrays of numbers or truth values, by name."""


def staleness_weight(staleness: int) -> float:
    """The weight of an update of a model that has since taken so many steps."""
    return 1 / sqrt(1 + staleness)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """A client's training.

    Attributes:
        version: the number of the model that the client received.
        received: that model, as it was sent.
        trained: the same arrays after the training.
        weight: the client's weight, such as its examples.
    """

    version: int
    received: Arrays
    trained: Arrays
    weight: float


@dataclass(frozen=True, slots=True)
class Counted:
    """An update that a step is made of.

    Attributes:
        client: whose it is.
        staleness: the steps that its model had taken since the client received it.
        share: what it counts: its weight among all weights of the step, times that of its
            staleness. The shares of a step have a sum of 1 if no update is stale.
    """

    client: str
    staleness: int
    share: float


class ModelBuffer:
    """A model, and the updates that wait for its next step.

    A step adds ``rate * sum(w * u / sqrt(1 + s)) / sum(w)`` over the waiting updates u, of weights
    w. With all clients in one buffer, none of them stale, and a rate of 1 it is FedAvg's. It is
    summed in float64 in the order of the clients' names, and rounded once. So the order in which
    the updates of a step came changes no bit.

    Args:
        model: version 0.
        size: the updates that make a step.
        max_staleness: the largest staleness with which an update counts.
        rate: the server's learning rate.

    Raises:
        InvalidParameter: an argument is out of its range.
    """

    def __init__(self, model: Arrays, *, size: int, max_staleness: int, rate: float = 1.0) -> None:
        for field, value, least in (("size", size, 1), ("max_staleness", max_staleness, 0)):
            if type(value) is not int or value < least:
                raise InvalidParameter(f"{field} is {value!r}, not {least} or more", field=field)
        if not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise InvalidParameter(f"rate is {rate!r}, not a number above 0", field="rate")
        self.model: Arrays = dict(model)
        self._size, self._max_staleness, self._rate = size, max_staleness, rate
        self._versions = [0]
        self._waiting: dict[tuple[str, int], Update] = {}
        self._counted: set[tuple[str, int]] = set()

    @property
    def version(self) -> int:
        """The number of the model."""
        return self._versions[-1]

    @property
    def is_full(self) -> bool:
        """Whether the waiting updates make a step."""
        return len(self._waiting) >= self._size

    def __len__(self) -> int:
        """The number of waiting updates."""
        return len(self._waiting)

    def copy(self) -> ModelBuffer:
        """The same model, which updates of its versions so far may still move; none waits."""
        found = ModelBuffer(
            self.model, size=self._size, max_staleness=self._max_staleness, rate=self._rate
        )
        found._versions, found._counted = list(self._versions), set(self._counted)
        return found

    def add(self, client: str, update: Update) -> None:
        """Let an update wait for the next step.

        Args:
            client: the client's name.
            update: its training.

        Raises:
            InvalidParameter: the update does not count, and why: it is of another model or too
                stale, the client has trained that version before, its arrays do not fit
                (:func:`~modelkin.federation.layouts.misfit`), its weight is not a number above 0
                and at most 2^53, or the same update waits under another name. Nothing has
                changed.
        """
        staleness = self._staleness(update.version)
        if staleness > self._max_staleness:
            raise InvalidParameter(
                f"its model has taken {staleness} steps since, {self._max_staleness} at most count",
                field="version",
            )
        key = (client, update.version)
        if key in self._waiting or key in self._counted:
            raise InvalidParameter(
                f"it has trained version {update.version} before", field="version"
            )
        weight = update.weight
        is_number = isinstance(weight, int | float) and weight is not True
        if not (is_number and 0 < weight <= MOST_EXACT):
            raise InvalidParameter(
                f"its weight is {weight!r}, not a number above 0 and at most 2^53", field="weight"
            )
        if (why := misfit(update.trained, self.model)) is not None:
            raise InvalidParameter(why, field="arrays")
        for (other, version), waiting in self._waiting.items():
            if version == update.version and _is_copy(update, waiting):
                raise InvalidParameter(
                    f"its arrays are those of {other!r} to the bit: they count once", field="arrays"
                )
        self._waiting[key] = update

    def take(self, client: str) -> list[Update]:
        """Take a client's waiting updates out of the buffer."""
        keys = [key for key in self._waiting if key[0] == client]
        return [self._waiting.pop(key) for key in keys]

    def step(self, version: int | None = None) -> list[Counted]:
        """Take a step by the waiting updates, of which none waits then.

        Args:
            version: the new model's number, which no other model has; by default the next one.

        Returns:
            What it is made of, in the order of the names.

        Raises:
            InvalidParameter: no update waits.
        """
        if not self._waiting:
            raise InvalidParameter("no update waits for a step", field="size")
        updates = [(client, update) for (client, _), update in sorted(self._waiting.items())]
        total = sum(update.weight for _, update in updates)
        counted = list[Counted]()
        for client, update in updates:
            staleness = self._staleness(update.version)
            share = update.weight * staleness_weight(staleness) / total
            counted.append(Counted(client, staleness, share))
        shares = [each.share for each in counted]
        self.model = {
            name: _moved(old, name, [update for _, update in updates], shares, self._rate)
            for name, old in self.model.items()
        }
        self._versions.append(self.version + 1 if version is None else version)
        recent = set(self._versions[-self._max_staleness - 1 :])
        self._counted = {key for key in self._counted | set(self._waiting) if key[1] in recent}
        self._waiting = {}
        return counted

    def _staleness(self, version: int) -> int:
        if version not in self._versions:
            raise InvalidParameter(
                f"it trained version {version}, which is of another model", field="version"
            )
        return len(self._versions) - 1 - self._versions.index(version)


def _is_copy(update: Update, other: Update) -> bool:
    """Whether two updates are one. Two that changed nothing are no copies, but clients at rest."""
    trained, received = update.trained, update.received
    return all(np.array_equal(each, other.trained[name]) for name, each in trained.items()) and any(
        not np.array_equal(each, received[name]) for name, each in trained.items()
    )


def _moved(
    old: npt.NDArray[Any], name: str, updates: list[Update], shares: list[float], rate: float
) -> npt.NDArray[Any]:
    """An array after a step, rounded once."""
    summed = np.zeros(old.shape)
    for update, share in zip(updates, shares, strict=True):
        new, before = update.trained[name], update.received[name]
        summed += share * (new.astype(np.float64) - before)
    moved = old + rate * summed
    rounded = moved if old.dtype.kind == "f" else np.rint(moved)
    return np.asarray(rounded.astype(old.dtype))
