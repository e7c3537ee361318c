"""Trainings of small models of transformers, on one thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from benchmarks.provenance.architectures import Architecture
from benchmarks.provenance.text import (
    MASK,
    PAD,
    TOKENS,
    batch,
    save_tokenizer,
    transformers,
)

__all__ = ["Course", "adapt", "classify", "embed", "stored_class", "train", "transformers", "tune"]

RANK: Final = 8
CLASSES: Final = 4
_MASKED: Final = 0.15
_TEMPERATURE: Final = 0.05

Loss = Callable[[Any, Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, slots=True)
class Course:
    """How a model is trained.

    Attributes:
        steps: of the optimiser, 384 tokens each.
        rate: the learning rate of AdamW.
        half: of the text, 0 or 1.
        seed: of the batches, and of initial weights.
    """

    steps: int
    rate: float
    half: int = 0
    seed: int = 0


def train(architecture: Architecture, folder: Path, course: Course) -> Path:
    """Train a model from its initial weights on; returns its folder."""
    torch.manual_seed(course.seed)
    settings = dict(architecture.settings) | {"pad_token_id": PAD}
    config = transformers.AutoConfig.for_model(architecture.kind, vocab_size=TOKENS, **settings)
    return _fit(stored_class(config).from_config(config), folder, course)


def tune(source: Path, folder: Path, course: Course) -> Path:
    """Train a stored model further."""
    config = transformers.AutoConfig.from_pretrained(source)
    return _fit(stored_class(config).from_pretrained(source), folder, course, config.vocab_size)


def adapt(source: Path, folder: Path, course: Course) -> Path:
    """Train a LoRA of rank 8 of all matrices of the layers, and merge it."""
    torch.manual_seed(course.seed)
    config = transformers.AutoConfig.from_pretrained(source)
    model = stored_class(config).from_pretrained(source).requires_grad_(False)
    adapted = [
        module
        for name, module in model.base_model.named_modules()
        if any(char.isdigit() for char in name) and _has_matrix(module)
    ]
    for module in adapted:
        parametrize.register_parametrization(module, "weight", _LowRank(module.weight))
    _descend(model, course, _loss(config))
    for module in adapted:
        parametrize.remove_parametrizations(module, "weight")
    return _saved(model, folder)


def classify(source: Path, folder: Path, course: Course) -> Path:
    """Exchange the head for one of four classes, and train all of it."""
    torch.manual_seed(course.seed)
    found = transformers.AutoModelForSequenceClassification
    model = found.from_pretrained(source, num_labels=CLASSES, pad_token_id=PAD)
    return _fit(model, folder, course, loss=_loss_of_classes)


def embed(source: Path, folder: Path, course: Course) -> Path:
    """Train a model of sentences further: twice read, by dropout, each is nearest to itself."""
    torch.manual_seed(course.seed)
    model = transformers.AutoModel.from_pretrained(source)
    _descend(model.train(), course, _loss_of_sentences, source)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


class _LowRank(nn.Module):
    """A weight plus a product of two factors, the second of which begins at zero."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.a = nn.Parameter(torch.randn(RANK, columns) / RANK)
        self.b = nn.Parameter(torch.zeros(rows, RANK))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.b @ self.a


def _has_matrix(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    is_matrix = isinstance(weight, nn.Parameter) and weight.dim() == 2
    return is_matrix and not isinstance(module, nn.Embedding)


def stored_class(config: Any) -> Any:
    """The class of transformers that trains a model of this configuration."""
    return (
        transformers.AutoModelForMaskedLM
        if config.model_type == "bert"
        else transformers.AutoModelForCausalLM
    )


def _loss(config: Any) -> Loss:
    return _loss_of_masked if config.model_type == "bert" else _loss_of_next


def _loss_of_next(model: Any, tokens: Tensor, _: torch.Generator) -> Tensor:
    loss: Tensor = model(input_ids=tokens, labels=tokens).loss
    return loss


def _loss_of_masked(model: Any, tokens: Tensor, draw: torch.Generator) -> Tensor:
    masked = torch.rand(tokens.shape, generator=draw) < _MASKED
    labels = tokens.masked_fill(~masked, -100)
    loss: Tensor = model(input_ids=tokens.masked_fill(masked, MASK), labels=labels).loss
    return loss


def _loss_of_classes(model: Any, tokens: Tensor, _: torch.Generator) -> Tensor:
    loss: Tensor = model(input_ids=tokens, labels=tokens[:, 0] % CLASSES).loss
    return loss


def _loss_of_sentences(model: Any, tokens: Tensor, _: torch.Generator) -> Tensor:
    """As in SimCSE."""
    both = model(input_ids=tokens.repeat(2, 1)).last_hidden_state.mean(1)
    one, other = nn.functional.normalize(both, dim=1).chunk(2)
    return nn.functional.cross_entropy(one @ other.T / _TEMPERATURE, torch.arange(len(one)))


def _descend(model: Any, course: Course, loss_of: Loss, own: Path | None = None) -> None:
    draw = torch.Generator().manual_seed(course.seed)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, course.rate)
    for _ in range(course.steps):
        optimizer.zero_grad()
        loss_of(model, batch(course.half, draw, own), draw).backward()
        optimizer.step()


def _fit(
    model: Any, folder: Path, course: Course, tokens: int = TOKENS, loss: Loss | None = None
) -> Path:
    _descend(model.train(), course, loss or _loss(model.config))
    return _saved(model, folder, tokens)


def _saved(model: Any, folder: Path, tokens: int = TOKENS) -> Path:
    model.save_pretrained(folder)
    save_tokenizer(folder, tokens)
    return folder
