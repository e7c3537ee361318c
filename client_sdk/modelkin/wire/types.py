"""The names of the media types."""

from __future__ import annotations

__all__ = [
    "CATALOGUE",
    "CELL",
    "FINGERPRINT",
    "PATCH",
    "JSON",
    "NPY",
    "RAW",
    "ROARING",
    "SAFETENSORS",
    "SIGNATURE",
    "SKETCH",
    "SUBSPACE",
    "SUPPORT",
]

SUPPORT = "application/vnd.modelkin.support"
PATCH = "application/vnd.modelkin.delta"
FINGERPRINT = "application/vnd.modelkin.fingerprint+zstd"
CATALOGUE = "application/vnd.modelkin.catalogue"
SUBSPACE = "application/vnd.modelkin.subspace"
NPY = "application/x-npy"
SIGNATURE = "application/vnd.modelkin.signature"
CELL = "application/vnd.modelkin.cell"
SKETCH = "application/vnd.modelkin.sketch"
ROARING = "application/vnd.roaring"
RAW = "application/octet-stream"
SAFETENSORS = "application/vnd.safetensors"
JSON = "application/json"
