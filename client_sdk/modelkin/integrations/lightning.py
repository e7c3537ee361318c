"""``SupportCallback`` for the Trainer of Lightning.

It pushes the support of the module to a modelkin service at each checkpoint, from an importance
that is kept while training. What it keeps itself is part of Lightning's own checkpoints: plain
tensors and numbers, which load with ``weights_only=True``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from modelkin._validation import check_tags
from modelkin.client import Client
from modelkin.errors import InvalidParameter, MissingExtra

try:
    import lightning.pytorch as pl
except ModuleNotFoundError as error:
    if error.name not in {"lightning", "torch"}:
        raise
    raise MissingExtra(error.name, "lightning") from error

from modelkin.integrations._training import PATIENCE, Plan, SupportRun

__all__ = ["SupportCallback"]

log = logging.getLogger("modelkin.integrations")


class SupportCallback(pl.Callback):
    """Pushes a support of the module at each checkpoint, and at the end.

        client = modelkin.Client()
        trainer = pl.Trainer(
            ..., callbacks=[SupportCallback(client, "digits-cnn", "org/run-7")]
        )

    Importance, names, failures of the service and several processes: as
    :class:`modelkin.integrations.huggingface.SupportCallback`. Gradients are counted as the
    optimizer uses them: accumulated, unscaled and clipped.

    Checkpoints of weights alone (``save_weights_only=True``) are none of its events, as Lightning
    asks no callback about them: then the support is pushed at the end.

    Args:
        client: stays open, and is the caller's to close, after the training.
        space: where; made with the module's layout if there is none.
        model: the name; ``{step}`` in it becomes the step, so that each checkpoint's stays.
        submodule: the path of the part of the module that is the model, ``"net"`` for ``self.net``;
            all of it by default. Its own layout is the space's.
        importance: ``"moment"`` or ``"adam"``.
        beta: what the moment keeps of its average at each optimizer step, between 0 and 1.
        coverage: as for ``modelkin.select_support``.
        k_max: likewise.
        tags: of the model, beside ``step-N``.
        flush_seconds: how long the end of the training waits for the service at most.

    Raises:
        InvalidInput: an argument cannot be right.
    """

    def __init__(
        self,
        client: Client,
        space: str,
        model: str,
        *,
        submodule: str = "",
        importance: str = "moment",
        beta: float = 0.95,
        coverage: float | None = None,
        k_max: float | None = None,
        tags: Iterable[str] = (),
        flush_seconds: float = PATIENCE,
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
        self._submodule = submodule
        self._resumed: dict[str, Any] | None = None
        self._run: SupportRun | None = None

    @property
    def state_key(self) -> str:
        """Tells two of them in one trainer apart."""
        return self._generate_state_key(space=self._plan.space, model=self._plan.model)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Forgets what a checkpoint told that was loaded for something else."""
        self._resumed = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps what a checkpoint tells until the training begins."""
        self._resumed = state_dict.get("moment")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begins to watch; goes on where the checkpoint left off, if it is resumed from one."""
        self._end(hurry=True)
        optimizers = trainer.optimizers
        if len(optimizers) != 1:
            raise InvalidParameter(
                f"this module has {len(optimizers)} optimizers, and an importance is of the steps "
                f"of one: use modelkin.torch.GradientMoment around the steps that count",
                field="optimizer",
            )
        resumed, self._resumed = self._resumed, None
        if resumed is None and trainer.global_step > 0 and self._plan.importance == "moment":
            log.warning("the average of squared gradients begins anew: the checkpoint has none")
        self._run = SupportRun(
            self._plan,
            pl_module.get_submodule(self._submodule),
            optimizers[0],
            wrapped=trainer.strategy.model or pl_module,
            main=trainer.is_global_zero,
            state=resumed,
        )

    def state_dict(self) -> dict[str, Any]:
        """What goes into a checkpoint."""
        kept = None if self._run is None else self._run.state()
        return {} if kept is None else {"moment": kept}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Pushes the support."""
        if self._run is not None:
            self._run.push(trainer.global_step, _said(trainer))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Pushes the last support, if its step was no checkpoint, and waits for what is left."""
        if self._run is not None:
            self._run.push(trainer.global_step, _said(trainer))
        self._end()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Waits a second for what was pushed before, and lets go."""
        self._end(hurry=True)

    def _end(self, *, hurry: bool = False) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.end(hurry=hurry)


def _said(trainer: pl.Trainer) -> dict[str, Any]:
    """What was logged last about the training, the loss for one."""
    logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    return {"epoch": trainer.current_epoch, **logged}
