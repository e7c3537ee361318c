"""The network formats of supports, patches, signatures, sketches, subspaces, cells and others.

``docs/wire-format.md`` is the specification. A reader makes a value of a body, a writer a body of a
value; the native binary forms are in ``modelkin.core.codecs``. Readers check what a header declares
before they allocate memory of that size. This package knows media types, and neither HTTP nor
torch.
"""

from __future__ import annotations

from modelkin.core.codecs.frames import MAX_WINDOW
from modelkin.wire.binary import (
    decode_catalogue,
    decode_fingerprint,
    decode_patch,
    decode_raw,
    decode_roaring,
    decode_signature,
    decode_sketch,
    decode_support,
    encode_catalogue,
    encode_fingerprint,
    encode_patch,
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
    patch_from_json,
    patch_to_json,
    signature_from_json,
    signature_to_json,
    support_from_json,
    support_json_pieces,
    support_to_json,
)
from modelkin.wire.media import (
    ORDERED_TYPES,
    PATCH_TYPES,
    SIGNATURE_TYPES,
    SUPPORT_TYPES,
    count_added,
    count_indices,
    count_octaves,
    dump_signature,
    dump_support,
    load_either,
    load_json_patch,
    load_patch,
    load_signature,
    load_support,
)
from modelkin.wire.subspace import (
    SUBSPACE_TYPES,
    dump_subspace,
    load_subspace,
    subspace_from_json,
    subspace_to_json,
)
from modelkin.wire.types import (
    CATALOGUE,
    CELL,
    FINGERPRINT,
    JSON,
    NPY,
    PATCH,
    RAW,
    ROARING,
    SAFETENSORS,
    SIGNATURE,
    SKETCH,
    SUBSPACE,
    SUPPORT,
)

# The names of 0.1.0, where a patch was called a delta.
DELTA = PATCH
DELTA_TYPES = PATCH_TYPES
decode_delta = decode_patch
delta_from_json = patch_from_json
delta_to_json = patch_to_json
encode_delta = encode_patch
load_delta = load_patch
load_json_delta = load_json_patch

__all__ = [
    "CATALOGUE",
    "CELL",
    "CellHeader",
    "DELTA",
    "DELTA_TYPES",
    "FINGERPRINT",
    "JSON",
    "Kind",
    "MAX_WINDOW",
    "NPY",
    "ORDERED_TYPES",
    "PATCH",
    "PATCH_TYPES",
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
    "Sealing",
    "cell_bytes",
    "count_added",
    "count_indices",
    "count_octaves",
    "decode_catalogue",
    "decode_cell",
    "decode_delta",
    "decode_fingerprint",
    "decode_patch",
    "decode_raw",
    "decode_roaring",
    "decode_signature",
    "decode_sketch",
    "decode_support",
    "delta_from_json",
    "delta_to_json",
    "dump_signature",
    "dump_subspace",
    "dump_support",
    "encode_catalogue",
    "encode_cell",
    "encode_delta",
    "encode_fingerprint",
    "encode_patch",
    "encode_raw",
    "encode_roaring",
    "encode_signature",
    "encode_sketch",
    "encode_support",
    "load_delta",
    "load_either",
    "load_json_delta",
    "load_json_patch",
    "load_patch",
    "load_signature",
    "load_subspace",
    "load_support",
    "patch_from_json",
    "patch_to_json",
    "read_cell_header",
    "signature_from_json",
    "signature_to_json",
    "subspace_from_json",
    "subspace_to_json",
    "support_from_json",
    "support_json_pieces",
    "support_to_json",
]
