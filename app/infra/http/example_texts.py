"""Examples of what is no JSON: texts as they are answered, and what the bytes of a type are."""

from __future__ import annotations

from typing import Final

__all__ = ["BYTES", "STREAMS", "TEXTS"]

_GRAPHML: Final = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="kind" for="node" attr.name="kind" attr.type="string"/>
<key id="similarity" for="edge" attr.name="similarity" attr.type="double"/>
<graph edgedefault="undirected">
<node id="org/client-12"><data key="kind">support</data></node>
<node id="org/client-7"><data key="kind">support</data></node>
<edge source="org/client-12" target="org/client-7"><data key="similarity">0.62</data></edge>
</graph></graphml>
"""
_SVG: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="259.0" height="20" role="img" '
    'aria-label="weights: shares weights with org/base"></svg>'
)
_REPORT: Final = (
    "finding,model,other,declared,space,share,log10_p,similarity,license,other_license,bytes,saved,"
    "stored_at,digest,sentence\r\n"
    "license_differs,org/client-7,org/base,yes,,0.58,,,apache-2.0,mit,,,,,\r\n"
)

TEXTS: Final[dict[tuple[str, str], object]] = {
    ("get_graph", "application/graphml+xml"): _GRAPHML,
    ("get_badge", "image/svg+xml"): _SVG,
    ("get_report", "text/html"): "<!doctype html><title>Report on the models of labs</title>",
    ("get_report", "text/csv"): _REPORT,
    ("get_report", "application/vnd.cyclonedx+json"): {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "components": [{"type": "machine-learning-model", "name": "org/client-7"}],
    },
    ("get_similarity", "text/csv"): (
        "model,org/client-7,org/client-12\r\norg/client-7,1.0,0.62\r\norg/client-12,0.62,1.0\r\n"
    ),
    ("metrics", "text/plain"): (
        "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes 2.97e+08\n"
    ),
}
"""What an operation answers as a media type, shortened where it is long."""

STREAMS: Final[dict[str, str]] = {"follow_job": "JobOut", "follow_merge": "MergeOut"}
"""The schema of the events that an operation streams."""

BYTES: Final[dict[str, str]] = {
    "application/vnd.modelkin.support": "a support: `Support.to_bytes` of the SDK",
    "application/vnd.roaring": "the indices of a support, as a portable Roaring bitmap",
    "application/octet-stream": "the sorted indices of a support: uint32, or uint64 where M > 2^32",
    "application/vnd.modelkin.delta": "a patch: what to add to a support, and what to remove",
    "application/vnd.modelkin.signature": "a signature: `Signature.to_bytes` of the SDK",
    "application/vnd.modelkin.sketch": "a sketch: `Sketch.to_bytes` of the SDK",
    "application/vnd.modelkin.subspace": "a data subspace: `Subspace.to_bytes` of the SDK",
    "application/x-npy": "an array as `numpy.save` writes it",
    "application/vnd.modelkin.fingerprint+zstd": "a fingerprint: a file of `modelkin fingerprint`",
    "application/vnd.safetensors": "a file of safetensors",
    "application/vnd.modelkin.cell": "a cell, sealed to who may read it",
}
"""What the bytes of a media type are; the page on wire formats has each to the byte."""
