"""``SupportRun``: one training run that pushes the supports of its model.

All that the callbacks of different libraries share: names, tags, selection, and that nothing which
goes wrong after the beginning ever ends the training. Which of a library's events is a save is its
own module's to say.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from torch import nn

from modelkin._validation import check_model_name, check_space_name, check_tags
from modelkin.client import Client
from modelkin.client._protocol import sizes
from modelkin.core.selection.rule import SelectionRule
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.integrations._background_uploader import Pusher, check_patience
from modelkin.integrations._space_session import SpaceSession
from modelkin.integrations._tracker import State, check_kind, check_whole, tracker_of
from modelkin.torch import layout_of

__all__ = ["PATIENCE", "Plan", "SupportRun"]

log = logging.getLogger("modelkin.integrations")

PATIENCE: Final = 30.0
"""Seconds that the end of a training waits for a slow service, by default."""
FIRST_WORD: Final = 2.0
"""Seconds that the first save waits for the space to tell its K, which it was asked for when the
training began."""
_ANY_STEP: Final = 10**9


@dataclass(frozen=True, slots=True)
class Plan:
    """What is pushed and where, checked before the training begins.

    Attributes:
        client: of the service.
        space: the name.
        model: the name, in which ``{step}`` stands for the step.
        importance: ``"moment"`` or ``"adam"``.
        beta: of the moment's average, per optimizer step.
        coverage: as for ``modelkin.select_support``.
        k_max: likewise.
        tags: beside ``step-N``.
        patience: seconds that the end of the training waits for the service at most.

    Raises:
        InvalidName: a name or tag is none.
        InvalidParameter: anything else.
    """

    client: Client
    space: str
    model: str
    importance: str
    beta: float
    coverage: float | None
    k_max: float | None
    tags: tuple[str, ...]
    patience: float

    def __post_init__(self) -> None:
        check_space_name(self.space)
        self.name_at(_ANY_STEP)
        self.tags_at(_ANY_STEP)
        check_kind(self.importance)
        SelectionRule.of(1, coverage=self.coverage, k_max=self.k_max)
        if not 0 < self.beta < 1:
            raise InvalidParameter(f"beta must be between 0 and 1, not {self.beta!r}", field="beta")
        check_patience(self.patience)

    def name_at(self, step: int) -> str:
        """The model's name at a step."""
        return check_model_name(str(self.model).replace("{step}", str(step)))

    def tags_at(self, step: int) -> tuple[str, ...]:
        """Its tags at a step."""
        return check_tags([*self.tags, f"step-{step}"])


class SupportRun:
    """From the beginning of a training to its end.

    Args:
        plan: what it is to do.
        model: being trained, unwrapped and whole.
        optimizer: torch's own, that trains it.
        wrapped: the model as it is called, around the model itself or the same.
        main: whether this is the process that pushes. The others keep nothing, but refuse the same
            models, so that a training of several processes ends in all of them alike.
        state: of an earlier run that this one goes on.

    Raises:
        InvalidParameter: model or optimizer cannot be read, as ``modelkin.torch`` and ``_tracker``
            say.
        InvalidLayout: the state is of another model.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        optimizer: Any,
        *,
        wrapped: nn.Module,
        main: bool,
        state: State | None,
    ) -> None:
        check_whole(model, optimizer, wrapped)
        self._plan = plan
        self._main = main
        self._pushed: int | None = None
        self._for_first_word = FIRST_WORD
        self._warned = False
        layout = layout_of(model)
        self._tracker = tracker_of(plan.importance, model, optimizer, plan.beta, state)
        self._desk = SpaceSession(plan.client, plan.space, layout.num_parameters, layout)
        self._pusher = Pusher(patience=plan.patience)
        if main:
            self._pusher.submit(f"the layout of space {plan.space!r}", self._desk.open)
        else:
            self._tracker.close()

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint has to keep, if anything."""
        return self._tracker.state() if self._main else None

    def push(self, step: int, said: Mapping[str, Any]) -> None:
        """Pushes the support as of now, in the background; once a step.

        Args:
            step: optimizer steps so far.
            said: about the model; its finite numbers become attributes.
        """
        if not self._main or step == self._pushed:
            return
        self._pushed = step
        try:
            self._select_and_submit(step, said)
        except Exception as error:  # a training of days shall not end for this
            known = isinstance(error, ModelkinError)
            level = logging.DEBUG if self._warned else logging.WARNING
            log.log(
                level, "no support at step %d: %s", step, error, exc_info=None if known else error
            )
            self._warned = True

    def end(self, *, hurry: bool = False) -> None:
        """Waits for what is under way, as long as the plan's patience lasts, and lets go.

        Args:
            hurry: waits a second at most, where the training broke off.
        """
        if self._main:
            self._tracker.close()
            self._pusher.close(hurry=hurry)

    def _select_and_submit(self, step: int, said: Mapping[str, Any]) -> None:
        plan = self._plan
        importance = self._tracker.importance()
        # Selected here, not in the background, so that what waits for a slow service is K indices
        # in this machine's memory and no vector of M on the device.
        chosen = sizes.chosen_by_coverage(importance, plan.coverage, plan.k_max)
        self._desk.asked.wait(self._for_first_word)
        self._for_first_word = 0.0
        support = sizes.resized(importance, chosen, self._desk.k)
        name = plan.name_at(step)
        numbers = {key: value for key, value in said.items() if _is_number(value)}
        attributes = {**numbers, "step": step, "importance": plan.importance}
        told = plan.name_at(0), chosen.k  # all saves of a run are one client among the others
        put = partial(self._desk.put, name, support, told, plan.tags_at(step), attributes)
        self._pusher.submit(name, put)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
