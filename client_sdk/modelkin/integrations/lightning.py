"""``SupportCallback`` for the Trainer of Lightning.

The callback uploads the support of the module to a modelkin service at each checkpoint, from an
importance that it tracks during the training. Its own state is part of Lightning's checkpoints:
plain tensors and numbers, which load with ``weights_only=True``.
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

from modelkin.integrations._tracker import TrackedImportance
from modelkin.integrations._training import (
    FLUSH_SECONDS,
    SupportCallbackMixin,
    SupportRun,
    UploadPlan,
)

__all__ = ["SupportCallback"]

log = logging.getLogger("modelkin.integrations")


class SupportCallback(SupportCallbackMixin, pl.Callback):
    """Uploads a support of the module at each checkpoint and at the end.

        client = modelkin.Client()
        trainer = pl.Trainer(
            ..., callbacks=[SupportCallback(client, "digits-cnn", "org/run-7")]
        )

    Importance, names, failures of the service and several processes are treated as in
    :class:`modelkin.integrations.huggingface.SupportCallback`. Gradients count as the optimizer
    uses them: accumulated, unscaled and clipped.

    Lightning calls no callback for checkpoints of weights alone (``save_weights_only=True``): then
    the support is uploaded only at the end.

    Args:
        client: the client, which stays open; the caller closes it after the training.
        space: the space's name; created with the module's layout if it is missing.
        model: the model's name; ``{step}`` in it becomes the step, so that each support stays.
        submodule: the path of the part of the module that is the model, ``"net"`` for ``self.net``;
            the whole module by default. The space has the layout of this part.
        importance: ``"moment"`` or ``"adam"``.
        beta: the share of its average that the moment keeps at each optimizer step, 0 to 1.
        coverage: see ``modelkin.select_support``, also for ``k_max``.
        tags: the model's tags, beside ``step-N``.
        flush_seconds: the longest time that the end of the training waits for the service.

    Raises:
        InvalidInput: an argument is out of its range.
    """

    def __init__(
        self,
        client: Client,
        space: str,
        model: str,
        *,
        submodule: str = "",
        importance: TrackedImportance = "moment",
        beta: float = 0.95,
        coverage: float | None = None,
        k_max: float | None = None,
        tags: Iterable[str] = (),
        flush_seconds: float = FLUSH_SECONDS,
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
        self._submodule = submodule
        self._resumed: dict[str, Any] | None = None

    @property
    def state_key(self) -> str:
        """The key of this callback's state in a checkpoint: distinct for each space and model."""
        named = {"space": self._plan.space, "model": self._plan.model}
        return f"{type(self).__qualname__}{named!r}"

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Discard the state of a checkpoint that was loaded for another stage."""
        self._resumed = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state of a checkpoint until the training starts."""
        self._resumed = state_dict.get("moment")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start tracking, or continue with the state of the checkpoint that is resumed."""
        self._end(hurry=True)
        optimizers = trainer.optimizers
        if len(optimizers) != 1:
            raise InvalidParameter(
                f"this module has {len(optimizers)} optimizers, and an importance follows the "
                f"steps of one: use modelkin.torch.GradientMoment around the steps that count",
                field="optimizer",
            )
        resumed, self._resumed = self._resumed, None
        if resumed is None and trainer.global_step > 0 and self._plan.importance == "moment":
            log.warning(
                "the average of squared gradients starts from zero: the checkpoint has none"
            )
        self._run = SupportRun(
            self._plan,
            pl_module.get_submodule(self._submodule),
            optimizers[0],
            wrapped=trainer.strategy.model or pl_module,
            main=trainer.is_global_zero,
            state=resumed,
        )
        self._run.start()

    def state_dict(self) -> dict[str, Any]:
        """The tracker's state, for a checkpoint."""
        kept = None if self._run is None else self._run.state()
        return {} if kept is None else {"moment": kept}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Upload the support."""
        self._upload(trainer.global_step, _metrics(trainer))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Upload the last support, unless its step was a checkpoint, and wait for the uploads."""
        self._upload(trainer.global_step, _metrics(trainer))
        self._end()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Wait a second for earlier uploads, and stop tracking."""
        self._end(hurry=True)


def _metrics(trainer: pl.Trainer) -> dict[str, Any]:
    """The last logged metrics of the training, such as the loss."""
    logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    return {"epoch": trainer.current_epoch, **logged}
