"""Requests that provoke the problems of the operations: valid requests and their changes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from modelkin import Subspace, Support
from modelkin.wire import CELL, FINGERPRINT, PATCH, SAFETENSORS, SKETCH, SUBSPACE, encode_patch
from tests.support.declared_problems import DECLARED, Operation
from tests.support.http_space import JSON, SIGNATURE, SUPPORT
from tests.support.models.learngene_files import gene, manifest_of
from tests.support.models.made_fingerprints import made_fingerprint

__all__ = [
    "FULL",
    "M",
    "SOURCE",
    "SUBSCRIPTION",
    "UNPROVOKED",
    "VALID",
    "Request",
    "growing",
    "provocation",
    "typed",
    "with_header",
]

M = 100_000
FULL = Support.from_indices(range(0, M, 7), M)
OTHER = Support.from_indices(range(1, M, 7), M)
FOREIGN = Support.from_indices(range(0, 10 * M, 7), 10 * M)
AXES = Subspace.of_basis(np.eye(4)[:, :2])
SECRET = "hook-secret-of-a-test"
URL = "http://127.0.0.1:9/"

_FULL_DISK = "needs a full disk under the database: tests/app/infra/test_full_disk.py fills one"
UNPROVOKED: Mapping[tuple[str, int, str], str] = {
    ("create_key", 507, "quota_exceeded"): "takes a thousand keys: "
    "tests/app/tenancy/auth/test_keys_api.py",
    ("create_clustering", 501, "missing_extra"): "needs a package that is missing: "
    "tests/app/kinship/clustering/test_missing_packages.py",
    ("readyz", 503, "loading"): "lasts for a moment: tests/app/models/index/test_warmup.py "
    "holds it",
    ("readyz", 503, "stopping"): "ends the service: tests/app/server/test_restarts.py ends one",
    ("readyz", 503, "unavailable"): "asks no table: tests/app/infra/test_postgres_faults.py stops "
    "the database",
    **{
        problem: _FULL_DISK
        for problem in DECLARED
        if problem[2] == "storage_full"
        and problem[0] not in {"put_support", "patch_support", "put_batch"}
    },
}
"""Declared problems that no request here provokes, and why."""

Request = Mapping[str, Any]
"""Arguments of ``httpx.Client.request``; ``at`` has other parameters of the path."""


def typed(media_type: str, content: bytes, **headers: str) -> dict[str, Any]:
    return {"content": content, "headers": {"Content-Type": media_type, **headers}}


def matching(tag: str, request: Request) -> dict[str, Any]:
    """The request with an ``If-Match`` header."""
    return {**request, "headers": {**request.get("headers", {}), "If-Match": tag}}


_SUPPORT = typed(SUPPORT, FULL.to_bytes())
_DELTA = typed(PATCH, encode_patch(FULL, OTHER), **{"If-Match": "*"})
_SIGNATURE = typed(SIGNATURE, FULL.signature().to_bytes())
_SUBSPACE = {"at": {"space": "data"}, **typed(SUBSPACE, AXES.to_bytes())}
_BAD_SUBSPACE = {"at": {"space": "data"}, **typed(SUBSPACE, b"x")}
_FINGERPRINT = typed(FINGERPRINT, made_fingerprint(1).to_bytes())
_SKETCH = {"at": {"model": "alone"}, **typed(SKETCH, FULL.sketch().to_bytes())}
SOURCE = {"kind": "huggingface", "space": "s", "secret": SECRET}
_JOIN = {
    "public_key": base64.b64encode(bytes(range(32))).decode(),
    "token_digest": bytes(range(32)).hex(),
    "examples": 1,
    "peak": 1.0,
}
_MERGE = {"members": ["full"], "min_members": 1}
_MANIFEST = manifest_of(gene())
_LONG_MANIFEST = manifest_of(gene(0, **{f"{at:0>900}": (1,) for at in range(20)}))
_WEIGHTS = {
    "digest": "sha256:" + 64 * "0",
    "tensors": {"w": 32 * "0"},
    "files": 1,
    "size": 12,
    "dtypes": {"F32": 3},
}
SUBSCRIPTION = {"url": URL, "events": ["support.stored"]}

VALID: Mapping[str, Request] = {
    "create_space": {"json": {"name": "new", "num_parameters": M}},
    "report_support_size": {"json": {"k_star": 5}},
    "put_support": _SUPPORT,
    "patch_support": _DELTA,
    "put_signature": {"at": {"model": "alone"}, **_SIGNATURE},
    "put_sketch": _SKETCH,
    "put_subspace": _SUBSPACE,
    "get_subspace": {"at": {"space": "data"}},
    "put_batch": typed("application/jsonl", b'{"model":"org/c"}\n'),
    "put_weights": {"json": _WEIGHTS},
    "put_fingerprint": _FINGERPRINT,
    "put_fingerprints": typed("application/jsonl", b'{"model":"org/c"}\n'),
    "update_model": {"json": {"tags": ["t"]}},
    "get_neighbors": {"params": {"model": "full"}},
    "find_neighbors": _SUPPORT,
    "get_donors": {"params": {"target": "full"}},
    "find_donors": _SUPPORT,
    "get_lineage": {"params": {"model": "full"}},
    "acknowledge_lineage": {"params": {"model": "full"}, "json": {"note": "known"}},
    "withdraw_acknowledgement": {"params": {"model": "full"}},
    "find_anatomy": _FINGERPRINT,
    "find_relatives": _FINGERPRINT,
    "compare_tensors": {"params": {"with": "full"}},
    "get_overlap": {"params": {"a": "full", "b": "full"}},
    "get_similarity": {"json": {"models": ["full"]}},
    "create_job": {"json": {"kind": "rebuild_buckets"}},
    "create_clustering": {"json": {"algorithm": "agglomerative"}},
    "create_map": {"json": {"seed": 1}},
    "assign_cluster": _SUPPORT,
    "join_cluster": {"at": {"space": "data"}, "json": {"model": "full"}},
    "put_clustering_policy": {"json": {"after_changes": 1000}},
    "create_source": {"json": SOURCE},
    "update_source": {"json": {"on_delete": "keep"}},
    "receive_delivery": {"content": b"{}", "headers": {"X-Webhook-Secret": SECRET}},
    "create_subscription": {"json": SUBSCRIPTION},
    "update_subscription": {"json": {"enabled": True}},
    "create_merge": {"at": {"merge": "fresh"}, "json": _MERGE},
    "follow_merge": {"at": {"merge": "joining"}},
    "join_merge": {"at": {"merge": "joining"}, "json": _JOIN},
    "put_cell": typed(CELL, b"x"),
    "put_result": {"at": {"merge": "done"}, **typed(CELL, b"x")},
    "give_verdict": {"json": {"attempt": 0}},
    "put_learngene": {"json": _MANIFEST},
    "create_key": {"json": {"label": "for a test"}},
    "publish_space": {"json": {"floor": 0.5}},
    "create_report": {"json": {"since": None}},
    "put_report_policy": {"json": {"keep": 5}},
    "find_public_neighbors": _SUPPORT,
}
"""What an operation takes, beside its path."""

_MISSING = {
    "model_not_found": "model",
    "fingerprint_not_found": "model",
    "clustering_not_found": "clustering",
    "job_not_found": "job",
    "source_not_found": "source",
    "subscription_not_found": "subscription",
    "delivery_not_found": "delivery",
    "merge_not_found": "merge",
    "key_not_found": "prefix",
    "report_not_found": "report",
}
_TENSOR = [{"name": "w", "shape": [3]}]
_BAD_JSON = {"content": b"{", "headers": {"Content-Type": JSON}}
_TOO_LONG = {"at": {"clustering": "x" * 101}}

SPECIFIC: Mapping[tuple[str, str], Request] = {
    ("publish_space", "wrong_kind"): {"at": {"space": "data"}},
    **{
        (name, "public_space_not_found"): {"at": {"space": "empty"}}
        for name in ("get_space_publication", "get_public_space", "find_public_neighbors")
    },
    ("find_public_neighbors", "invalid_parameter"): {"params": {"k": 0}},
    ("find_public_neighbors", "query_budget_spent"): {"at": {"space": "asked"}},
    ("put_subspace", "space_mismatch"): {
        "at": {"space": "data"},
        **typed(SUBSPACE, Subspace.of_basis(np.eye(5)[:, :2]).to_bytes()),
    },
    ("put_subspace", "wrong_kind"): {"at": {"space": "s"}},
    ("put_subspace", "quota_exceeded"): {},
    ("get_subspace", "wrong_kind"): {"at": {"space": "s"}},
    ("get_subspace", "model_not_found"): {"at": {"space": "data", "model": "none"}},
    **{
        (name, code): {**body, "at": at}
        for name in ("find_neighbors", "find_donors", "assign_cluster")
        for code, body, at in (
            ("wrong_kind", _SUBSPACE, {"space": "s"}),
            ("invalid_subspace", _BAD_SUBSPACE, {"space": "data"}),
        )
    },
    ("put_subspace", "invalid_subspace"): _BAD_SUBSPACE,
    ("get_donors", "wrong_kind"): {
        "at": {"space": "data"},
        "params": {"target": "full", "method": "idf"},
    },
    ("create_merge", "model_not_found"): {"json": {**_MERGE, "members": ["none"]}},
    ("create_merge", "clustering_not_found"): {"json": {"clustering": "none", "cluster": 0}},
    ("create_merge", "merge_exists"): {"at": {"merge": "joining"}},
    ("create_merge", "quota_exceeded"): {},
    ("join_merge", "conflict"): {"at": {"merge": "sending"}},
    ("join_merge", "merge_closed"): {"at": {"merge": "sending", "model": "other"}},
    ("put_cell", "invalid_cell"): {},
    ("put_result", "invalid_cell"): {},
    ("give_verdict", "merge_closed"): {},
    **{
        (name, "merge_closed"): {"at": {"merge": "joining"}}
        for name in ("put_cell", "get_cell", "put_result", "get_result")
    },
    ("put_learngene", "cluster_not_found"): {"at": {"cluster": "99"}},
    ("put_learngene", "clustering_not_found"): {"json": {**_MANIFEST, "clustering": "none"}},
    ("put_learngene", "invalid_learngene"): {"json": {**_MANIFEST, "digest": "none"}},
    ("put_learngene", "values_not_kept"): typed(SAFETENSORS, gene()),
    ("put_learngene", "quota_exceeded"): {"json": _LONG_MANIFEST},
    ("get_learngene_file", "values_not_kept"): {"at": {"space": "empty"}},
    ("get_learngene_file", "range_not_satisfiable"): {"headers": {"Range": "bytes=1000000-"}},
    **{
        (name, "learngene_not_found"): {"at": {"cluster": "99"}}
        for name in ("get_learngene", "get_learngene_file", "delete_learngene")
    },
    ("put_fingerprint", "fingerprint_exists"): {"at": {"model": "of-hub"}},
    ("put_fingerprint", "invalid_fingerprint"): typed(FINGERPRINT, b"x"),
    ("put_fingerprint", "invalid_name"): {"params": {"base_model": "a/../b"}},
    ("put_fingerprint", "quota_exceeded"): {},
    ("put_fingerprints", "invalid_parameter"): typed("application/jsonl", b""),
    ("put_weights", "conflict"): {"json": {**_WEIGHTS, "revision": 99}},
    ("get_weights", "weights_not_found"): {"at": {"model": "alone"}},
    **{
        (name, "invalid_fingerprint"): typed(FINGERPRINT, b"x")
        for name in ("find_anatomy", "find_relatives")
    },
    **{
        (name, "invalid_name"): {"params": {"exclude": "a/../b"}}
        for name in ("find_anatomy", "find_relatives", "get_anatomy", "get_relatives")
    },
    ("compare_tensors", "invalid_name"): {"params": {"with": "a/../b"}},
    ("list_duplicates", "invalid_name"): {"params": {"space": "!"}},
    ("list_duplicates", "space_not_found"): {"params": {"space": "none"}},
    ("list_duplicates", "model_not_found"): {"params": {"space": "s", "model": "none"}},
    ("list_duplicates", "invalid_parameter"): {"params": {"model": "full"}},
    ("create_space", "invalid_name"): {"json": {"name": "!", "num_parameters": M}},
    ("create_space", "invalid_layout"): {"json": {"name": "new", "layout": 2 * _TENSOR}},
    ("create_space", "invalid_signature"): {
        "json": {"name": "new", "num_parameters": 1 << 40, "signature": {"scheme": "affine32"}}
    },
    ("create_space", "space_exists"): {"json": {"name": "s", "num_parameters": M + 1}},
    ("put_support", "space_mismatch"): typed(SUPPORT, FOREIGN.to_bytes()),
    ("put_support", "invalid_parameter"): {"params": {"importance": "?"}},
    ("patch_support", "space_mismatch"): typed(
        PATCH, encode_patch(FOREIGN, FOREIGN), **{"If-Match": "*"}
    ),
    ("patch_support", "invalid_parameter"): {"params": {"importance": "?"}},
    ("patch_support", "invalid_support"): typed(PATCH, b"x", **{"If-Match": "*"}),
    ("patch_support", "support_missing"): {"at": {"model": "alone"}},
    ("patch_support", "precondition_required"): typed(PATCH, encode_patch(FULL, OTHER)),
    ("put_signature", "space_mismatch"): typed(SIGNATURE, FULL.signature(num_perm=16).to_bytes()),
    ("put_signature", "invalid_parameter"): {"at": {"model": "alone"}, "params": {"base": "?"}},
    ("put_signature", "support_exists"): {"at": {"model": "full"}},
    ("put_sketch", "space_mismatch"): typed(SKETCH, FOREIGN.sketch().to_bytes()),
    ("put_sketch", "invalid_parameter"): {"params": {"layout": "?"}},
    ("put_sketch", "support_exists"): {"at": {"model": "full"}},
    ("put_sketch", "invalid_signature"): typed(SKETCH, b"x"),
    ("put_batch", "invalid_parameter"): typed("application/jsonl", b""),
    ("get_support", "invalid_parameter"): {"params": {"revision": 0}},
    ("get_support", "revision_not_found"): {"params": {"revision": 99}},
    ("get_support", "support_missing"): {"at": {"model": "alone"}},
    ("get_sketch", "sketch_missing"): {"at": {"model": "alone"}},
    ("get_neighbors", "model_not_found"): {"params": {"model": "none"}},
    ("get_neighbors", "invalid_parameter"): {"params": {"model": "full", "k": 0}},
    ("find_neighbors", "invalid_parameter"): {"params": {"k": 0}},
    ("get_donors", "model_not_found"): {"params": {"target": "none"}},
    ("get_donors", "invalid_parameter"): {"params": {"target": "full", "k": 0}},
    ("get_donors", "support_missing"): {"params": {"target": "alone", "method": "cover"}},
    ("find_donors", "invalid_parameter"): {"params": {"k": 0}},
    ("find_donors", "support_missing"): {**_SIGNATURE, "params": {"method": "cover"}},
    ("get_graph", "invalid_parameter"): {"params": {"k": 0}},
    ("get_tensors", "invalid_parameter"): {},
    ("get_lineage", "model_not_found"): {"params": {"model": "none"}},
    ("get_lineage", "invalid_parameter"): {"params": {}},
    **{
        (name, code): {"params": params}
        for name in ("acknowledge_lineage", "withdraw_acknowledgement")
        for code, params in (("model_not_found", {"model": "none"}), ("invalid_parameter", {}))
    },
    ("list_lineages", "invalid_parameter"): {"params": {"limit": 0}},
    ("get_overlap", "model_not_found"): {"params": {"a": "full", "b": "none"}},
    ("get_overlap", "support_missing"): {"params": {"a": "full", "b": "alone"}},
    ("get_overlap", "invalid_parameter"): {"params": {}},
    ("get_similarity", "model_not_found"): {"json": {"models": ["none"]}},
    ("create_clustering", "model_not_found"): {"json": {"models": ["full", "none"]}},
    ("get_latest_clustering", "clustering_not_found"): {"at": {"space": "empty"}},
    ("get_latest_map", "map_not_found"): {"at": {"space": "empty"}},
    ("get_clustering", "invalid_parameter"): _TOO_LONG,
    ("delete_clustering", "invalid_parameter"): _TOO_LONG,
    ("assign_cluster", "invalid_parameter"): _TOO_LONG,
    ("join_cluster", "model_not_found"): {"json": {"model": "none"}},
    ("join_cluster", "clustering_not_found"): {"at": {"space": "data", "clustering": "none"}},
    ("join_cluster", "wrong_kind"): {"at": {"space": "s"}},
    ("join_cluster", "invalid_name"): {"json": {"model": "!"}},
    ("get_badge", "invalid_name"): {"at": {"model": "a\nb"}},
    ("get_badge", "fingerprint_not_found"): {"at": {"model": "none"}},
    ("list_jobs", "invalid_name"): {"params": {"space": "!"}},
    ("create_source", "invalid_name"): {"json": {**SOURCE, "space": "!"}},
    ("update_source", "invalid_name"): {"json": {"space": "!"}},
    ("update_source", "secret_key_missing"): {"json": {"secret": SECRET}},
    ("receive_delivery", "invalid_parameter"): {"content": b"{"},
    ("create_subscription", "invalid_name"): {"json": {**SUBSCRIPTION, "space": "!"}},
    ("update_subscription", "invalid_name"): {"json": {"space": "!"}},
    ("rotate_secret", "invalid_parameter"): {"params": {"overlap_seconds": -1}},
    ("rotate_secret", "conflict"): {"at": {"subscription": "rotated"}},
    ("cancel_job", "job_finished"): {},
    ("poll_source", "conflict"): {},
    **{
        (name, "quota_exceeded"): {}
        for name in (
            "create_space",
            "create_source",
            "create_subscription",
            "create_job",
            "create_clustering",
            "create_map",
            "create_report",
            "patch_support",
        )
    },
    ("put_support", "quota_exceeded"): {"at": {"model": "one-more"}},
    ("put_signature", "quota_exceeded"): {"at": {"model": "one-more"}},
    ("report_support_size", "space_mismatch"): {"json": {"k_star": 5, "num_parameters": M + 1}},
    ("report_support_size", "quota_exceeded"): {"at": {"space": "agreed"}},
    ("create_source", "secret_key_missing"): {},
    ("create_subscription", "secret_key_missing"): {},
    ("rotate_secret", "secret_key_missing"): {},
}
"""What provokes a problem of one operation; the path's ``rotated`` and the like are made below."""


_ANYWHERE: dict[str, Request] = {
    "space_not_found": {"at": {"space": "nowhere"}},
    "invalid_name": {"at": {"space": "!"}},
    "invalid_signature": typed(SIGNATURE, b"x"),
    "wrong_kind": {"at": {"space": "data"}},
    "not_acceptable": {"headers": {"Accept": "image/png"}},
    "subscription_disabled": {"at": {"subscription": "disabled"}},
}
"""What provokes a problem of any operation that has no specific provocation."""


def provocation(operation: Operation, code: str) -> Request:
    """The change that makes a valid request provoke a problem."""
    if (operation.name, code) in SPECIFIC:
        return SPECIFIC[operation.name, code]
    if code in _ANYWHERE:
        return _ANYWHERE[code]
    valid = VALID.get(operation.name, {})
    match code:
        case "invalid_parameter" if "json" in valid:
            return _BAD_JSON
        case "invalid_parameter":
            return {"params": {**valid.get("params", {}), "surplus": "1"}}
        case "invalid_support" | "space_mismatch" if SUPPORT in str(valid):
            return typed(SUPPORT, b"x" if code == "invalid_support" else FOREIGN.to_bytes())
        case "misdirected":
            return with_header(operation, "Host", "rebound.example")
        case "cross_site":
            return with_header(operation, "Sec-Fetch-Site", "cross-site")
        case "precondition_failed":
            return matching('"0"', valid)
        case "unsupported_media_type":
            return {"content": b"x", "headers": {"Content-Type": "text/plain", "If-Match": "*"}}
        case "clustering_not_found" | "report_not_found" if "policy" in operation.name:
            return {}
        case _ if code in _MISSING:
            return {"at": {_MISSING[code]: "none"}}
    raise AssertionError(f"nothing provokes {code} of {operation.name}")


def with_header(operation: Operation, name: str, value: str) -> dict[str, Any]:
    return {"headers": {**VALID.get(operation.name, {}).get("headers", {}), name: value}}


def growing(operation: Operation) -> Request:
    """A request whose support does not fit into a file of 1 KiB."""
    if operation.name == "put_batch":
        line = {"model": "new", "support": base64.b64encode(OTHER.to_bytes()).decode()}
        return typed("application/jsonl", json.dumps(line).encode())
    return {"at": {"model": "new"}} if operation.name == "put_support" else {}
