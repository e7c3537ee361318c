"""What is derived from a support and stored beside it: signature, band values, counts by tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.catalog.repositories import tensor_counts
from app.index import stop_list_repository
from app.index.banding import filtered_support, minhash_bytes, signature_bytes
from app.infra.db.database import Reader
from app.spaces.layout_repository import tensor_sizes
from app.spaces.records import SpaceRecord
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport

__all__ = ["Derived", "SpaceState", "derived", "space_state"]


@dataclass(frozen=True, slots=True)
class SpaceState:
    """A space with what its supports' data are computed from.

    Attributes:
        stop_list: None without one, or where it is damaged.
        sizes: of the tensors of its layout, shape ``(tensors,)``; None without one.
    """

    space: SpaceRecord
    stop_list: Support | None
    sizes: npt.NDArray[np.uint64] | None


@dataclass(frozen=True, slots=True)
class Derived:
    """What is computed from a support; ``band_values`` under the stop-list in force."""

    signature: bytes
    band_values: bytes | None
    tensor_counts: bytes | None


def derived(of: SpaceState, support: Support) -> Derived:
    """Compute what is stored beside a support."""
    spec, banded = of.space.signature, None
    if of.stop_list is not None:
        banded = minhash_bytes(filtered_support(support, of.stop_list), spec)
    signature = signature_bytes(support.signature(spec.num_perm, spec.seed, spec.scheme))
    return Derived(signature, banded, tensor_counts.encode(of.space, of.sizes, support.indices))


def space_state(session: Reader, space: SpaceRecord) -> SpaceState:
    """A space with its stop-list; without one whose bytes are damaged."""
    sizes = tensor_sizes(session, space)
    if space.stop_list is None:
        return SpaceState(space, None, sizes)
    data = stop_list_repository.get_indices(session, space.id, space.banding_version)
    try:
        return SpaceState(space, None if data is None else Support.from_bytes(data), sizes)
    except InvalidSupport:
        return SpaceState(space, None, sizes)
