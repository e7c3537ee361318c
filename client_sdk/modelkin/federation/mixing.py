"""One model of two, the cluster's and the common one: kept, mixed, or chosen by a client.

A share s stands for all of them: the model is ``s * cluster + (1 - s) * common``, tensor by tensor.
Share 1 keeps the cluster's model and share 0 the common one, both to the bit.

Sources: model interpolation and the better of several models, Mansour et al., "Three approaches
for personalization with applications to federated learning", 2020, sections 3 and 5; a mix of a
stated share, Deng et al., "Adaptive personalized federated learning", 2020, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter
from modelkin.federation.layouts import other_layout

__all__ = ["Loss", "Mixed", "Mixing", "Tensors", "Wants", "mix"]

Tensors = Mapping[str, npt.NDArray[Any]]
"""A model's tensors by name."""

Loss = Callable[[Tensors], float]
"""A client's loss of a model, on samples that it does not train on."""

Wants = Literal["cluster", "common", "both"]
"""The models that a client needs."""


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """The model that a client goes on with.

    Attributes:
        tensors: the tensors by name, with the dtypes of the cluster's model.
        share: the share of the cluster's model.
        losses: the client's loss by share, where it chose among several.
    """

    tensors: Tensors
    share: float
    losses: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Mixing:
    """A client's way to make one model of two.

    Attributes:
        shares: shares of the cluster's model, 0 to 1. Of several, the one of least loss is taken,
            and of equal losses the earlier one.
    """

    shares: tuple[float, ...]

    @classmethod
    def of(cls, share: Any) -> Mixing:
        """A mix of one share, or the choice among several.

        Raises:
            InvalidParameter: there is no share, one is not 0 to 1, or one occurs twice.
        """
        several = isinstance(share, tuple | list)
        shares = tuple(_check_share(each) for each in (share if several else (share,)))
        if not shares or len(set(shares)) < len(shares):
            raise InvalidParameter(
                f"share must be a number or several different ones, not {share!r}", field="share"
            )
        return cls(shares)

    @property
    def chooses(self) -> bool:
        """Whether a loss decides."""
        return len(self.shares) > 1

    @property
    def wants(self) -> Wants:
        """The models that are needed: one of them alone is not mixed."""
        if self.shares == (1.0,):
            return "cluster"
        return "common" if self.shares == (0.0,) else "both"

    def model(self, cluster: Tensors, common: Tensors, loss: Loss | None = None) -> Mixed:
        """Make one model of two.

        Args:
            cluster: the model of the client's cluster.
            common: the model of all, with the same names, shapes and dtypes.
            loss: needed to choose among several shares.

        Raises:
            InvalidParameter: the models are not of one layout, or not of numbers; several shares
                are without a loss, or no loss is finite.
        """
        _check_layouts(cluster, common)
        if not self.chooses:
            (share,) = self.shares
            return Mixed(mix(cluster, common, share), share, {})
        if loss is None:
            raise InvalidParameter("give a loss to choose by among several shares", field="loss")
        best: Mixed | None = None
        losses: dict[float, float] = {}
        for share, tensors in self._candidates(cluster, common):
            losses[share] = found = float(loss(tensors))
            if math.isfinite(found) and (best is None or found < losses[best.share]):
                best = Mixed(tensors, share, losses)
        if best is None:
            raise InvalidParameter(f"no share has a finite loss: {losses}", field="loss")
        return best

    def _candidates(self, cluster: Tensors, common: Tensors) -> Iterator[tuple[float, Tensors]]:
        for share in self.shares:
            yield share, mix(cluster, common, share)


def mix(cluster: Tensors, common: Tensors, share: float) -> Tensors:
    """``share * cluster + (1 - share) * common`` in float64, rounded once; 1 and 0 are exact.

    Args:
        cluster: a model, whose dtypes the mix has.
        common: another one of the same layout.
        share: 0 to 1.
    """
    if share in (0.0, 1.0):
        return cluster if share else common
    return {name: _mixed(own, common[name], share) for name, own in cluster.items()}


def _mixed(own: npt.NDArray[Any], other: npt.NDArray[Any], share: float) -> npt.NDArray[Any]:
    found = np.multiply(own, share, dtype=np.float64)
    found += np.multiply(other, 1 - share, dtype=np.float64)
    return np.asarray((found if own.dtype.kind == "f" else np.rint(found)).astype(own.dtype))


def _check_layouts(cluster: Tensors, common: Tensors) -> None:
    """Raise :class:`InvalidParameter` unless models are of numbers, and of one layout."""
    why = other_layout(common, cluster)
    for name, own in ({} if why else cluster).items():
        if own.dtype != common[name].dtype:
            why = f"its array {name[:80]!r} is of {common[name].dtype}, not of {own.dtype}"
    if why is not None:
        raise InvalidParameter(
            f"the common model does not fit the cluster's: {why}", field="common"
        )


def _check_share(share: Any) -> float:
    if isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1:
        return float(share)
    raise InvalidParameter(f"share must be 0 to 1, not {share!r}", field="share")
