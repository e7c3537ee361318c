"""Examples of answers: a schema without an example gets one that is made of its fields.

A field is known by its name, as ``model`` or ``similarity`` mean the same in nearly all answers. If
a schema means something else, ``EXCEPTIONS`` has the field under ``Schema.field``.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["add_examples"]

_REFERENCE = "#/components/schemas/"
_AT = "2026-03-14T09:26:53Z"
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

_ORIGIN = (
    "Equal lines mean a common origin: a base, a checkpoint, or the same random seed. Which of two "
    "came first, they do not say."
)

FIELDS: Final[dict[str, Any]] = {
    "added": 0.93,
    "agreement": 0.94,
    "base_model": "org/base",
    "bytes": 1_048_576,
    "candidates": 40,
    "cluster": 0,
    "common": 0,
    "compared": 2600,
    "clustering": "5f1d7e84c2a94b3f",
    "cycle": False,
    "daily_queries": 1000,
    "declared_base": "org/base",
    "degraded": False,
    "delivery_id": "msg_2KWPBgLlAfxdpx2AI54p",
    "degrees": [12.5, 31.0, 58.2],
    "description": "Fine-tunes of our digits model; write to models@example.org",
    "detail": "the service answered 200",
    "digest": _DIGEST,
    "edges": 1,
    "enabled": True,
    "event": "support.stored",
    "expected": 0.05,
    "floor": 0.3,
    "hook": "/v1/hooks/5f1d7e84c2a94b3f",
    "id": "5f1d7e84c2a94b3f",
    "jaccard": 0.45,
    "job": "0b7f1c52d6e84a19",
    "kappa": 0.6,
    "keys": 2041,
    "key": "mk_example",
    "label": "round 3",
    "layout_digest": _DIGEST,
    "left_out": 0,
    "limit": 0.1,
    "log10_e": -253.8,
    "log10_p": -257.2,
    "merge": "spring",
    "method": "similarity",
    "model": "org/client-7",
    "models": 2,
    "name": "digits-cnn",
    "noise": 0,
    "num_clusters": 1,
    "num_parameters": 200_000,
    "num_tensors": 2,
    "owner": "labs",
    "parts": 1,
    "prefix": "mk_a1B2c3D4",
    "remaining": 999,
    "revision": 2,
    "scale": 32,
    "score": 0.6,
    "secret": "whsec_example",
    "seconds": 0.25,
    "self_overlap_first": 0.62,
    "self_overlap_previous": 0.62,
    "sentences": ["vocabulary grown by 65 rows, all else of org/base", _ORIGIN],
    "sentence": "shares 62% of its indices, far more than models of the space usually do",
    "shape": [500, 400],
    "share": 0.1,
    "share_of_lines": 0.93,
    "share_of_model": 0.9,
    "share_of_other": 0.9,
    "share_of_parameters": 0.92,
    "shared_indices": 6200,
    "similarity": 0.62,
    "similarity_first": 0.62,
    "similarity_previous": 0.62,
    "size": 10_000,
    "source": "org/client-7",
    "space": "digits-cnn",
    "standard_error": 0.0,
    "standard_error_first": 0.0,
    "standard_error_previous": 0.0,
    "step": 0.05,
    "summary": "org/client-7 is as near to org/base as its derivatives are",
    "support_size": 10_000,
    "supports": 2,
    "tags": ["round-3"],
    "target": "org/client-12",
    "threshold": 0.5,
    "truncated": False,
    "type": "support.stored",
    "url": "https://hooks.example/modelkin",
    "version": 41,
    "weight": 0.5,
    "weights": "similarity",
    "z_score": 27.0,
}
"""The example of a field, by its name."""

EXCEPTIONS: Final[dict[str, Any]] = {
    "AnatomyOut.verdict": "derived",
    "AssignmentOut.exemplar": "org/client-12",
    "AssignmentOut.margin": 1.0,
    "AssignmentOut.mean_similarity": 0.6,
    "AssignmentOut.nearest_members": ["org/client-7", "org/client-12"],
    "AssignmentOut.note": None,
    "AssignmentOut.reason": None,
    "AssignmentOut.within": 0.61,
    "BandingOut.recall": {"0.5": 0.97},
    "ClusterOut.exemplar": "org/client-7",
    "ClusterOut.members": ["org/client-7", "org/client-12"],
    "ClusterOut.size": 2,
    "ClusteringOut.labels": {"org/client-7": 0, "org/client-12": 0},
    "ClusteringOut.previous": None,
    "DeliveryOut.payload": '{"type":"support.stored","data":{"model":"org/client-7"}}',
    "DeliveryOut.subscription": "0b7f1c52d6e84a19",
    "DonorOut.weight": 1.0,
    "DonorReasonOut.label": None,
    "EdgeOut.estimate": "exact",
    "GraphFactsOut.threshold": 0.5,
    "FieldProblem.field": "layout[3].shape",
    "FieldProblem.message": "has to be a list",
    "Health.version": "0.1.0",
    "HubEventOut.event": "repo.update",
    "HubEventOut.model": "org/client-7",
    "HubEventOut.revision": "1f3c9d2e",
    "JobErrorOut.code": "job_failed",
    "JoinOut.model": "org/client-7",
    "KinOut.base_model": None,
    "KinOut.estimate": "exact",
    "KinOut.model": "org/base",
    "LearngeneOut.etag": '"9f86d081884c7d65"',
    "LearngeneOut.kept": False,
    "LearngeneSummary.kept": False,
    "LinkOut.estimate": "exact",
    "MapOut.models": ["org/client-7", "org/client-12"],
    "MapOut.x": [0.12, -1.4],
    "MapOut.y": [0.8, 0.33],
    "MergeOut.name": "spring",
    "MergeSummary.name": "spring",
    "NodeOut.id": "org/client-7",
    "NodeOut.kind": "support",
    "PartyOut.name": "org/client-7",
    "PartyOut.left_out": None,
    "ParentOut.base_models": [],
    "ParentOut.edge": "declared",
    "ParentOut.license": "apache-2.0",
    "ParentOut.model": "org/base",
    "ParentOut.tensors": ["embed.weight", "layers.0.q_proj.weight"],
    "ParentOut.verdict": "derived",
    "ProgressOut.stage": "comparing",
    "RelationOut.models": ["org/base"],
    "RelationOut.relation": "vocabulary_resized",
    "RelationOut.sentence": "vocabulary grown by 65 rows, all else of org/base",
    "RelativeOut.base_models": [],
    "RelativeOut.edge": "declared",
    "RelativeOut.license": "apache-2.0",
    "RelativeOut.model": "org/base",
    "RelativeOut.verdict": "derived",
    "RelativesOut.note": _ORIGIN,
    "SignatureSpecOut.num_perm": 256,
    "SignatureSpecOut.scheme": "affine32",
    "SimilarityOut.estimated": [],
    "SimilarityOut.kappa": None,
    "SimilarityOut.models": ["org/client-7", "org/client-12"],
    "SimilarityOut.similarity": [[1.0, 0.62], [0.62, 1.0]],
    "SpaceOut.support_size": {"policy": "free", "k": None},
    "SpaceSummary.support_size": {"policy": "free", "k": None},
    "SourceOut.url": "https://hub.example",
    "SourceErrorOut.code": "hub_unavailable",
    "SourceErrorOut.detail": "the hub does not answer",
    "SubspaceSpecOut.features": "resnet18-pool",
    "TensorAnatomyOut.names": ["layers.0.q_proj.weight"],
    "TensorAnatomyOut.not_comparable": None,
    "TensorAnatomyOut.shares": {"org/base": 0.93},
    "TensorOut.dtype": "F32",
    "TensorSpecOut.name": "embed.weight",
    "TensorSummaryOut.name": "embed.weight",
    "TensorOut.name": "embed.weight",
    "TensorOverlapOut.name": "embed.weight",
    "TensorPairsOut.other": "org/base",
    "TensorPairsOut.verdict": "derived",
    "TensorSourceOut.model": "org/base",
    "TensorSourceOut.names": ["blk.0.attn_q.weight"],
    "UsualOut.deviation": 0.02,
    "UsualOut.models": 40,
    "UsualOut.similarity": 0.08,
    "VoteOut.model": "org/client-12",
}
"""The example of a field in one schema alone."""


def add_examples(schemas: dict[str, Any]) -> None:
    """Give each object of an answer without an example one of all its fields."""
    for schema in schemas.values():
        for given in schema.get("examples", []):
            _restore_nulls(schemas, schema, given)
    made = {
        name: _whole(schemas, name)
        for name, schema in schemas.items()
        if _lacks(schema) and schema.get("additionalProperties") is not False
    }
    for name, example in made.items():
        schemas[name]["examples"] = [example]


def _restore_nulls(schemas: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    """Add the required fields that are null, which FastAPI leaves out of an example."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].removeprefix(_REFERENCE)]
    elif "anyOf" in schema:
        schema = schema["anyOf"][0]
    if isinstance(value, list):
        for each in value:
            _restore_nulls(schemas, schema.get("items", {}), each)
    elif isinstance(value, dict) and "properties" in schema:
        value |= {name: None for name in schema.get("required", ()) if name not in value}
        for field, part in schema["properties"].items():
            _restore_nulls(schemas, part, value.get(field))


def _lacks(schema: dict[str, Any]) -> bool:
    return "properties" in schema and "examples" not in schema


def _whole(schemas: dict[str, Any], name: str) -> Any:
    """The example that a schema declares; else one that is made of the examples of its fields."""
    schema = schemas[name]
    if not _lacks(schema):
        return schema["examples"][0] if "examples" in schema else _part(schemas, "", schema)
    return {
        field: EXCEPTIONS[f"{name}.{field}"]
        if f"{name}.{field}" in EXCEPTIONS
        else _part(schemas, field, part)
        for field, part in schema["properties"].items()
    }


def _part(schemas: dict[str, Any], field: str, schema: dict[str, Any]) -> Any:
    """An example of a field, by its choices, its schema or its name; else the least value."""
    if "$ref" in schema:
        return _whole(schemas, schema["$ref"].removeprefix(_REFERENCE))
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _option(schemas, field, schema["anyOf"])
    if "$ref" in (items := schema.get("items", {})) or "enum" in items:
        return [_part(schemas, field, items)]
    return FIELDS[field] if field in FIELDS else _least(schema)


def _option(schemas: dict[str, Any], field: str, options: list[dict[str, Any]]) -> Any:
    """An example of a field of several types, by its name; without one, null where it may be."""
    if field not in FIELDS and {"type": "null"} in options:
        return None
    return _part(schemas, field, options[0])


def _least(schema: dict[str, Any]) -> Any:
    if schema.get("format") == "date-time":
        return _AT
    least = {"integer": 0, "number": 0.0, "boolean": False, "array": [], "object": {}}
    return least.get(schema.get("type", ""), "text")
