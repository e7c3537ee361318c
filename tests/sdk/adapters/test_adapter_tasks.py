"""Adapters of one task find each other, whatever they began with: by BA, and not by A and B."""

from __future__ import annotations

import warnings
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.numpy import load_file
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn.functional import cross_entropy

import modelkin
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from tests.sdk.adapters.folders import adapter_folder, factors

TASKS, STARTS = 4, 3
WIDTH, RANK, SCALE = 256, 4, 4.0
SHAPES = ((WIDTH, 64), (WIDTH, WIDTH), (10, WIDTH))


def seeded(seed: int) -> torch.Generator:
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def digits() -> tuple[Tensor, Tensor]:
    """Images of digits, normalized, and their labels."""
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).reshape(-1, 64)
    return (images - images.mean()) / images.std(), torch.tensor(found.target)


def pretrained(images: Tensor, labels: Tensor) -> list[Tensor]:
    """The weights of a perceptron that reads digits."""
    generator = seeded(0)
    drawn = [torch.randn(shape, generator=generator) * (2 / shape[1]) ** 0.5 for shape in SHAPES]
    weights = [weight.requires_grad_() for weight in drawn]
    optimizer = torch.optim.Adam(weights, 1e-3)
    for _ in range(10):
        for batch in torch.randperm(len(images), generator=generator).split(64):
            optimizer.zero_grad()
            first, second, last = weights
            hidden = torch.relu(torch.relu(images[batch] @ first.T) @ second.T)
            cross_entropy(hidden @ last.T, labels[batch]).backward()
            optimizer.step()
    return [weight.detach() for weight in weights]


def adapted(weights: list[Tensor], a: list[Tensor], b: list[Tensor], inputs: Tensor) -> Tensor:
    """The outputs of all adapters at once, shape ``(adapters, batch, 10)``."""
    for layer, weight in enumerate(weights):
        low = SCALE * (inputs @ a[layer].transpose(1, 2)) @ b[layer].transpose(1, 2)
        inputs = inputs @ weight.T + low
        inputs = torch.relu(inputs) if layer < 2 else inputs
    return inputs


def trained() -> tuple[list[Tensor], list[Tensor]]:
    """A and B of twelve adapters on permuted labels, each with data and a start of its own."""
    images, labels = digits()
    weights, count = pretrained(images, labels), TASKS * STARTS
    orders = [torch.randperm(10, generator=seeded(100 + task)) for task in range(TASKS)]
    starts = [seeded(1000 + 17 * (n % STARTS) + n // STARTS) for n in range(count)]
    data = [seeded(5000 + 10 * (n // STARTS) + n % STARTS) for n in range(count)]
    own = [torch.randperm(len(images), generator=each)[:900] for each in data]
    a = []
    for _, inner in SHAPES:
        drawn = [torch.rand(RANK, inner, generator=each) * 2 - 1 for each in starts]
        a.append((torch.stack(drawn) * 1.7 / inner**0.5).requires_grad_())
    b = [torch.zeros(count, out, RANK, requires_grad=True) for out, _ in SHAPES]
    optimizer = torch.optim.AdamW([*a, *b], 1e-2, weight_decay=0.01)
    for _ in range(5):
        drawn = [torch.randperm(900, generator=each) for each in data]
        shuffled = [own[n][drawn[n]] for n in range(count)]
        for batch in torch.stack(shuffled).split(50, dim=1):
            targets = torch.stack([orders[n // STARTS][labels[batch[n]]] for n in range(count)])
            outputs = adapted(weights, a, b, images[batch])
            optimizer.zero_grad()
            (count * cross_entropy(outputs.reshape(-1, 10), targets.reshape(-1))).backward()
            optimizer.step()
    return [each.detach() for each in a], [each.detach() for each in b]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folders of the twelve adapters, those of one task behind each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a, b = trained()
    finally:
        torch.set_num_threads(threads)
    root, made = tmp_path_factory.mktemp("adapters"), []
    for number in range(TASKS * STARTS):
        layers = {f"l{n}": (a[n][number].numpy(), b[n][number].numpy()) for n in range(len(SHAPES))}
        fields: dict[str, Any] = {"target_modules": sorted(layers), "lora_alpha": SCALE * RANK}
        made.append(adapter_folder(root / f"{number}", factors(layers), **fields))
    return made


def same_task_auc(supports: list[modelkin.Support]) -> float:
    """How well S separates pairs of one task from pairs of two: 1 for always, .5 for chance."""
    pairs = list(combinations(range(TASKS * STARTS), 2))
    same = [one // STARTS == other // STARTS for one, other in pairs]
    with warnings.catch_warnings():  # of small supports
        warnings.simplefilter("ignore")
        scores = [modelkin.similarity(supports[one], supports[other]) for one, other in pairs]
    return float(roc_auc_score(same, scores))


def flat_factors(folder: Path) -> npt.NDArray[Any]:
    """|A| and |B| of an adapter, which have nothing to say."""
    tensors = load_file(folder / "adapter_model.safetensors")
    flat: npt.NDArray[Any] = np.concatenate([tensor.reshape(-1) for tensor in tensors.values()])
    return np.abs(flat)


def test_adapters_of_one_task_are_kin_by_their_product(folders: list[Path]) -> None:
    """Four tasks, three starts each: |BA| separates the tasks, |A| and |B| do not."""
    products = [select_from_checkpoint(open_checkpoint(folder)) for folder in folders]
    assert {0.1} == {round(support.density, 3) for support in products}
    assert same_task_auc(products) >= 0.9
    by_factors = [modelkin.select_support(flat_factors(folder), fraction=0.1) for folder in folders]
    assert same_task_auc(by_factors) <= 0.8
