"""``SupportCallback`` for the Trainer of Hugging Face transformers.

It pushes the support of the model to a modelkin service at each save, from an importance that is
kept while training. What it keeps itself stands in each checkpoint beside the model.
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

from modelkin.integrations._tracker import read_state, write_state
from modelkin.integrations._training import PATIENCE, Plan, SupportRun

__all__ = ["STATE_FILE", "SupportCallback"]

log = logging.getLogger("modelkin.integrations")

STATE_FILE: Final = "modelkin_moment.state"
"""In each checkpoint folder: the average of squared gradients, and what else it takes to go on.

It is in the format of safetensors and not called so: the folder stays one of a single checkpoint.
"""


class SupportCallback(TrainerCallback):
    """Pushes a support of the model at each save, and at the end.

        client = modelkin.Client()
        trainer = Trainer(
            ..., callbacks=[SupportCallback(client, "bert-base", "org/run-7")]
        )

    ``importance="moment"`` averages the squared gradients of the optimizer steps, whole batches as
    they were accumulated and unscaled, after clipping: what Adam would average too. Clipping scales
    all gradients of a step alike, so that it never changes which parameters are salient in a step,
    only how much a step with large gradients counts. ``importance="adam"`` reads what Adam keeps,
    and costs nothing while training.

    The service may be slow or away: supports go out in the background, the newest first to stay,
    and a failure is a warning in the log, never the end of the training. With several processes
    (DDP) the main one pushes; models, gradients or optimizers that are sharded (FSDP, DeepSpeed)
    are refused when the training begins.

    Args:
        client: stays open, and is the caller's to close, after the training.
        space: where; made with the model's layout if there is none. Where its clients agree on K,
            this one tells its K* and takes the K that it was told last.
        model: the name; ``{step}`` in it becomes the step, so that each save stays.
        importance: ``"moment"`` or ``"adam"``.
        beta: what the moment keeps of its average at each optimizer step, between 0 and 1.
        coverage: as for ``modelkin.select_support``.
        k_max: likewise.
        tags: of the model, beside ``step-N``.
        flush_seconds: how long the end of the training waits for the service at most.
        resume_from: the checkpoint folder that the training goes on from, if that is not one of its
            own output folder.

    Raises:
        InvalidInput: an argument cannot be right.
    """

    def __init__(
        self,
        client: Client,
        space: str,
        model: str,
        *,
        importance: str = "moment",
        beta: float = 0.95,
        coverage: float | None = None,
        k_max: float | None = None,
        tags: Iterable[str] = (),
        flush_seconds: float = PATIENCE,
        resume_from: str | Path | None = None,
    ) -> None:
        self._plan = Plan(
            client=client,
            space=space,
            model=model,
            importance=importance,
            beta=beta,
            coverage=coverage,
            k_max=k_max,
            tags=check_tags(tags),
            patience=flush_seconds,
        )
        self._resume_from = resume_from
        self._run: SupportRun | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Begins to watch; goes on where the checkpoint left off, if it is resumed from one."""
        self._end(hurry=True)  # of a try that ran out of memory, begun again with smaller batches
        main, optimizer = state.is_world_process_zero, kwargs["optimizer"]
        self._run = SupportRun(
            self._plan,
            extract_model_from_parallel(kwargs["model"]),
            getattr(optimizer, "optimizer", optimizer),  # accelerate's wrapper around torch's own
            wrapped=kwargs["model"],
            main=main,
            state=self._resumed(args, state) if main else None,
        )

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Pushes the support, and puts what it keeps into the checkpoint."""
        if self._run is None:
            return
        self._run.push(state.global_step, _said(state))
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
        """Pushes the last support, if its step was no save, and waits for what is under way."""
        if self._run is not None:
            self._run.push(state.global_step, _said(state))
        self._end()

    def _end(self, *, hurry: bool = False) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.end(hurry=hurry)

    def _resumed(self, args: TrainingArguments, state: TrainerState) -> dict[str, Any] | None:
        """What the checkpoint keeps that the training goes on from, if it does."""
        if state.global_step == 0 or self._plan.importance != "moment":
            return None
        given = self._resume_from
        folder = _checkpoint(args, state) if given is None else Path(given)
        try:
            return read_state(folder / STATE_FILE, state.global_step)
        except (OSError, InvalidCheckpoint) as error:
            log.warning("the average of squared gradients begins anew: %s", error)
            return None


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"


def _said(state: TrainerState) -> dict[str, Any]:
    """What was logged last about the training, the loss for one."""
    logged = next((entry for entry in reversed(state.log_history) if "loss" in entry), {})
    return {"epoch": state.epoch, **logged}
