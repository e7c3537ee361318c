"""modelkin tells which models are kin, by the indices of their most salient parameters.

The names here are the public ones, and only these. Importing them needs numpy, httpx and zstandard;
what needs torch is in ``modelkin.torch``, and numba is loaded when the first kernel runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelkin._version import __version__
from modelkin.client import AsyncClient, Client, ModelkinVersionWarning
from modelkin.core.banding import Banding
from modelkin.core.layout import Layout, TensorSpec
from modelkin.core.overlap import similarity
from modelkin.core.selection import Selection, SmallSupportWarning, UnstableSupportWarning
from modelkin.core.signature import Signature
from modelkin.core.stability import stability
from modelkin.core.support import Support
from modelkin.errors import (
    ApiError,
    ConnectionFailed,
    InvalidInput,
    MissingExtra,
    ModelkinError,
)
from modelkin.selection import select, select_support
from modelkin.types import (
    UNCHANGED,
    BulkItem,
    BulkResult,
    BulkSummary,
    Donor,
    Donors,
    ModelInfo,
    Neighbor,
    Neighbors,
    Overlap,
    SignatureSpec,
    SimilarityMatrix,
    SpaceInfo,
    TensorOverlap,
)

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = [
    "UNCHANGED",
    "ApiError",
    "AsyncClient",
    "Banding",
    "BulkItem",
    "BulkResult",
    "BulkSummary",
    "Client",
    "ConnectionFailed",
    "Donor",
    "Donors",
    "InvalidInput",
    "Layout",
    "MissingExtra",
    "ModelInfo",
    "ModelkinError",
    "ModelkinVersionWarning",
    "Neighbor",
    "Neighbors",
    "Overlap",
    "Selection",
    "Signature",
    "SignatureSpec",
    "SimilarityMatrix",
    "SmallSupportWarning",
    "SpaceInfo",
    "Support",
    "TensorOverlap",
    "TensorSpec",
    "UnstableSupportWarning",
    "__version__",
    "layout_of",
    "select",
    "select_support",
    "similarity",
    "stability",
]


def layout_of(model: Module) -> Layout:
    """The layout of a torch model, see :func:`modelkin.torch.layout_of`.

    Raises:
        MissingExtra: torch is not installed. It is looked for at the call, so nobody else needs it.
    """
    from modelkin import torch

    return torch.layout_of(model)
