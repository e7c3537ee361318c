"""Every form in which a support, a delta of one, or a signature crosses the network.

``docs/wire-format.md`` is the specification. Owns bytes in and value objects out, in both
directions, and believes nothing it reads: what a header declares is checked before anything of that
size is allocated. It never speaks HTTP and never imports torch.
"""

from __future__ import annotations

from modelkin.core.codecs.delta import DELTA, decode_delta, encode_delta
from modelkin.core.codecs.frames import MAX_WINDOW
from modelkin.core.codecs.roaring import decode_raw, decode_roaring, encode_raw, encode_roaring
from modelkin.core.codecs.signature import decode_signature, encode_signature
from modelkin.core.codecs.sketch import SKETCH, decode_sketch, encode_sketch
from modelkin.core.codecs.support import decode_support, encode_support
from modelkin.wire.json import (
    delta_from_json,
    delta_to_json,
    signature_from_json,
    signature_to_json,
    support_from_json,
    support_to_json,
)
from modelkin.wire.media import (
    count_added,
    count_indices,
    dump_signature,
    dump_support,
    load_delta,
    load_either,
    load_signature,
    load_support,
)
from modelkin.wire.types import (
    DELTA_TYPES,
    JSON,
    RAW,
    ROARING,
    SIGNATURE,
    SIGNATURE_TYPES,
    SUPPORT,
    SUPPORT_TYPES,
)

__all__ = [
    "DELTA",
    "DELTA_TYPES",
    "JSON",
    "MAX_WINDOW",
    "RAW",
    "ROARING",
    "SIGNATURE",
    "SIGNATURE_TYPES",
    "SKETCH",
    "SUPPORT",
    "SUPPORT_TYPES",
    "count_added",
    "count_indices",
    "decode_delta",
    "decode_raw",
    "decode_roaring",
    "decode_signature",
    "decode_sketch",
    "decode_support",
    "delta_from_json",
    "delta_to_json",
    "dump_signature",
    "dump_support",
    "encode_delta",
    "encode_raw",
    "encode_roaring",
    "encode_signature",
    "encode_sketch",
    "encode_support",
    "load_delta",
    "load_either",
    "load_signature",
    "load_support",
    "signature_from_json",
    "signature_to_json",
    "support_from_json",
    "support_to_json",
]
