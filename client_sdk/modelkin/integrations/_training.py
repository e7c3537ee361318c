"""``SupportRun``: one training run that uploads the supports of its model.

The callbacks of different libraries share names, tags, selection, and the promise that no failure
after the start ends the training. Each library's module says which of its events is a save.
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
from modelkin.core.selection.rule import SelectionRule
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.integrations._background_uploader import BackgroundUploader, check_flush_seconds
from modelkin.integrations._space_uploads import SpaceUploads
from modelkin.integrations._tracker import (
    SPACE_KINDS,
    State,
    TrackedImportance,
    check_kind,
    check_unsharded,
    open_tracker,
)
from modelkin.selection import resize_support, select_support
from modelkin.torch import layout_of

__all__ = ["FLUSH_SECONDS", "SupportCallbackMixin", "SupportRun", "UploadPlan"]

log = logging.getLogger("modelkin.integrations")

FLUSH_SECONDS: Final = 30.0
"""Seconds that the end of a training waits for a slow service, by default."""
SPACE_TIMEOUT_S: Final = 2.0
"""Seconds that the first save waits for the K of the space, which is requested at the start of the
training."""
_EXAMPLE_STEP: Final = 10**9


@dataclass(frozen=True, slots=True)
class UploadPlan:
    """The settings of a callback's uploads, checked before the training starts.

    Attributes:
        client: uploads to the service; the caller closes it.
        space: the space's name.
        model: the model's name, in which ``{step}`` stands for the step.
        importance: ``"moment"`` or ``"adam"``.
        beta: what is kept of the old average per optimizer step, between 0 and 1.
        coverage: see ``modelkin.select_support``, also for ``k_max``.
        tags: the tags beside ``step-N``.
        flush_seconds: the longest time that the end of the training waits for the service.

    Raises:
        InvalidName: a name or tag is not valid.
        InvalidParameter: another setting is out of its range.
    """

    client: Client
    space: str
    model: str
    importance: TrackedImportance
    beta: float
    coverage: float | None
    k_max: float | None
    tags: tuple[str, ...]
    flush_seconds: float

    def __post_init__(self) -> None:
        check_space_name(self.space)
        self.name_at(_EXAMPLE_STEP)
        self.tags_at(_EXAMPLE_STEP)
        check_kind(self.importance)
        SelectionRule.of(1, coverage=self.coverage, k_max=self.k_max)
        if not 0 < self.beta < 1:
            raise InvalidParameter(f"beta must be between 0 and 1, not {self.beta!r}", field="beta")
        check_flush_seconds(self.flush_seconds)

    def name_at(self, step: int) -> str:
        """The model's name at a step."""
        return check_model_name(str(self.model).replace("{step}", str(step)))

    def tags_at(self, step: int) -> tuple[str, ...]:
        """The model's tags at a step."""
        return check_tags([*self.tags, f"step-{step}"])


class SupportRun:
    """The uploads of one training, from :meth:`start` to :meth:`end`.

    Args:
        plan: the settings.
        model: the trained model, unwrapped and unsharded.
        optimizer: torch's own optimizer of this model.
        wrapped: the model as the training calls it, around the model itself or the same.
        main: whether this process uploads. Other processes keep nothing, but refuse the same
            models, so that a training of several processes ends alike in all.
        state: the state that an earlier run left, for a training that goes on; None for a new one.

    Raises:
        InvalidParameter: model or optimizer cannot be read, see ``modelkin.torch`` and
            ``_tracker``.
        InvalidLayout: the state is of another model.
    """

    def __init__(
        self,
        plan: UploadPlan,
        model: nn.Module,
        optimizer: Any,
        *,
        wrapped: nn.Module,
        main: bool,
        state: State | None,
    ) -> None:
        check_unsharded(model, optimizer, wrapped)
        self._plan = plan
        self._main = main
        self._last_step: int | None = None
        self._space_timeout_s = SPACE_TIMEOUT_S
        self._warned = False
        layout = layout_of(model)
        self._tracker = open_tracker(plan.importance, model, optimizer, plan.beta, state)
        kind = SPACE_KINDS[plan.importance]
        self._space = SpaceUploads(plan.client, plan.space, layout.num_parameters, layout, kind)
        self._uploader = BackgroundUploader(flush_seconds=plan.flush_seconds)

    def start(self) -> None:
        """Open the space in the background; a process that does not upload stops tracking."""
        if self._main:
            self._uploader.submit(f"the layout of space {self._plan.space!r}", self._space.open)
        else:
            self._tracker.close()

    def state(self) -> dict[str, Any] | None:
        """The state that a checkpoint has to store, if any."""
        return self._tracker.state() if self._main else None

    def upload(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Upload the current support in the background, once a step.

        Args:
            step: the number of optimizer steps so far.
            metrics: the training's metrics; finite numbers become attributes of the model.
        """
        if not self._main or step == self._last_step:
            return
        self._last_step = step
        try:
            self._select_and_submit(step, metrics)
        except Exception as error:  # a failed upload must not end a training of days
            expected = isinstance(error, ModelkinError)
            log.log(
                logging.DEBUG if self._warned else logging.WARNING,
                "no support at step %d: %s",
                step,
                error,
                exc_info=None if expected else error,
            )
            self._warned = True

    def end(self, *, hurry: bool = False) -> None:
        """Wait for running uploads, for the plan's ``flush_seconds`` at most, and stop tracking.

        Args:
            hurry: whether to wait only a second, because the training failed.
        """
        if self._main:
            self._tracker.close()
            self._uploader.close(hurry=hurry)

    def _select_and_submit(self, step: int, metrics: Mapping[str, Any]) -> None:
        plan = self._plan
        importance = self._tracker.importance()
        self._space.opened.wait(self._space_timeout_s)
        self._space_timeout_s = 0.0
        how = self._space.selection
        # Select here, not in the background: K indices in this machine's memory wait for a slow
        # service, instead of a vector of M values on the device.
        chosen = select_support(importance, coverage=plan.coverage, k_max=plan.k_max, **how)
        name = plan.name_at(step)
        numbers = {key: value for key, value in metrics.items() if _is_number(value)}
        put = partial(
            self._space.put,
            name,
            resize_support(importance, chosen, self._space.k, **how),
            reporter=plan.name_at(0),  # all saves of a run count as one client of the space
            k_star=chosen.k,
            tags=plan.tags_at(step),
            attributes={**numbers, "step": step, "importance": plan.importance},
        )
        self._uploader.submit(name, put)


class SupportCallbackMixin:
    """The uploads of a callback: one run at a time, from a training's start to its end."""

    _run: SupportRun | None = None

    def _upload(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Upload the support of a save, if a training runs."""
        if self._run is not None:
            self._run.upload(step, metrics)

    def _end(self, *, hurry: bool = False) -> None:
        """Wait for running uploads; do nothing if no training runs."""
        run, self._run = self._run, None
        if run is not None:
            run.end(hurry=hurry)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
