"""Rotated residual streams: what inner products say of networks that lines cannot find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.inner_products import Points, inner_products, points_of_tensor
from modelkin.core.fingerprints.matrices import part_of
from modelkin.core.fingerprints.tensor_signatures import kappa_of
from studies.cells import Figures
from studies.lines.networks.architecture import Architecture
from studies.lines.networks.images import RESNET, VIT
from studies.lines.networks.recurrent import LSTM
from studies.lines.networks.texts import BERT, GPT2, LLAMA, MOE, T5
from studies.lines.trained import Trained
from studies.lines.zoo import Tensors, Zoo
from studies.sections.paragraphs import table

__all__ = ["GAINS", "compared", "rotated", "rotation_figures", "section"]

Floats = npt.NDArray[np.float32]

GAINS: Final = 0.25
"""The spread of gains, by their logarithm: as of SmolLM2-135M and MiniLM-L6, .1 to .4."""
_ARCHITECTURES: Final = (LLAMA, BERT, GPT2, T5, MOE, VIT, LSTM, RESNET)
_CHILDREN: Final = 3
"""The first three: light, fine-tune and heavy."""


_TITLES: Final = {
    "rotated": "base",
    "gains": "with gains",
    "light": "light",
    "fine-tune": "fine-tune",
    "heavy": "heavy",
    "stranger": "stranger",
}
_ABOUT: Final = f"""\
Lines find nothing of a model whose residual stream is rotated. Inner products of a layer's lines
are left, and `modelkin.checkpoints.inner_products` compares them: here every matrix is rotated on
its shorter side, after it was trained on, or had gains of exp(N(0, {GAINS})) folded in. A cell has
the mean kappa of tensors of one name and, in brackets, how many of those that can be compared have
a like at .25 or more. It is evidence and no verdict. Of [real files](checkpoints.md), 90 matrices
of a rotated model are alike and none of a stranger, but word vectors of strangers are, since words
keep their meaning: tables of tokens are left out. Where hidden units stand in another order,
nothing is left.
"""


def rotation_figures(
    zoo: Zoo,
    architectures: Iterable[Architecture] = _ARCHITECTURES,
    longest: int | None = None,
) -> Figures:
    """What is left of each architecture's children and strangers when they are rotated.

    Args:
        zoo: has their weights, or gets them.
        architectures: these.
        longest: as of :class:`Trained`.
    """
    figures: Figures = {}
    for architecture in architectures:
        trained = Trained(architecture, zoo, longest)
        base = trained.base()
        others = {"rotated": base, "gains": _with_gains(base)}
        children = islice(trained.children(), _CHILDREN)  # so no other is trained
        others |= {child.name: child.tensors for child in children}
        others["stranger"] = trained.base(1)
        for name, tensors in others.items():
            found = compared(rotated(tensors), base)
            figures[architecture.name] = figures.get(architecture.name, {}) | {
                f"{name}, {key}": value for key, value in found.items()
            }
    return figures


def section(figures: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """What the cell shows."""
    yield _ABOUT
    yield table(
        ("architecture", *(_TITLES.values())),
        [(name, *(_cell(row, kind) for kind in _TITLES)) for name, row in figures.items()],
    )


def _cell(row: Mapping[str, float], kind: str) -> str:
    alike, of = row[f"{kind}, alike"], row[f"{kind}, compared"]
    return f"{row[f'{kind}, kappa']:.2f} ({alike:.0f} of {of:.0f})"


def compared(child: Tensors, base: Tensors) -> dict[str, float]:
    """How many tensors are compared and alike, and the mean and greatest kappa of equal names."""
    first, second = _points(child), _points(base)
    found = inner_products(first.values(), second.values())
    kappas = [
        kappa_of(each.signature, second[name].signature, each.points)
        for name, each in first.items()
        if name in second and each.points == second[name].points
    ]
    return {
        "compared": found.compared,
        "alike": len(found.alike),
        "elsewhere": sum(each.tensor != each.other for each in found.alike),
        "kappa": float(np.mean(kappas)) if kappas else 0.0,
        "greatest": max(kappas, default=0.0),
    }


def rotated(tensors: Tensors) -> Tensors:
    """Each matrix with its shorter side rotated, as a residual stream of that width is."""
    turned = {}
    for name, values in tensors.items():
        turned[name] = values
        if values.ndim == 2 and min(values.shape) >= 64:
            width = min(values.shape)
            rotation = _rotation(width)
            turned[name] = values @ rotation if values.shape[1] == width else rotation @ values
    return turned


def _rotation(width: int) -> Floats:
    normal = np.random.default_rng(width).standard_normal((width, width))
    rotation: Floats = np.linalg.qr(normal)[0].astype(np.float32)
    return rotation


def _with_gains(tensors: Tensors) -> Tensors:
    """Gains of norms in the columns of tall matrices, which read the stream."""
    draw = np.random.default_rng(0)
    return {
        name: values * np.exp(GAINS * draw.standard_normal(values.shape[1], np.float32))
        if values.ndim == 2 and values.shape[0] > values.shape[1]
        else values
        for name, values in tensors.items()
    }


def _points(tensors: Tensors) -> dict[str, Points]:
    found = (points_of_tensor(k, v.shape, part_of(v)) for k, v in tensors.items())
    return {each.name: each for each in found if each is not None}
