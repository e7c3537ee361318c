"""``KeptUpdate``: what a client trained last, kept until its cells are sent, perhaps a round later.

An update of which a cell has left is never sealed again. Two averages of the same updates, of
members that differ by one, would show that member's values to who sees both.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter
from modelkin.federation.buffer import staleness_weight
from modelkin.integrations.federation.shards.client_state import ShardState

__all__ = ["KeptUpdate"]

log = logging.getLogger("modelkin.integrations")

_UPDATE: Final = "modelkin-update"

Floats = npt.NDArray[np.float32]


class KeptUpdate:
    """The update of one client, in its state.

    It is offered to the server in the round that trained it. If that round ends without asking for
    its cells, it can be offered again in a later one, where it counts less.

    Args:
        state: the client's state.
        max_staleness: the most rounds that it may be late; with 0 each round trains anew.

    Raises:
        InvalidParameter: ``max_staleness`` is not a whole number of 0 or more.
    """

    def __init__(self, state: ShardState, max_staleness: int) -> None:
        self._state, self._max_staleness = state, check_max_staleness(max_staleness)

    @property
    def may_be_late(self) -> bool:
        """Whether it counts in a later round than its own."""
        return self._max_staleness > 0

    @property
    def examples(self) -> int:
        """The client's weight when it trained."""
        return int(self._state.values["examples"])

    @property
    def staleness(self) -> int:
        """The rounds between the one that trained it and the one that it is offered in."""
        values = self._state.values
        return int(values["offered"]) - int(values["trained"])

    @property
    def values(self) -> Floats:
        """The update as it counts where it is offered: times 1 / sqrt(1 + staleness)."""
        update: Floats = self._state.arrays(_UPDATE)["update"]
        return update * np.float32(staleness_weight(self.staleness)) if self.staleness else update

    def keep(self, update: Any, examples: int, number: int, model: str) -> None:
        """Keep an update in the place of the one before, and offer it in its own round.

        Args:
            update: the trained values minus the received ones, shape ``(M,)``.
            examples: the client's weight.
            number: the round's number.
            model: what the update can be added to, such as a run and its arrays' shapes.
        """
        self._state.add(_UPDATE, {"update": update})
        kept = {"examples": examples, "trained": number, "offered": number, "model": model}
        self._state.values.update({**kept, "sent": False})

    def offer(self, number: int, model: str) -> bool:
        """Offer an update that was late in another round; forget one that can count no more."""
        values = self._state.values
        if not self._waits:
            self.forget()
            return False
        staleness = number - int(values["trained"])
        if values["model"] != model:
            self._drop("the model that it was trained from is of another run or layout")
        elif staleness > self._max_staleness:
            self._drop(f"it is {staleness} rounds late, and max_staleness is {self._max_staleness}")
        else:
            values["offered"] = number
            return True
        return False

    def take(self, number: int, weight: float | None) -> Floats:
        """The values of the update, whose cells leave in this round; it counts in no other one.

        Raises:
            InvalidParameter: no update was offered in this round, or with another weight.
        """
        values = self._state.values
        if not self._state.arrays(_UPDATE) or values.get("offered") != number:
            raise InvalidParameter("nothing was trained in this round", field="number")
        if weight != self.examples:
            raise InvalidParameter("the round has other examples of this client", field="weights")
        values["sent"] = True
        return self.values

    def renew(self) -> None:
        """Begin with another roster: a cell that left for the one before was the only one."""
        if not self._waits:
            self.forget()

    def forget(self) -> None:
        """Forget the update."""
        self._state.drop(_UPDATE)

    @property
    def _waits(self) -> bool:
        """Whether no cell of an update has left that may be late."""
        return (
            self.may_be_late
            and bool(self._state.arrays(_UPDATE))
            and not self._state.values["sent"]
        )

    def _drop(self, why: str) -> None:
        log.warning("the update of round %d is dropped: %s", self._state.values["trained"], why)
        self.forget()


def check_max_staleness(value: int) -> int:
    """Check that so many rounds may be waited, and return them.

    Raises:
        InvalidParameter: it is not a whole number of 0 or more.
    """
    if type(value) is not int or value < 0:
        raise InvalidParameter(
            f"max_staleness is {value!r}, not a whole number of 0 or more", field="max_staleness"
        )
    return value
