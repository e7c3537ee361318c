"""Networks that read images: classifiers, and two that take noise out of them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate, mse_loss, relu, silu

from studies.lines.material import digits
from studies.lines.networks.architecture import Architecture, Batch
from studies.lines.networks.transformers import of_transformers

__all__ = ["RESNET", "UNET", "VIT", "classified", "labelled"]


def labelled(side: int, count: int, draw: np.random.Generator, other: bool) -> Batch:
    """Some images and their labels."""
    images, labels = digits(other, side)
    at = torch.tensor(draw.integers(0, len(labels), count))
    return images[at], labels[at]


def classified(network: Any, batch: Batch) -> Tensor:
    """The cross entropy of a classifier, of torch or of transformers."""
    logits = network(batch[0])
    return cross_entropy(getattr(logits, "logits", logits), batch[1])


def _vit(**sizes: int) -> nn.Module:
    names = {"depth": "num_hidden_layers", "hidden": "intermediate_size"}
    usual: dict[str, Any] = {
        "hidden_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 384,
        "image_size": 32,
        "patch_size": 8,
        "num_channels": 1,
        "num_labels": 10,
    }
    given = usual | {names[key]: size for key, size in sizes.items()}
    return of_transformers("ViTForImageClassification", given)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        inner = relu(self.bn1(self.conv1(images)))
        return relu(self.bn2(self.conv2(inner)) + self.shortcut(images))


class _ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 64, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(_Block(64, 64), _Block(64, 128), _Block(128, 128))
        self.head = nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(relu(self.stem(images))).mean(dim=(2, 3)))
        return logits


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
            return nn.Conv2d(inputs, outputs, 3, stride, padding=1)

        self.enter, self.high = conv(1, 64), conv(64, 64)
        self.down, self.low, self.middle = conv(64, 128, 2), conv(128, 128), conv(128, 128)
        self.up, self.joined, self.leave = conv(128, 64), conv(128, 64), conv(64, 1)

    def forward(self, images: Tensor) -> Tensor:
        high = silu(self.high(silu(self.enter(images))))
        low = silu(self.middle(silu(self.low(silu(self.down(high))))))
        raised = silu(self.up(interpolate(low, scale_factor=2)))
        cleaned: Tensor = self.leave(silu(self.joined(torch.cat([high, raised], dim=1))))
        return cleaned


def _noisy(draw: np.random.Generator, other: bool) -> Batch:
    images, _ = labelled(8, 32, draw, other)
    noise = torch.tensor(draw.standard_normal(images.shape), dtype=torch.float32)
    return images + noise * torch.tensor(draw.uniform(0, 2, (32, 1, 1, 1))).float(), images


VIT: Final = Architecture(
    "ViT",
    "16 patches, width 128, 3 layers",
    _vit,
    lambda draw, other: labelled(32, 32, draw, other),
    classified,
    depth=3,
    layers=r"layers?\.(\d+)\.",
    head=("classifier.weight", "classifier.bias"),
)
RESNET: Final = Architecture(
    "ResNet",
    "batch normalisation, 64 and 128 channels, 7 kernels",
    _ResNet,
    lambda draw, other: labelled(8, 32, draw, other),
    classified,
    head=("head.weight", "head.bias"),
    has_adapters=False,
)
UNET: Final = Architecture(
    "U-Net",
    "takes noise out of digits, 64 and 128 channels, 600 steps",
    _UNet,
    _noisy,
    lambda network, batch: mse_loss(network(batch[0]), batch[1]),
    steps=600,
    has_adapters=False,
)
