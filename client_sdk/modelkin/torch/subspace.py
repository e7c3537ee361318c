"""Data subspaces of a loader's samples: a bounded number of each class, through an encoder.

Clients compare only if they use the same features: raw pixels of one size, or one frozen encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from modelkin.core.subspaces.fit import fit_subspace as fit
from modelkin.core.subspaces.subspace import Subspace
from modelkin.errors import InvalidParameter
from modelkin.torch.batches import description

__all__ = ["fit_subspace"]

_ALL = -1
"""The class for samples without a label."""


def fit_subspace(
    loader: Iterable[Any],
    *,
    features: nn.Module | Callable[[Tensor], Tensor] | None = None,
    samples: int = 500,
    seed: int = 0,
    labels: bool = True,
    **options: Any,
) -> Subspace:
    """The subspace of a loader's samples, or of their features.

    A random sample of each class is kept while the loader is read once, so memory stays bounded. A
    module runs in evaluation mode, without gradients, where its parameters are, and has its mode
    back afterwards.

    Args:
        loader: yields tensors of shape ``(n, ...)``, or pairs of these and of labels ``(n,)``.
        features: an encoder that makes ``(n, ...)`` of a batch; None for the samples themselves.
        samples: the most samples kept of each class, 1 or more; without labels, of all.
        seed: 0 or more; equal seeds keep the same samples. The noise of ``epsilon`` has a seed from
            the system.
        labels: whether the loader's labels count.
        options: see :func:`modelkin.fit_subspace`.

    Raises:
        InvalidParameter: the loader yields no samples or something else, or features are not a
            tensor of as many rows; else as :func:`modelkin.fit_subspace`.
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise InvalidParameter(f"samples must be 1 or more, not {samples!r}", field="samples")
    encode = _encoder(features)
    reservoir = _Reservoir(samples, np.random.default_rng(seed))
    mode = features.training if isinstance(features, nn.Module) else None
    if isinstance(features, nn.Module):
        features.eval()
    try:
        with torch.no_grad():
            for position, batch in enumerate(loader):
                x, y = _split(batch, position)
                reservoir.add(x, y if labels else None, encode)
    finally:
        if isinstance(features, nn.Module) and mode is not None:
            features.train(mode)
    rows, codes = reservoir.sample()
    if "epsilon" in options and options["epsilon"] is not None and reservoir.dropped:
        raise InvalidParameter(
            f"{reservoir.dropped} samples were left out, and whether one was kept would depend on "
            f"others, which the noise does not hide: raise samples",
            field="samples",
        )
    return fit(rows, codes, **options)


def _encoder(features: nn.Module | Callable[[Tensor], Tensor] | None) -> Callable[[Tensor], Any]:
    if features is None:
        return lambda x: x
    if not isinstance(features, nn.Module):
        return features
    module = features
    first = next(module.parameters(), None)
    if first is None:
        return module
    return lambda x: module(x.to(first.device, first.dtype if x.is_floating_point() else x.dtype))


def _split(batch: Any, position: int) -> tuple[Tensor, Tensor | None]:
    """The samples of a batch, and their labels if it has some."""
    x, y = batch, None
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        x, y = batch
    if not isinstance(x, Tensor) or x.dim() < 2:
        raise InvalidParameter(
            f"batch {position} of the loader is {description(batch)}: it must be a tensor of shape "
            f"(n, ...), or a pair of one and of labels",
            field="loader",
        )
    if y is not None and (not isinstance(y, Tensor) or y.shape != x.shape[:1]):
        raise InvalidParameter(
            f"the labels of batch {position} are {description(y)}, for {len(x)} samples: they must "
            f"be a tensor of shape ({len(x)},)",
            field="loader",
        )
    return x, y


class _Reservoir:
    """A uniform sample of each class (Vitter, Algorithm R); only kept samples are encoded."""

    def __init__(self, most: int, rng: np.random.Generator) -> None:
        self._most, self._rng = most, rng
        self._seen: dict[int, int] = {}
        self._kept: dict[int, list[npt.NDArray[Any]]] = {}
        self.dropped = 0

    def add(self, x: Tensor, y: Tensor | None, encode: Callable[[Tensor], Any]) -> None:
        """Keep and encode some samples of a batch."""
        labels = np.full(len(x), _ALL) if y is None else y.detach().cpu().numpy()
        if labels.dtype.kind not in "iu":
            raise InvalidParameter(f"labels must be integers, not {labels.dtype}", field="labels")
        places = [self._place(int(label)) for label in labels.tolist()]
        chosen = [row for row, place in enumerate(places) if place is not None]
        self.dropped += len(places) - len(chosen)
        if not chosen:
            return
        made = encode(x[chosen])
        if not isinstance(made, Tensor) or made.dim() < 2 or len(made) != len(chosen):
            raise InvalidParameter(
                f"features made {description(made)} of {len(chosen)} samples: it must make a "
                f"tensor of as many rows",
                field="features",
            )
        rows = made.detach().flatten(1).to("cpu", torch.float32).numpy()
        for row, at in zip(rows, chosen, strict=True):
            kept, place = self._kept.setdefault(int(labels[at]), []), places[at]
            if place == len(kept):
                kept.append(row.copy())
            elif place is not None:
                self.dropped += 1
                kept[place] = row.copy()

    def _place(self, label: int) -> int | None:
        """The place for the next sample of a class, or None to drop it."""
        seen = self._seen.get(label, 0)
        self._seen[label] = seen + 1
        if seen < self._most:
            return seen
        place = int(self._rng.integers(seen + 1))
        return place if place < self._most else None

    def sample(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64] | None]:
        """The sample, and its labels if it has some."""
        if not self._kept:
            raise InvalidParameter("the loader yields no samples", field="loader")
        rows = [row for kept in self._kept.values() for row in kept]
        if len({row.shape for row in rows}) > 1:
            raise InvalidParameter("samples have different numbers of features", field="loader")
        labels = [label for label, kept in self._kept.items() for _ in kept]
        codes = None if set(labels) == {_ALL} else np.array(labels, np.int64)
        return np.stack(rows), codes
