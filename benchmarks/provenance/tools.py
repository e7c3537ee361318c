"""Tools that say whether two models are kin, from files on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from benchmarks.provenance.pairs import Pair, models_of
from benchmarks.provenance.scores import Values, Verdicts, decided
from modelkin import ModelkinError
from modelkin.checkpoints import fingerprint, open_checkpoint
from modelkin.core.fingerprints.anatomy import anatomy

__all__ = ["Answers", "Cosine", "Costs", "Fingerprints", "Tool"]

COSINE: Final = 0.5
"""The cosine beyond which two models are called kin: no convention names one."""
MODELKIN: Final = "modelkin"
WHOLE: Final = "cosine"
MATRICES: Final = "cosine, mean of matrices"

Read = TypeVar("Read")


@dataclass(slots=True)
class Costs:
    """What a tool takes for each model.

    Attributes:
        seconds: processor time to read a model, and to make what is kept of it.
        kept: bytes that the tool needs of a model to compare it again.
        unread: why a model could not be read.
    """

    seconds: dict[Path, float] = field(default_factory=dict)
    kept: dict[Path, int] = field(default_factory=dict)
    unread: dict[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answers:
    """What a tool says of pairs.

    Attributes:
        verdicts: by each of its rules; that of its own default first.
        values: what rules with a threshold decide by; None where there is no answer.
        costs: what its reading takes.
    """

    verdicts: Mapping[str, Verdicts]
    values: Mapping[str, Values]
    costs: Costs


class Tool(Protocol):
    """What answers about pairs."""

    def answers(self, pairs: Sequence[Pair]) -> Answers:
        """Read the models, and compare those of each pair."""


class Fingerprints:
    """Line fingerprints, with all defaults."""

    def answers(self, pairs: Sequence[Pair]) -> Answers:
        """Compare fingerprints: kin are those in whose anatomy the other model is named."""
        reader = partial(fingerprint, threads=1)
        reader(pairs[0].first)  # compiles what is compiled once
        held, costs = _read(models_of(pairs), reader)
        costs.kept = {model: len(each.to_bytes()) for model, each in held.items()}
        verdicts = [
            bool(anatomy(held[pair.first], {"other": held[pair.second]}).parents)
            if pair.first in held and pair.second in held
            else None
            for pair in pairs
        ]
        return Answers({MODELKIN: verdicts}, {}, costs)


class Cosine:
    """The cosine of the tensors that have equal names and shapes.

    Its value is that of all of them as one vector. Beside it is the mean over matrices, by their
    sizes, which vectors of large values do not deceive.
    """

    def answers(self, pairs: Sequence[Pair]) -> Answers:
        """Compare tensors; pairs without tensors in common have no answer."""
        sizes, costs = _read(models_of(pairs), lambda model: _bytes(_tensors(model)))
        costs.kept = sizes
        found = [
            _cosines(pair) if {pair.first, pair.second} <= {*sizes} else None for pair in pairs
        ]
        whole = [each and each[0] for each in found]
        means = [each and each[1] for each in found]
        values: dict[str, Values] = {WHOLE: whole, MATRICES: means}
        return Answers(
            {name: decided(each, COSINE) for name, each in values.items()}, values, costs
        )


Floats = npt.NDArray[np.float32]
Tensors = dict[str, Floats]


def _read(models: Sequence[Path], reader: Callable[[Path], Read]) -> tuple[dict[Path, Read], Costs]:
    """What is kept of each model that can be read, and what that takes."""
    held, costs = dict[Path, Read](), Costs()
    for model in models:
        begin = time.process_time()
        try:
            held[model] = reader(model)
        except ModelkinError as error:
            costs.unread[model] = str(error)
        costs.seconds[model] = time.process_time() - begin
    return held, costs


@lru_cache(maxsize=4)
def _tensors(model: Path) -> Tensors:
    return {
        each.name: each.part(0, each.size).reshape(each.shape).astype(np.float32)
        for each in open_checkpoint(model).tensors
    }


def _bytes(tensors: Tensors) -> int:
    return sum(values.nbytes for values in tensors.values())


def _cosines(pair: Pair) -> tuple[float, float] | None:
    """Of all tensors as one vector, and the mean over matrices; None without any in common."""
    first, second = _tensors(pair.first), _tensors(pair.second)
    aligned = [name for name in first if name in second and first[name].shape == second[name].shape]
    products = np.array([_products(first[name], second[name]) for name in aligned])
    if not aligned:
        return None
    sizes = np.array([first[name].size if first[name].ndim > 1 else 0 for name in aligned])
    cosines = _ratio(products)
    mean = float((cosines * sizes).sum() / sizes.sum()) if sizes.any() else float(cosines.mean())
    return float(_ratio(products.sum(axis=0))), mean


def _products(one: Floats, other: Floats) -> tuple[float, float, float]:
    """Their inner product, and that of each with itself."""
    a, b = one.ravel().astype(np.float64), other.ravel().astype(np.float64)
    return float(a @ b), float(a @ a), float(b @ b)


def _ratio(products: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    product, one, other = np.moveaxis(products, -1, 0)
    ratio: npt.NDArray[np.float64] = product / np.maximum(np.sqrt(one * other), 1e-30)
    return ratio
