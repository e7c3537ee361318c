"""Small modules and trainers of Lightning; apart, since importing it takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

__all__ = ["Module", "Twins", "fit", "float16_on_the_cpu", "pl"]


class Module(pl.LightningModule):
    """A classifier.

    Args:
        net: the network.
        optimizer: of all its parameters.
    """

    def __init__(self, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.net = net
        self._optimizer = optimizer

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = batch
        loss = cross_entropy(self.net(inputs), targets)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        return self._optimizer


class Twins(pl.LightningModule):
    """A module that trains with two optimizers by hand, as adversaries do."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.net = net
        self.automatic_optimization = False

    def training_step(self, batch: Any) -> None:
        raise AssertionError("it is refused before")

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(layer.parameters(), 0.1) for layer in (self.net[0], self.net[2])]


def fit(
    module: pl.LightningModule,
    examples: TensorDataset,
    folder: Path,
    callback: pl.Callback,
    *,
    resume: Path | None,
    save_weights_only: bool,
    **options: Any,
) -> pl.Trainer:
    """Steps each over all examples in two halves; checkpoints every three of them."""
    saving = pl.callbacks.ModelCheckpoint(
        folder,
        filename="{step}",
        every_n_train_steps=3,
        save_top_k=-1,
        save_weights_only=save_weights_only,
    )
    usual: dict[str, Any] = {
        "max_steps": 6,
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accumulate_grad_batches": 2,
        "log_every_n_steps": 1,
    }
    run = pl.Trainer(callbacks=[saving, callback], **(usual | options))
    run.fit(module, DataLoader(examples, batch_size=len(examples) // 2), ckpt_path=resume)
    return run


def float16_on_the_cpu() -> Any:
    """The plugin that scales losses, which Lightning itself offers on GPUs alone."""
    return pl.plugins.MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
