"""Every problem that an operation declares is one that it answers: each is provoked here.

That nothing else is answered is checked wherever the service's tests use a ``checked`` client.
"""

from __future__ import annotations

import re
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest

from app.infra.db.ids import new_id
from app.tenancy.auth.service import generate
from modelkin.core.packed import PackedSupport
from modelkin.federation.sharing import Aggregator
from modelkin.wire import FINGERPRINT, SAFETENSORS
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.backends import SQLITE, Backend, PostgresBackend
from tests.support.declared_problems import DECLARED, OPERATIONS, Operation, checked
from tests.support.federations.merging import HubMerge
from tests.support.http_space import JSON, Space
from tests.support.models.learngene_files import gene
from tests.support.models.made_fingerprints import made_fingerprint
from tests.support.provocations import (
    FULL,
    SOURCE,
    SUBSCRIPTION,
    UNPROVOKED,
    VALID,
    M,
    Request,
    growing,
    provocation,
    typed,
    with_header,
)
from tests.support.servers.postgres import Postgres
from tests.support.servers.server_process import Server, raw_exchange

# --- services ---------------------------------------------------------------------------------


@dataclass
class Site:
    """A service, and what is in it.

    Attributes:
        ids: what stands for the parameters of paths, and for the names that requests use.
        headers: of every request.
        tokens: of the party ``full``, by merge.
        cells: other ones than those that are stored, by operation.
    """

    server: Server
    http: httpx.Client
    ids: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    cells: dict[str, bytes] = field(default_factory=dict)

    def path(self, operation: Operation, at: Mapping[str, str]) -> str:
        """The path of an operation, each parameter in its place."""
        usual = {"space": "s", "model": "full", "clustering": "latest", "merge": "sending"}
        usual["owner"] = "default"
        usual |= {"cluster": "all", **dict.fromkeys(("attempt", "shard", "piece"), "0")}
        path = operation.path
        for name in re.findall(r"{(\w+)}", path):
            value = at.get(name, self.ids.get(name, usual.get(name, "none")))
            path = path.replace(f"{{{name}}}", quote(self.ids.get(value, value), safe=""))
        return path

    def ask(self, operation: Operation, different: Request | None = None) -> httpx.Response:
        """The answer to a valid request, but for what is to be different."""
        request = {**VALID.get(operation.name, {}), **(different or {})}
        if "content" in request:
            request.pop("json", None)
        at = request.pop("at", {})
        path = self.path(operation, at)
        token = {"Member-Token": self.tokens.get(at.get("merge", "sending"), "none")}
        request["headers"] = {**self.headers, **token, **request.get("headers", {})}
        return self.http.request(operation.method, path, **request)

    def send(self, operation: Operation, length: int, content: bytes) -> httpx.Response:
        """The answer to a body that is shorter than it says, sent as it is."""
        headers = VALID[operation.name].get("headers", {})
        lines = [
            f"{operation.method} {self.path(operation, {})} HTTP/1.1",
            "Host: localhost",
            *(f"{name}: {value}" for name, value in ({"Content-Type": JSON} | headers).items()),
            f"Content-Length: {length}",
        ]
        head, _, body = raw_exchange(
            self.server.url, "\r\n".join(lines).encode() + b"\r\n\r\n" + content
        ).partition(b"\r\n\r\n")
        return httpx.Response(int(head.split()[1]), content=body)

    def made(self, path: str, **body: Any) -> dict[str, Any]:
        """What a POST made."""
        answer = self.http.post(path, json=body, headers=self.headers)
        assert answer.is_success, answer.text
        document: dict[str, Any] = answer.json()
        return document


Open = Callable[..., Site]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Starts services, each with a folder of its own unless one is given."""
    opened: list[Site] = []

    def start(
        *flags: str, folder: Path | None = None, backend: Backend = SQLITE, **settings: str
    ) -> Site:
        own = folder or tmp_path_factory.mktemp("service")
        server = Server(own, *flags, backend=backend, **settings).start()
        client = httpx.Client(base_url=server.url, timeout=60, trust_env=False)
        opened.append(Site(server, checked(client)))
        return opened[-1]

    yield start
    for site in opened:
        site.http.close()
        site.server.kill()


def put_models(site: Site) -> None:
    """A space ``s`` with the models ``full`` and ``alone``; spaces ``empty``, and ``data``."""
    for name in ("s", "empty"):
        site.made("/v1/spaces", name=name, num_parameters=M)
    spec = {"constant": 0.0, "weighting": "flat", "compare": "whole"}
    site.made("/v1/spaces", name="data", num_parameters=4, kind="subspaces", subspaces=spec)
    site.ask(OPERATIONS["put_support"]).raise_for_status()
    site.ask(OPERATIONS["put_signature"]).raise_for_status()


def put_public_spaces(site: Site) -> None:
    """``s`` is public; so is ``asked``, which has been asked as often as it may be."""
    site.made("/v1/spaces", name="asked", num_parameters=M)
    site.ask(OPERATIONS["publish_space"]).raise_for_status()
    once = {"at": {"space": "asked"}, "json": {"daily_queries": 1}}
    site.ask(OPERATIONS["publish_space"], once).raise_for_status()
    site.ask(OPERATIONS["find_public_neighbors"], once).raise_for_status()


def put_merges(site: Site) -> None:
    """Merges of ``full`` and ``alone``: joining, sending with a cell, and done."""
    space = Space.existing(site.http, "s", M)
    values = np.ones(M, np.float32)
    members = {"full": values, "alone": values}
    given: dict[str, Any] = {"min_members": 1, "aggregators": 2, "deadline": 600, "store": False}
    HubMerge(space, members, "joining", **given)
    sending = HubMerge(space, members, "sending", **given)
    sending.join_all()
    (where, data), *_ = sending.parties["full"].cells()
    sending.parties["full"].put(where, data)
    done = HubMerge(space, {"full": values}, "done", **{**given, "aggregators": 1})
    done.join_all()
    done.send_all()
    done.aggregate_all()
    (_, other), *_ = sending.parties["full"].cells()
    party = done.parties["full"]
    roster, current = done.roster(), done.round()
    another = Aggregator(roster, 0, party.key).seal_result(0, 0, values, current)
    site.cells = {"put_cell": other, "put_result": another}
    site.tokens = {"sending": sending.parties["full"].token, "done": party.token}


def put_learngenes(site: Site) -> None:
    """The learngene of all in ``s``, with its file, and in ``empty``, without."""
    file = typed(SAFETENSORS, gene())
    site.ask(OPERATIONS["put_learngene"], file).raise_for_status()
    site.ask(OPERATIONS["put_learngene"], {"at": {"space": "empty"}}).raise_for_status()


def put_fingerprints(site: Site) -> None:
    """Those of ``full``, and of ``of-hub``, which the service is said to have read itself."""
    put = OPERATIONS["put_fingerprint"]
    site.ask(put).raise_for_status()
    other = typed(FINGERPRINT, made_fingerprint(2).to_bytes())
    site.ask(put, {"at": {"model": "of-hub"}, **other}).raise_for_status()
    with sqlite3.connect(site.server.folder / "m.db", timeout=30) as database:
        database.execute("UPDATE fingerprints SET stated_by = 'hub' WHERE name = 'of-hub'")


@pytest.fixture(scope="module")
def service(start: Open) -> Site:
    """A service that does its jobs, with one of everything."""
    keeping = "--max-learngene-bytes=10000"
    site = start("--egress-allow=127.0.0.1", "--embedded-worker=on", keeping)
    put_models(site)
    site.ask(OPERATIONS["put_subspace"]).raise_for_status()
    site.made("/v1/spaces/data/clusterings", algorithm="agglomerative")
    job = site.made("/v1/spaces/s/clusterings", algorithm="agglomerative")["id"]
    end = time.monotonic() + 60
    while site.http.get(f"/v1/jobs/{job}").json()["state"] != "succeeded":
        assert time.monotonic() < end
        time.sleep(0.05)
    subscriptions = {
        name: site.made("/v1/subscriptions", **SUBSCRIPTION)["id"]
        for name in ("subscription", "disabled", "rotated")
    }
    site.ids = {"job": job, "source": site.made("/v1/sources", **SOURCE)["id"], **subscriptions}
    put_merges(site)
    put_learngenes(site)
    put_public_spaces(site)
    put_fingerprints(site)
    path = f"/v1/subscriptions/{site.ids['disabled']}"
    site.http.patch(path, json={"enabled": False}).raise_for_status()
    while site.http.post(f"/v1/subscriptions/{site.ids['rotated']}/rotate-secret").is_success:
        pass  # until as many secrets sign as may
    return site


@pytest.fixture(scope="module")
def locked(start: Open) -> Site:
    """A service that asks for keys; ``reader`` and ``meter`` may do one thing each."""
    site = start("--auth=required")
    site.ids = {
        "reader": new_key(site.server, "--scope", "read"),
        "meter": new_key(site.server, "--scope", "metrics"),
    }
    return site


@pytest.fixture(scope="module")
def limited(start: Open) -> Site:
    """A service that answers two requests in a minute, and two wrong keys."""
    site = start("--auth=required", "--rate-limit=2")
    site.headers = {"Authorization": f"Bearer {generate()}"}
    return site


@pytest.fixture(scope="module")
def broken(start: Open) -> Site:
    """A service whose database has lost its tables."""
    site = start("--auth=required")
    site.headers = {"Authorization": f"Bearer {generate()}"}
    site.ids = {"source": new_id(datetime.now(UTC))}
    with sqlite3.connect(site.server.folder / "m.db", timeout=30) as database:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (table,) in database.execute(named).fetchall():
            database.execute(f"ALTER TABLE {table} RENAME TO lost_{table}")
    return site


@pytest.fixture(scope="module")
def impatient(start: Open) -> Site:
    """A service that waits 0.3 s for a body."""
    return start("--body-timeout-seconds=0.3")


@pytest.fixture(scope="module")
def crowded(start: Open) -> Site:
    """A service with as much of everything as a tenant may have."""
    size = len(PackedSupport.pack(FULL).to_bytes())
    quotas = {"spaces": 4, "models": 2, "support-bytes": 3 * size // 2}
    none = dict.fromkeys(("sources", "subscriptions", "reporters", "merges", "fingerprints"), 0)
    quotas |= {"queued-jobs": 1, **none}
    flags = (f"--quota-{name}={most}" for name, most in quotas.items())
    site = start("--egress-allow=127.0.0.1", "--embedded-worker=off", *flags)
    put_models(site)
    site.made("/v1/spaces", name="agreed", num_parameters=M, support_size={"policy": "agreed"})
    site.ids = {"job": site.made("/v1/spaces/empty/jobs", kind="rebuild_buckets")["id"]}
    return site


@pytest.fixture(scope="module")
def keyless(start: Open, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A service without a key for secrets, with a source from when it had one."""
    folder, backend = tmp_path_factory.mktemp("keyless"), PostgresBackend(postgres)
    flag = "--egress-allow=127.0.0.1"
    before = start(flag, folder=folder, backend=backend, MODELKIN_ENCRYPTION_KEYS="k" * 32)
    source = before.made("/v1/sources", **SOURCE)["id"]
    assert before.server.stop() == 0
    site = start(flag, folder=folder, backend=backend)
    site.ids = {"source": source}
    return site


@pytest.fixture(scope="module")
def cramped(start: Open) -> Site:
    """A service whose files may not grow beyond 1 KiB any more."""
    site = start()
    put_models(site)
    assert site.server.process.pid is not None
    resource.prlimit(site.server.process.pid, resource.RLIMIT_FSIZE, (1024, 1024))
    return site


@pytest.fixture(scope="module")
def hurried(start: Open) -> Site:
    """A service that has no time to compute an answer, and no worker that does so before."""
    site = start("--query-timeout-seconds=1e-9", "--embedded-worker=off")
    put_models(site)
    site.ask(OPERATIONS["publish_space"]).raise_for_status()
    for name in ("full", "copy"):
        site.ask(OPERATIONS["put_fingerprint"], {"at": {"model": name}}).raise_for_status()
    end = time.monotonic() + 60
    while site.ask(OPERATIONS["find_anatomy"]).json()["code"] == "unavailable":
        assert time.monotonic() < end  # the index is built by one question and the next
    return site


WHERE = {
    "unauthorized": "locked",
    "forbidden": "locked",
    "rate_limited": "limited",
    "too_much": "hurried",
    "unavailable": "broken",
    "body_timeout": "impatient",
    "secret_key_missing": "keyless",
    "storage_full": "cramped",
    "quota_exceeded": "crowded",
}
"""Codes that a service in good health does not answer."""


def _marked(problem: tuple[str, int, str]) -> Any:
    """A problem as a parameter: one of them is provoked in a service on Postgres."""
    on_postgres = WHERE.get(problem[2]) == "keyless"
    return pytest.param(*problem, marks=pytest.mark.postgres if on_postgres else ())


# --- tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status", "code"), [_marked(each) for each in DECLARED if each not in UNPROVOKED]
)
def test_a_declared_problem_is_answered(
    request: pytest.FixtureRequest, name: str, status: int, code: str
) -> None:
    """A request provokes each problem that an operation declares."""
    operation = OPERATIONS[name]
    where = WHERE.get(code, "service")
    if (name, code) == ("follow_merge", "quota_exceeded"):
        where = "service"  # its streams, and not its merges, are as many as may be
    if (name, code) == ("put_learngene", "values_not_kept"):
        where = "hurried"  # which keeps none, as by default
    answer = provoked(operation, code, request.getfixturevalue(where))
    assert (status, code) == (answer.status_code, answer.json()["code"]), answer.text


def provoked(operation: Operation, code: str, site: Site) -> httpx.Response:
    """The answer to what provokes a problem."""
    match code:
        case "unauthorized" | "unavailable" | "too_much":
            return site.ask(operation)
        case "forbidden":
            key = site.ids["reader" if operation.name == "metrics" else "meter"]
            return site.ask(operation, with_header(operation, "Authorization", f"Bearer {key}"))
        case "rate_limited":
            answers = (site.ask(operation) for _ in range(4))
            return next(answer for answer in answers if answer.status_code == 429)
        case "body_timeout":
            return site.send(operation, 100, b"{")
        case "payload_too_large":
            return site.send(operation, 1 << 40, b"")
        case "storage_full":
            return site.ask(operation, growing(operation))
        case "merge_exists" if operation.name in site.cells:
            return site.ask(operation, {"content": site.cells[operation.name]})
        case "quota_exceeded" if operation.name in {"follow_job", "follow_merge"}:
            path = site.path(operation, {"merge": "joining"})
            with ExitStack() as streams:
                for _ in range(50):
                    streams.enter_context(site.http.stream("GET", path))
                return site.ask(operation)
        case _:
            return site.ask(operation, provocation(operation, code))


def test_what_is_not_provoked_is_declared() -> None:
    """The list of exceptions names nothing that no operation declares."""
    assert UNPROVOKED.keys() <= set(DECLARED)
