"""ResNet-18 and ResNet-50: residual networks for colour images.

Source: He et al., Deep Residual Learning for Image Recognition (2016), table 1; the stride of a
bottleneck is at its 3 x 3 convolution, as in the weights that are published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from torch import Tensor, nn

__all__ = ["resnet18", "resnet50"]

_WIDTHS: Final = (64, 128, 256, 512)
_EXPANSION: Final = 4
"""The factor by which a bottleneck's last convolution widens."""

Branch = Callable[[int, int, int], nn.Sequential]


class Residual(nn.Module):
    """A branch beside a shortcut, added and rectified.

    Args:
        branch: the convolutions.
        shortcut: a projection where the branch changes the shape, or the identity.
    """

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch, self.shortcut = branch, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Images in, images out."""
        total: Tensor = self.branch(x) + self.shortcut(x)
        return total.relu()


def resnet18(classes: int) -> nn.Sequential:
    """Two basic blocks in each of four stages; 11,689,512 parameters with 1,000 classes."""
    return _resnet(_basic, (2, 2, 2, 2), 1, classes)


def resnet50(classes: int) -> nn.Sequential:
    """3, 4, 6 and 3 bottlenecks; 25,557,032 parameters with 1,000 classes."""
    return _resnet(_bottleneck, (3, 4, 6, 3), _EXPANSION, classes)


def _resnet(branch: Branch, depths: tuple[int, ...], expansion: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        *_convolution(3, 64, 7, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        *_stages(branch, depths, expansion),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(_WIDTHS[-1] * expansion, classes),
    )


def _stages(branch: Branch, depths: tuple[int, ...], expansion: int) -> Iterator[Residual]:
    channels = 64
    for stage, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True)):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            wide = width * expansion
            changed = stride > 1 or channels != wide
            shortcut = (
                nn.Sequential(*_convolution(channels, wide, 1, stride=stride))
                if changed
                else nn.Identity()
            )
            yield Residual(branch(channels, width, stride), shortcut)
            channels = wide


def _basic(channels: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        *_convolution(channels, width, 3, stride=stride),
        nn.ReLU(),
        *_convolution(width, width, 3),
    )


def _bottleneck(channels: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        *_convolution(channels, width, 1),
        nn.ReLU(),
        *_convolution(width, width, 3, stride=stride),
        nn.ReLU(),
        *_convolution(width, width * _EXPANSION, 1),
    )


def _convolution(
    channels: int, width: int, side: int, *, stride: int = 1
) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    convolution = nn.Conv2d(channels, width, side, stride=stride, padding=side // 2, bias=False)
    return convolution, nn.BatchNorm2d(width)
