"""``SupportCallback`` for the Trainer of Hugging Face transformers.

The callback uploads the support of the model to a modelkin service at each save, from an importance
that it tracks during the training. Its own state is stored in each checkpoint beside the model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from modelkin._validation import check_tags
from modelkin.client import Client
from modelkin.errors import InvalidCheckpoint, MissingExtra

try:
    from accelerate.utils import extract_model_from_parallel
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ModuleNotFoundError as error:
    if error.name not in {"transformers", "accelerate", "torch"}:
        raise
    raise MissingExtra(error.name, "huggingface") from error

from modelkin.integrations._tracker import TrackedImportance, read_state, write_state
from modelkin.integrations._training import (
    FLUSH_SECONDS,
    SupportCallbackMixin,
    SupportRun,
    UploadPlan,
)

__all__ = ["STATE_FILE", "SupportCallback"]

log = logging.getLogger("modelkin.integrations")

STATE_FILE: Final = "modelkin_moment.state"
"""The file in each checkpoint folder with the average of squared gradients, for a resumed training.

The format is safetensors. The suffix hides that, so that the folder still holds one checkpoint.
"""


class SupportCallback(SupportCallbackMixin, TrainerCallback):
    """Uploads a support of the model at each save and at the end.

        client = modelkin.Client()
        trainer = Trainer(
            ..., callbacks=[SupportCallback(client, "bert-base", "org/run-7")]
        )

    ``importance="moment"`` averages the squared gradients of the optimizer steps: of whole batches,
    accumulated, unscaled and clipped, as Adam would average them too. Clipping scales all gradients
    of a step alike, so it never changes which parameters are salient in a step, only how much a
    step with large gradients counts. ``importance="adam"`` reads Adam's own average, and costs
    nothing during the training.

    The service may be slow or away: uploads run in the background, the newest supports are kept,
    and a failure is a warning in the log, never the end of the training. With several processes
    (DDP) the main one uploads; models, gradients or optimizers that are sharded (FSDP, DeepSpeed)
    are refused when the training starts.

    Args:
        client: the client, which stays open; the caller closes it after the training.
        space: the space's name; created with the model's layout if it is missing. Where clients
            agree on K, the callback reports its K* and uses the K that the service last returned.
        model: the model's name; ``{step}`` in it becomes the step, so that each save stays.
        importance: ``"moment"`` or ``"adam"``.
        beta: the share of its average that the moment keeps at each optimizer step, 0 to 1.
        coverage: see ``modelkin.select_support``, also for ``k_max``.
        tags: the model's tags, beside ``step-N``.
        flush_seconds: the longest time that the end of the training waits for the service.
        resume_from: the checkpoint folder from which the training continues, if it is outside of
            the training's own output folder.

    Raises:
        InvalidInput: an argument is out of its range.
    """

    def __init__(
        self,
        client: Client,
        space: str,
        model: str,
        *,
        importance: TrackedImportance = "moment",
        beta: float = 0.95,
        coverage: float | None = None,
        k_max: float | None = None,
        tags: Iterable[str] = (),
        flush_seconds: float = FLUSH_SECONDS,
        resume_from: str | Path | None = None,
    ) -> None:
        self._plan = UploadPlan(
            client=client,
            space=space,
            model=model,
            importance=importance,
            beta=beta,
            coverage=coverage,
            k_max=k_max,
            tags=check_tags(tags),
            flush_seconds=flush_seconds,
        )
        self._resume_from = resume_from

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Start tracking, or continue with the state of the checkpoint that is resumed."""
        self._end(hurry=True)  # an attempt that ran out of memory restarts with smaller batches
        main, optimizer = state.is_world_process_zero, kwargs["optimizer"]
        self._run = SupportRun(
            self._plan,
            extract_model_from_parallel(kwargs["model"]),
            getattr(optimizer, "optimizer", optimizer),  # accelerate's wrapper around torch's own
            wrapped=kwargs["model"],
            main=main,
            state=self._state_to_resume(args, state) if main else None,
        )
        self._run.start()

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Upload the support, and store the tracker's state in the checkpoint."""
        if self._run is None:
            return
        self._upload(state.global_step, _metrics(state))
        kept = None if args.save_only_model else self._run.state()
        if kept is None:
            return
        folder = _checkpoint(args, state)
        try:
            write_state(folder / STATE_FILE, kept, state.global_step)
        except OSError as error:
            log.warning("the average is not in the checkpoint: %s", error)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Upload the last support, unless its step was a save, and wait for running uploads."""
        self._upload(state.global_step, _metrics(state))
        self._end()

    def _state_to_resume(
        self, args: TrainingArguments, state: TrainerState
    ) -> dict[str, Any] | None:
        """The state in the checkpoint from which the training continues, if any."""
        if state.global_step == 0 or self._plan.importance != "moment":
            return None
        given = self._resume_from
        folder = _checkpoint(args, state) if given is None else Path(given)
        try:
            return read_state(folder / STATE_FILE, state.global_step)
        except (OSError, InvalidCheckpoint) as error:
            log.warning("the average of squared gradients starts from zero: %s", error)
            return None


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"


def _metrics(state: TrainerState) -> dict[str, Any]:
    """The last logged metrics of the training, such as the loss."""
    logged = next((entry for entry in reversed(state.log_history) if "loss" in entry), {})
    return {"epoch": state.epoch, **logged}
