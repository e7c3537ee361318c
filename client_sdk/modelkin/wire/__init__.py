"""The network formats of supports, deltas, signatures, sketches and cells of shards.

``docs/wire-format.md`` is the specification. Bytes come in and value objects go out, and back. No
input is trusted: what a header declares is checked before memory of that size is allocated. This
package never speaks HTTP and never imports torch.
"""

from __future__ import annotations

from modelkin.core.codecs.frames import MAX_WINDOW
from modelkin.wire.binary import (
    decode_delta,
    decode_raw,
    decode_roaring,
    decode_signature,
    decode_sketch,
    decode_support,
    encode_delta,
    encode_raw,
    encode_roaring,
    encode_signature,
    encode_sketch,
    encode_support,
)
from modelkin.wire.cell import (
    CellHeader,
    Kind,
    Sealing,
    cell_bytes,
    decode_cell,
    encode_cell,
    read_cell_header,
)
from modelkin.wire.json import (
    delta_from_json,
    delta_to_json,
    signature_from_json,
    signature_to_json,
    support_from_json,
    support_json_pieces,
    support_to_json,
)
from modelkin.wire.media import (
    count_added,
    count_indices,
    dump_signature,
    dump_support,
    load_delta,
    load_either,
    load_json_delta,
    load_signature,
    load_support,
)
from modelkin.wire.types import (
    CELL,
    DELTA,
    DELTA_TYPES,
    JSON,
    RAW,
    ROARING,
    SIGNATURE,
    SIGNATURE_TYPES,
    SKETCH,
    SUPPORT,
    SUPPORT_TYPES,
)

__all__ = [
    "CELL",
    "CellHeader",
    "DELTA",
    "DELTA_TYPES",
    "JSON",
    "Kind",
    "MAX_WINDOW",
    "RAW",
    "ROARING",
    "SIGNATURE",
    "SIGNATURE_TYPES",
    "SKETCH",
    "SUPPORT",
    "SUPPORT_TYPES",
    "Sealing",
    "cell_bytes",
    "count_added",
    "count_indices",
    "decode_cell",
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
    "encode_cell",
    "encode_delta",
    "encode_raw",
    "encode_roaring",
    "encode_signature",
    "encode_sketch",
    "encode_support",
    "load_delta",
    "load_either",
    "load_json_delta",
    "load_signature",
    "load_support",
    "read_cell_header",
    "signature_from_json",
    "signature_to_json",
    "support_from_json",
    "support_json_pieces",
    "support_to_json",
]
