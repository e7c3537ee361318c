"""Data that are derived from a support and stored beside it: signature, counts by tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.models.catalog.repositories import tensor_counts
from app.models.index.banding import signature_bytes
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.layouts import tensor_sizes
from modelkin.core.support import Support

__all__ = ["Derived", "SpaceState", "derive", "space_state"]


@dataclass(frozen=True, slots=True)
class SpaceState:
    """A space, with the data from which its supports' derived data are computed.

    Attributes:
        sizes: the sizes of its layout's tensors, shape ``(tensors,)``; None without a layout.
    """

    space: SpaceRecord
    sizes: npt.NDArray[np.uint64] | None


@dataclass(frozen=True, slots=True)
class Derived:
    """The derived data of a support."""

    signature: bytes
    tensor_counts: bytes | None


def derive(of: SpaceState, support: Support) -> Derived:
    """Compute the derived data of a support."""
    spec = of.space.signature
    signature = signature_bytes(support.signature(spec.num_perm, spec.seed, spec.scheme))
    return Derived(signature, tensor_counts.encode(of.space, of.sizes, support.indices))


def space_state(session: Reader, space: SpaceRecord) -> SpaceState:
    """A space with the sizes of its tensors."""
    return SpaceState(space, tensor_sizes(session, space))
