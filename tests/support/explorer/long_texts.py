"""A service whose texts are as long, and as hard to set in a line, as it takes them."""

from __future__ import annotations

from typing import Any, Final

import httpx
import numpy as np

from tests.sdk.core.fingerprints import planted
from tests.support.explorer.anatomies import put_model, wait_for_anatomies
from tests.support.explorer.pages import HOSTILE, carry_out
from tests.support.http_space import Space, family, ok

__all__ = ["MODELS", "TEXT", "put_long"]

_HEBREW: Final = "אבגדהוזחטיכלמנסעפצקרשת"
MODELS: Final = (
    "w" * 200,
    f"{_HEBREW * 4}/{_HEBREW[:10]}",
    "é" + "\u0301" * 90,
    "/".join("a" * 100),
)
"""Names of models, 200 bytes at most: one word, right to left, a pile of marks, all slashes."""
TEXT: Final = "%2F\u202e\"'/&amp;🧨" + "<script>alert('x')</script>" + "W" * 140
"""A text of people: half of it is one word."""
_TAGS: Final = ("t" * 100, _HEBREW * 2, "o" + "\u0302" * 45, "a tag/of:all+signs@once.")
_M: Final = 1600


def put_long(http: httpx.Client) -> dict[str, str]:
    """Fill a service, and return what its addresses name: a space, models, and what is made of it.

    Everything is there that a page may show: a map, a clustering, learngenes, a merge, jobs,
    sources, subscriptions and keys, and fingerprints that are kin.
    """
    name = "s" * 100
    space = _space(http, name)
    merge = _averages(space)
    source, subscription = _operations(http, name)
    _fingerprints(http)
    [job] = http.get("/v1/jobs", params={"space": name, "kind": "clustering"}).json()["items"]
    return {
        "space": name,
        "model": MODELS[0],
        "other": MODELS[1],
        "clustering": "latest",
        "merge": merge,
        "job": job["id"],
        "source": source,
        "subscription": subscription,
    }


def _space(http: httpx.Client, name: str) -> Space:
    tensors = (*HOSTILE[:4], "t" * 500, _HEBREW * 20, "e" + "\u0301" * 300, "🧨" * 99)
    layout = [{"name": text, "shape": [_M // len(tensors)]} for text in tensors]
    ok(http.post("/v1/spaces", json={"name": name, "num_parameters": _M, "layout": layout}))
    space = Space.existing(http, name, _M)
    for model, support in zip(MODELS, family(7, _M, 100, 4).values(), strict=True):
        space.put(model, support, tags=_TAGS)
        attributes: dict[str, Any] = {TEXT[:100]: TEXT, "k" * 200: "v" * 1000, "n": [TEXT]}
        source = f"https://example.org/{'u' * 1900}"
        body = {"attributes": attributes, "source": source, "base_model": MODELS[0]}
        if model == MODELS[0]:
            body |= {"base_model": MODELS[2], "source": TEXT}
        ok(http.patch(space.path("models", model), json=body))
    carry_out(space, "maps")
    carry_out(space, "clusterings")
    return space


def _averages(space: Space) -> str:
    reference = {"kind": "https", "url": f"https://files.example/{'u' * 900}"}
    tensor = {"name": "t" * 500, "dtype": "F32", "shape": [200]}
    body: dict[str, Any] = {"digest": f"sha256:{0:064x}", "bytes": 9000, "tensors": [tensor]}
    body |= {"reference": reference, "metrics": {"m" * 100: 0.9}, "note": TEXT + "n" * 1500}
    ok(space.http.put(f"{space.path('clusters')}/all/learngene", json=body))
    name = "m" * 100
    ok(space.http.put(f"{space.path('merges')}/{name}", json={"members": list(MODELS)}))
    return name


def _operations(http: httpx.Client, space: str) -> tuple[str, str]:
    for label in (TEXT.replace("\u202e", "")[:200], "l" * 200):
        ok(http.post("/v1/keys", json={"label": label, "scopes": ["read"]}))
    wanted: dict[str, Any] = {"kind": "huggingface", "space": space, "secret": "long"}
    wanted |= {"filters": {"repos": ["r" * 200, _HEBREW]}, "exclude": ["x" * 500]}
    source = ok(http.post("/v1/sources", json=wanted))["id"]
    event = {"event": {"action": "a" * 200, "scope": "repo"}, "webhook": {"id": "1"}}
    event |= {"repo": {"type": "model", "name": "r" * 200}}
    headers = {"X-Webhook-Secret": "long"}
    assert http.post(f"/v1/hooks/{source}", json=event, headers=headers).status_code == 202
    wanted = {"url": f"http://93.184.216.34/{'p' * 1900}", "events": ["support.stored"]}
    wanted |= {"tag": _TAGS[0], "space": space, "description": TEXT + "d" * 1500}
    return source, ok(http.post("/v1/subscriptions", json=wanted))["id"]


def _fingerprints(http: httpx.Client) -> None:
    base = planted.model(1)
    draw = np.random.default_rng(36)
    tensors = ("t" * 500, _HEBREW * 20, *HOSTILE[:2])
    facts = {"license": TEXT[:100], "base_relation": "finetune"}
    for number, name in enumerate(MODELS):
        own = {each: draw.standard_normal((128, 128)).astype(np.float32) for each in tensors}
        put_model(http, name, base | own, **facts, base_model=[MODELS[number - 1], "b" * 200])
    wait_for_anatomies(http)
