"""Names of the media types."""

from __future__ import annotations

from modelkin.core.codecs.delta import DELTA

__all__ = [
    "DELTA_TYPES",
    "JSON",
    "RAW",
    "ROARING",
    "SIGNATURE",
    "SIGNATURE_TYPES",
    "SUPPORT",
    "SUPPORT_TYPES",
]


SUPPORT = "application/vnd.modelkin.support"


ROARING = "application/vnd.roaring"


RAW = "application/octet-stream"


JSON = "application/json"


SIGNATURE = "application/vnd.modelkin.signature"


SUPPORT_TYPES = (SUPPORT, ROARING, RAW, JSON)
"""The media types of a support, the preferred one first."""


SIGNATURE_TYPES = (SIGNATURE, JSON)
"""The media types of a signature, the preferred one first."""


DELTA_TYPES = (DELTA, JSON)
"""The media types of a delta, the preferred one first."""
