"""A service with data of every kind, and all pages that show it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx
import numpy as np

import modelkin
from modelkin._validation import quote_model
from tests.support.explorer.anatomies import put_family, put_hostile
from tests.support.http_space import Space, family, ok, related
from tests.support.servers.server_process import Server

__all__ = [
    "HOSTILE",
    "HOSTILE_NAMES",
    "PAGES",
    "TENSORS",
    "Explorer",
    "M",
    "address",
    "carry_out",
    "exploring",
    "pages_of",
]

M = 10_000
TENSORS = [{"name": f"layers.{i}.weight", "shape": [20, 100]} for i in range(5)]
HOSTILE = (
    "<script>alert('x')</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><svg onload=alert(2)>",
    "javascript:alert(3)",
    "'-alert(4)-'",
    "{{7*7}}${alert(5)}",
    "<iframe srcdoc='<script>alert(6)</script>'>",
    "&lt;b&gt;\u202eevil",
)
"""Texts that run something wherever they are taken for markup, a script or a template."""
HOSTILE_NAMES = ("javascript:alert", "https:elsewhere.example/x", "data:text/html", "..a/b..")
"""The same among the names that models may have."""

_PATHS: Final = {
    "the inbox": "/",
    "new models": "/new",
    "contradicted declarations": "/findings",
    "declarations in doubt": "/findings?show=doubted",
    "undeclared kin": "/findings?show=undeclared",
    "spaces": "/spaces",
    "spaces found": "/?q=space-",
    "no space found": "/?q=nowhere",
    "a space": "{models}",
    "an empty space": "{empty}",
    "models found": "{models}?q=tag:round-1+owner:org0&order=newest",
    "no model found": "{models}?q=nowhere",
    "about": "{models}/about",
    "a model": "{models}/models/org0/m000",
    "a model with a past": "{models}/models/org1/m001",
    "a signature": "{models}/models/org2/signature",
    "a pair": "{models}/pairs?a=org0/m000&b=org1/m001",
    "a matrix": "{models}/matrix",
    "a matrix of a search": "{models}/matrix?q=owner:org0&cut=0.5",
    "no matrix": "{empty}/matrix",
    "a matrix of clients": "{clients}/matrix",
    "a map": "{models}/map",
    "a map of numbers": "{models}/map?color=attribute:digit&zoom=3&x=1&y=1&model=org0/m000",
    "no map": "{clients}/map",
    "nothing to map": "{empty}/map",
    "a graph": "{models}/graph?of=org0/m000&of=org1/m001&k=3",
    "a graph to begin": "{models}/graph",
    "no graph": "{empty}/graph",
    "a graph of clients": "{clients}/graph?of=hospital-0",
    "clusterings": "{models}/clusterings",
    "no clustering": "{empty}/clusterings",
    "a clustering": "{models}/clusterings/latest?cluster=0",
    "a clustering compared": "{models}/clusterings/latest?than=latest",
    "lineages": "{models}/lineages?show=all",
    "lineages of clients": "{clients}/lineages",
    "no lineages": "{empty}/lineages",
    "learngenes": "{models}/learngenes",
    "learngenes of a cluster": "{models}/learngenes?cluster=0",
    "no learngene": "{empty}/learngenes",
    "merges": "{models}/merges",
    "a merge": "{models}/merges/average",
    "no merges": "{empty}/merges",
    "no merge": "{models}/merges/nowhere",
    "clients": "{clients}",
    "a client": "{clients}/models/hospital-0",
    "a pair of clients": "{clients}/pairs?a=hospital-0&b=hospital-1",
    "upload": "{models}/upload",
    "jobs": "/jobs",
    "jobs of a space": "{models}/jobs",
    "a job": "/jobs/{job}",
    "no job": "/jobs/nowhere",
    "sources": "/sources",
    "a source": "/sources/{source}",
    "no source": "/sources/nowhere",
    "subscriptions": "/subscriptions",
    "a subscription": "/subscriptions/{subscription}",
    "no subscription": "/subscriptions/nowhere",
    "keys": "/keys",
    "check": "/check",
    "words": "/words",
    "anatomies": "/anatomies",
    "anatomies found": "/anatomies?q=acme&stated_by=client&found=derived",
    "no anatomies": "/anatomies?q=nowhere",
    "an anatomy": "/anatomies/acme/tuned",
    "an anatomy of several": "/anatomies/mixer/assembled",
    "no anatomy": "/anatomies/nowhere",
    "a family": "/family?of=acme/tuned",
    "a family of one": "/family?of=other/stranger",
    "relatives": "/relatives?of=acme/base",
    "relatives that are copies": "/relatives?of=acme/base&found=copy",
    "no relatives": "/relatives?of=data:text/html",
    "duplicates": "/duplicates",
    "tensors": "/tensors?a=mixer/assembled&b=acme/base",
    "not found": "/spaces/nowhere",
    "not to be read": "{models}?cursor=x",
}
PAGES: Final = tuple(_PATHS)
"""What the explorer has pages of, as :func:`pages_of` names them."""


def address(http: httpx.Client, path: str) -> str:
    """The address of a page of a service."""
    return f"{str(http.base_url).rstrip('/')}{path}"


@dataclass(frozen=True)
class Explorer:
    """The service whose pages are visited, and its data.

    Attributes:
        models: a space with a layout, tags, attributes, bases, revisions, clusters and a map.
        clients: a space of data subspaces.
        hostile: a space whose every text is an attempt, with a map and clusters.
        empty: a space without models.
        source, subscription: ids of those whose every text is an attempt, too.
    """

    http: httpx.Client
    models: Space
    clients: str
    hostile: Space
    empty: Space
    source: str
    subscription: str

    @property
    def job(self) -> str:
        """The id of the clustering of the models."""
        wanted = {"space": self.models.name, "kind": "clustering"}
        found = self.http.get("/v1/jobs", params=wanted).json()
        job: str = found["items"][0]["id"]
        return job

    def address(self, path: str) -> str:
        """The address of a page."""
        return address(self.http, path)

    def model(self, name: str, space: str | None = None) -> str:
        """The address of a model's page."""
        return self.address(f"/spaces/{space or self.models.name}/models/{quote_model(name)}")


@contextlib.contextmanager
def exploring(server: Server) -> Iterator[Explorer]:
    """The service with its data."""
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        models, clients = _models(http), _clients(server)
        put_family(http)
        put_hostile(http, HOSTILE, HOSTILE_NAMES)
        yield Explorer(http, models, clients, _hostile(http), Space(http), *_operations(http))


def pages_of(explorer: Explorer) -> dict[str, str]:
    """The paths of all pages, by what they are: see :data:`PAGES`."""
    parts = {
        "models": f"/spaces/{explorer.models.name}",
        "empty": f"/spaces/{explorer.empty.name}",
        "clients": f"/spaces/{explorer.clients}",
        "job": explorer.job,
        "source": explorer.source,
        "subscription": explorer.subscription,
    }
    return {what: path.format(**parts) for what, path in _PATHS.items()}


def _models(http: httpx.Client) -> Space:
    """Ten models of three owners; one has a past, one a signature alone."""
    space = Space(http, M, layout=TENSORS)
    supports = family(31, M, 300, 9)
    for place, (name, support) in enumerate(supports.items()):
        name = f"org{place % 3}/{name}"
        space.put(name, support, tags=["round-1", f"site {place % 2}"])
        body = {"attributes": {"digit": place % 4, "style": "thin"}, "source": f"hf://{name}"}
        if place:
            body["base_model"] = "org0/m000"
        ok(http.patch(space.path("models", name), json=body))
    rng = np.random.default_rng(3)
    support = supports["m001"]
    for _ in range(4):
        support = related(rng, support, 0.9)
        space.put("org1/m001", support, tags=["round-1", "site 1"])
    space.put_signature("org2/signature", supports["m000"].signature())
    carry_out(space, "maps")
    carry_out(space, "clusterings")
    _average(space, [f"org{place % 3}/{name}" for place, name in enumerate(supports)])
    return space


def _average(space: Space, members: list[str]) -> None:
    """A learngene of a cluster and one of all, and a merge that its members are yet to join."""
    tensor = {"name": TENSORS[0]["name"], "dtype": "F32", "shape": TENSORS[0]["shape"]}
    for number, cluster in enumerate((0, "all")):
        reference = {"kind": "https", "url": f"https://files.example/{number}.safetensors"}
        body: dict[str, Any] = {"digest": f"sha256:{number:064x}", "bytes": 9000}
        body |= {"tensors": [tensor], "reference": reference}
        body |= {"metrics": {"accuracy": 0.9}, "rounds": 3, "note": "of the first rounds"}
        ok(space.http.put(f"{space.path('clusters')}/{cluster}/learngene", json=body))
    ok(space.http.put(f"{space.path('merges')}/average", json={"members": members}))


def carry_out(space: Space, what: str) -> None:
    """Have a job make something of a space, and wait for it."""
    job = space.http.post(space.path(what), json={}).json()["id"]
    end = time.monotonic() + 60
    while space.http.get(f"/v1/jobs/{job}").json()["state"] in {"queued", "running"}:
        assert time.monotonic() < end
        time.sleep(0.1)


def _clients(server: Server) -> str:
    """Four clients with data of two kinds."""
    with modelkin.Client(server.url) as client:
        client.ensure_space("explored-clients", num_parameters=16, kind="subspaces")
        for place in range(4):
            rng = np.random.default_rng(place)
            mixing = np.random.default_rng(place // 2).normal(size=(4, 16))
            data = rng.normal(size=(300, 4)) @ mixing + 0.1 * rng.normal(size=(300, 16))
            subspace = modelkin.fit_subspace(data, rng.integers(0, 3, 300))
            client.subspaces.put("explored-clients", f"hospital-{place}", subspace)
    return "explored-clients"


def _hostile(http: httpx.Client) -> Space:
    """A space whose every text is an attempt."""
    layout = [{"name": text, "shape": [M // len(HOSTILE)]} for text in HOSTILE]
    space = Space(http, M, layout=layout)
    for name, support in zip(HOSTILE_NAMES, family(7, M, 300, 4).values(), strict=True):
        space.put(name, support, tags=["javascript:alert"])
        attributes: dict[str, Any] = {text: [text, {text: text}] for text in HOSTILE}
        attributes |= {f"{text} ": text for text in HOSTILE}
        body = {"attributes": attributes, "source": HOSTILE[1], "base_model": HOSTILE_NAMES[0]}
        ok(http.patch(space.path("models", name), json=body))
    carry_out(space, "maps")
    carry_out(space, "clusterings")
    return space


def _operations(http: httpx.Client) -> tuple[str, str]:
    """A source and a subscription that say what a page must not run; neither calls anyone."""
    label = {"label": HOSTILE[0], "scopes": ["read"]}
    ok(http.post("/v1/keys", json=label))
    wanted: dict[str, Any] = {"kind": "huggingface", "space": "hostile", "secret": "long"}
    texts = [text for text in HOSTILE if text.isprintable()]
    wanted |= {"filters": {"repos": texts}, "exclude": texts}
    source = ok(http.post("/v1/sources", json=wanted))["id"]
    for place, text in enumerate(HOSTILE):
        event = {"event": {"action": text, "scope": "repo"}, "webhook": {"id": str(place)}}
        event |= {"repo": {"type": "model", "name": text}}
        headers = {"X-Webhook-Secret": "long"}
        assert http.post(f"/v1/hooks/{source}", json=event, headers=headers).status_code == 202
    wanted = {"url": "http://93.184.216.34/", "events": ["support.stored"]}
    wanted |= {"tag": "javascript:alert", "space": "nowhere", "description": " ".join(HOSTILE)}
    return source, ok(http.post("/v1/subscriptions", json=wanted))["id"]
