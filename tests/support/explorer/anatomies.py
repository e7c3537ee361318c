"""Models of two families and of several layouts, put into a service as fingerprints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from modelkin import wire
from modelkin._validation import quote_model
from tests.sdk.core.fingerprints import planted
from tests.sdk.core.fingerprints.planted import DERIVED, Tensors
from tests.support.http_space import ok

__all__ = ["put_family", "put_hostile", "put_model", "wait_for_anatomies"]

LONG = "base_model.model.model.layers.0.input_layernorm.original_module.weight"
"""A vector, so that no line of it is compared, and its name stands in a sentence."""


@dataclass(frozen=True)
class _Model:
    tensors: Tensors
    declares: tuple[str, ...] = ()
    year: int = 2024
    facts: Mapping[str, Any] = field(default_factory=dict)


def put_family(http: httpx.Client) -> None:
    """A base, what was made of it, and a stranger with a part in one of these.

    One declares what it is, one a base that is not stored, and one the stranger, wrongly.
    """
    base, stranger = planted.model(1), planted.model(2)
    tuned = DERIVED["noise .05"](base)
    mixed = {name: (tuned if name < "layers.2" else stranger)[name] for name in base}
    models = {
        "acme/base": _Model(base, facts={"license": "apache-2.0", "file_bytes": 3_000_000}),
        "other/stranger": _Model(stranger, facts={"license": "mit"}),
        "acme/tuned": _Model(
            {LONG: np.ones(64, np.float32)} | tuned,
            ("acme/base",),
            2025,
            {"base_relation": "finetune"},
        ),
        "acme/tuned-8bit": _Model(
            DERIVED["8 bits"](tuned), ("acme/tuned",), 2026, {"base_relation": "quantized"}
        ),
        "quiet/renamed": _Model(DERIVED["renamed"](DERIVED["noise .05"](base)), year=2026),
        "mirror/base": _Model(base, year=2025),
        "mixer/assembled": _Model(mixed, ("acme/tuned", "nowhere/to-be-found"), 2026),
        "wrong/claims": _Model(DERIVED["more tokens"](base), ("other/stranger",), 2026),
    }
    for name, model in models.items():
        moment = f"{model.year}-05-04T10:00:00Z"
        facts = {"base_model": list(model.declares), "published_at": moment, **model.facts}
        put_model(http, name, model.tensors, **facts)
    wait_for_anatomies(http)


def put_hostile(http: httpx.Client, texts: tuple[str, ...], names: tuple[str, ...]) -> None:
    """A model whose tensors, licence and bases are attempts."""
    draw = np.random.default_rng(36_000)
    tensors = {text: draw.standard_normal((128, 128)).astype(np.float32) for text in texts}
    facts = {"base_model": list(names), "license": texts[0]}
    for name in names[:2]:
        put_model(http, name, tensors, **facts)


def wait_for_anatomies(http: httpx.Client) -> None:
    """Wait until the anatomies of all models were made, and again of those that others change."""
    end = time.monotonic() + 120
    while "being looked for" in http.get("/anatomies").raise_for_status().text or _is_at_work(http):
        assert time.monotonic() < end
        time.sleep(0.1)


def _is_at_work(http: httpx.Client) -> bool:
    """Whether a job of anatomies is not finished."""
    states = "queued", "running"
    asked = (ok(http.get("/v1/jobs", params={"state": each, "limit": 1000})) for each in states)
    return any("anatomies" == job["kind"] for found in asked for job in found["items"])


def put_model(http: httpx.Client, name: str, tensors: Tensors, **facts: Any) -> None:
    content = planted.fingerprint(tensors, None).to_bytes()
    headers = {"Content-Type": wire.FINGERPRINT}
    path = f"/v1/fingerprints/{quote_model(name)}"
    ok(http.put(path, content=content, headers=headers, params=facts))
