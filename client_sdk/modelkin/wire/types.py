"""The names of the media types."""

from __future__ import annotations

__all__ = [
    "CELL",
    "PATCH",
    "PATCH_TYPES",
    "JSON",
    "NPY",
    "RAW",
    "ROARING",
    "SAFETENSORS",
    "SIGNATURE",
    "SIGNATURE_TYPES",
    "SKETCH",
    "SUBSPACE",
    "SUBSPACE_TYPES",
    "SUPPORT",
    "SUPPORT_TYPES",
]

SUPPORT = "application/vnd.modelkin.support"
PATCH = "application/vnd.modelkin.delta"
SUBSPACE = "application/vnd.modelkin.subspace"
NPY = "application/x-npy"
SIGNATURE = "application/vnd.modelkin.signature"
CELL = "application/vnd.modelkin.cell"
SKETCH = "application/vnd.modelkin.sketch"
ROARING = "application/vnd.roaring"
RAW = "application/octet-stream"
SAFETENSORS = "application/vnd.safetensors"
JSON = "application/json"

SUPPORT_TYPES = (SUPPORT, ROARING, RAW, JSON)
"""The media types of a support, the preferred one first."""

SIGNATURE_TYPES = (SIGNATURE, JSON)
"""The media types of a signature, the preferred one first."""

PATCH_TYPES = (PATCH, JSON)
"""The media types of a delta, the preferred one first."""

SUBSPACE_TYPES = (SUBSPACE, NPY, JSON)
"""The media types of a data subspace, the preferred one first."""
