"""The version before and this one, both running on one database: is a read stale, anything lost?

``python -m tests.soak.version_before`` (``make soak``) takes the code of the last release from
git's history, and lets its service make and fill a database, on SQLite and on Postgres. While that
service answers, this version migrates the database and serves beside it. Each of 2,000 changes goes
through one of the two, and is read at once through the other. Then the old one is stopped, and this
version reads and verifies all. ``--commit`` names another version.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from modelkin import Signature, Support
from tests.soak.machines import Changes, K, M, Machine
from tests.support.backends import SQLITE, Backend, EmptyBackend, PostgresBackend
from tests.support.http_space import SIGNATURE, SUPPORT, random_support
from tests.support.servers.forkserver import ROOT, run
from tests.support.servers.postgres import postgres_server
from tests.support.servers.server_process import Server, environment

_SPACE = "/v1/spaces/s"
_SIGNED = 10
_FILLED, _ALONE = 60, 40
"""Changes before the migration, and after the old service has stopped."""
_JOB_S = 60.0
_SETTINGS = {"MODELKIN_KERNELS": "reference"}


class NoHistoryError(Exception):
    """Git's history does not have the code of the version before."""


class MixedChanges(Changes):
    """Changes of all kinds that both versions know, through one and read through the other."""

    def __init__(self, writer: Machine, reader: Machine, seed: int) -> None:
        super().__init__(writer, reader, seed)
        self.signed: dict[str, Signature] = {}
        self.tags: dict[str, list[str]] = {}
        self.spaces: set[str] = set()
        self.jobs: set[str] = set()
        self.degraded = 0
        self._kinds: dict[Callable[[], None], float] = {
            self._put_or_delete: 0.50,
            self._sign: 0.15,
            self._tag: 0.15,
            self._search: 0.10,
            self._create_or_delete_space: 0.08,
            self._start_job: 0.02,
        }

    def between(self, *sides: Machine) -> None:
        """From here on let these write and read: two in turn, or one alone."""
        self._writer, self._reader = sides[0], sides[-1]

    def step(self) -> None:
        """One change at random."""
        kinds = list(self._kinds)
        kinds[self._random.choice(len(kinds), p=list(self._kinds.values()))]()
        if self._random.random() < 0.5:
            self._writer, self._reader = self._reader, self._writer

    def read_all(self) -> None:
        """Read all that was acknowledged through both, and see all jobs succeed."""
        super().read_all()
        for job in self.jobs:
            self._await(job)
        for side in (self._writer, self._reader):
            for name, signature in self.signed.items():
                found = side.http.get(self._path(name, "signatures"))
                right = found.is_success and Signature.from_bytes(found.content) == signature
                self._expect(right, f"{name} is not what it was: {found.text[:200]}")
            for name, tags in self.tags.items():
                found = side.http.get(self._path(name, "models"))
                right = found.is_success and found.json()["tags"] == tags
                self._expect(right, f"{name} does not have its tags: {found.text}")
            listed = side.http.get("/v1/spaces", params={"limit": 1000}).json()["items"]
            self._expect({each["name"] for each in listed} == {"s", *self.spaces}, f"{listed}")

    def _put_or_delete(self) -> None:
        name, chance = f"org/m{self._random.integers(30)}", self._random.random()
        if name not in self.known or chance < 0.6:
            self._put(name)
        elif chance < 0.8:
            self._again(name)
        else:
            self._delete(name)
            self.tags.pop(name, None)

    def _sign(self) -> None:
        name = f"org/signed{self._random.integers(_SIGNED)}"
        signature = random_support(self._random, M, K).signature()
        body: dict[str, Any] = {
            "content": signature.to_bytes(),
            "headers": {"Content-Type": SIGNATURE},
        }
        stored = self._writer.http.put(self._path(name, "signatures"), **body)
        self._expect(stored.is_success, stored.text)
        before, self.signed[name] = self.signed.get(name), signature
        self.done["signature"] += 1
        found = self._reader.http.post(f"{_SPACE}/neighbors", params={"k": 3}, **body)
        nearest = [each["model"] for each in found.json()["items"]][:1]
        self._expect(nearest == [name], f"{name} is not found: {found.text}")
        read = self._reader.http.get(self._path(name, "signatures"))
        fresh = read.is_success and Signature.from_bytes(read.content) == signature != before
        self._expect(fresh, f"{name} is stale or missing: {read.text[:200]}")

    def _tag(self) -> None:
        names = [*self.known, *self.signed]
        if not names:
            return
        name = str(self._random.choice(names))
        tag = f"t{self._random.integers(1 << 30)}"
        body = {"tags": [tag], "attributes": {"of": tag}}
        changed = self._writer.http.patch(self._path(name, "models"), json=body)
        self._expect(changed.is_success, changed.text)
        self.tags[name] = [tag]
        self.done["metadata"] += 1
        read = self._reader.http.get(self._path(name, "models"))
        right = read.is_success and {key: read.json()[key] for key in body} == body
        self._expect(right, f"{name} has stale metadata: {read.text}")
        listed = self._reader.http.get(f"{_SPACE}/models", params={"tag": tag}).json()["items"]
        self._expect([each["model"] for each in listed] == [name], f"{tag} does not find {name}")

    def _search(self) -> None:
        """Both find the same neighbours of a model, and each finds it in the LSH buckets."""
        if not self.known:
            return
        name = str(self._random.choice(list(self.known)))
        for method in ("exact", "scan"):
            found = [
                side.http.get(f"{_SPACE}/neighbors", params={"model": name, "method": method})
                for side in (self._writer, self._reader)
            ]
            one, other = (
                [(each["model"], each["similarity"]) for each in answer.json().get("items", [])]
                for answer in found
            )
            self._expect(one == other, f"{method} of {name} differs: {one}, {other}")
        for side in (self._writer, self._reader):
            found_there = self._found_by_buckets(side, self.known[name])
            self._expect(name in found_there, f"{name} is not in the buckets: {found_there}")
        self.done["search"] += 1

    def _found_by_buckets(self, side: Machine, support: Support) -> list[str]:
        """The models that equal a support. While buckets are made a scan may answer, and says so.

        Unrelated models share a bucket by chance, so no two answers list the same of these.
        """
        answer = side.http.post(
            f"{_SPACE}/neighbors",
            params={"k": 3, "method": "lsh"},
            content=support.to_bytes(),
            headers={"Content-Type": SUPPORT},
        ).json()
        self.degraded += answer.get("degraded", False)
        return [each["model"] for each in answer.get("items", []) if each["similarity"] == 1.0]

    def _create_or_delete_space(self) -> None:
        name = f"space{self._random.integers(10)}"
        at = f"/v1/spaces/{name}"
        if name in self.spaces:
            answer = self._writer.http.delete(at)
            self.spaces.remove(name)
        else:
            answer = self._writer.http.post(
                "/v1/spaces", json={"name": name, "num_parameters": 1_000}
            )
            self.spaces.add(name)
        self.done["space"] += 1
        self._expect(answer.is_success, answer.text)
        there = self._reader.http.get(at).status_code
        self._expect(there == (200 if name in self.spaces else 404), f"{name} is stale: {there}")

    def _start_job(self) -> None:
        """A job that one takes, and the other sees; it runs beside the next changes."""
        clusters = self._random.random() < 0.5 and len(self.known) > 2
        kind, body = ("clusterings", {}) if clusters else ("jobs", {"kind": "rebuild_buckets"})
        asked = self._writer.http.post(f"{_SPACE}/{kind}", json=body)
        self._expect(asked.status_code == 202, asked.text)
        self.done["clustering" if clusters else "rebuilt buckets"] += 1
        job = asked.json()["id"]
        self.jobs.add(job)
        there = self._reader.http.get(f"/v1/jobs/{job}")
        self._expect(there.status_code == 200, f"a job is missing: {there.text}")

    def _await(self, job: str) -> None:
        end = time.monotonic() + _JOB_S
        while True:
            found = self._reader.http.get(f"/v1/jobs/{job}").json()
            if found.get("finished_at") or time.monotonic() > end:
                break
            time.sleep(0.1)
        self._expect(found.get("state") == "succeeded", f"a job did not succeed: {found}")


def release_before() -> str:
    """The newest commit that dated a release in the changelog, and lacks the newest migration."""
    if _git("rev-parse", "--is-shallow-repository").strip() == b"true":
        raise NoHistoryError("this clone has no history: run `git fetch --unshallow`")
    heading = r"-G^## [0-9]+\.[0-9]+\.[0-9]+ "
    newest = f"migrations/versions/{_newest_migration(ROOT)}"
    for commit in _git("log", "--format=%H", heading, "--", "CHANGELOG.md").decode().split():
        if not _git("ls-tree", "--name-only", commit, newest):
            return commit
    raise NoHistoryError("no release lacks the newest migration")


def resolved(name: str) -> str:
    """The commit that a person named."""
    return _git("rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()


def export(commit: str, folder: Path) -> None:
    """Write the code of a commit to a folder."""
    packed = _git("archive", commit, "app", "client_sdk", "migrations", "workers")
    # The filters of tarfile came with Python 3.11.4, and a distribution's may be older.
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
    if _newest_migration(folder) >= _newest_migration(ROOT):
        raise NoHistoryError(f"{commit} has every migration of this version: nothing can be tried")


def _newest_migration(root: Path) -> str:
    return max(file.name for file in (root / "migrations" / "versions").glob("[0-9]*.py"))


def _git(*arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True)
    except FileNotFoundError as error:
        raise NoHistoryError("git is not installed") from error
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode().strip()
        raise NoHistoryError(f"git {' '.join(arguments)}: {reason}") from error
    return done.stdout


def side_by_side(
    code: Path, folder: Path, backend: Backend, changes: int, seed: int
) -> MixedChanges:
    """Run both versions on one database of this kind, and then this one alone.

    Args:
        code: of the version before.
        folder: for their stores.
        changes: how many, while both run.
        seed: of what they are.
    """
    empty = EmptyBackend(backend)
    # This version carries out the jobs of Postgres: workers of the other one stop before it starts.
    old = Server(folder, backend=empty, source=str(code), **_SETTINGS)
    new = Server(folder, backend=empty, **_SETTINGS, MODELKIN_EMBEDDED_WORKER="on")
    old.log, new.log = folder / "old.log", folder / "new.log"
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        before = _started(stack, old)
        made = MixedChanges(before, before, seed)
        _watch(before, made)
        for _ in range(_FILLED):
            made.step()
        starting = pool.submit(_started, stack, new)
        while not starting.done():
            made.step()
        this = starting.result()
        _watch(this, made)
        made.between(before, this)
        end = made.done.total() + changes
        while made.done.total() < end:
            made.step()
        made.read_all()
        _expect_end(made, old)
        made.between(this)
        for _ in range(_ALONE):
            made.step()
        made.read_all()
        _expect_end(made, new)
    _verify(made, new)
    return made


def _started(stack: ExitStack, server: Server) -> Machine:
    server.start()
    stack.callback(server.kill)
    http = httpx.Client(base_url=server.url, timeout=60, trust_env=False)
    return Machine(server, stack.enter_context(http))


def _watch(side: Machine, changes: MixedChanges) -> None:
    """Count each error of a server as wrong, also where a step does not read the status."""

    def see(answer: httpx.Response) -> None:
        if answer.status_code >= 500:
            answer.read()
            changes.wrong.append(f"{answer.request.method} {answer.url}: {answer.text}")

    side.http.event_hooks = {"response": [see]}


def _expect_end(changes: MixedChanges, server: Server) -> None:
    code = server.stop()
    if code != 0:
        changes.wrong.append(f"exit code {code}: {server.log.read_text()[-2000:]}")


def _verify(changes: MixedChanges, server: Server) -> None:
    stores = {
        "MODELKIN_DATABASE_URL": server.database_url,
        "MODELKIN_BLOB_URL": f"file://{server.blobs}",
    }
    done = run("app", "verify", "--deep", env=environment(**stores, **_SETTINGS))
    if done.returncode != 0:
        changes.wrong.append(f"verify: {done.stdout}{done.stderr}")


def main() -> int:
    """Print what was done and what was wrong: 1 if anything was, 2 for a wrong commit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", help="of the version before; by default the last release")
    parser.add_argument("--changes", type=int, default=2_000, help="on each database")
    parser.add_argument("--seed", type=int, default=34)
    parser.add_argument("--database", choices=("sqlite", "postgres"), help="this one alone")
    options = parser.parse_args()
    with postgres_server() as server, tempfile.TemporaryDirectory() as root:
        code = Path(root) / "code"
        try:
            commit = resolved(options.commit) if options.commit else release_before()
            export(commit, code)
        except NoHistoryError as error:
            print(f"NOT RUN, there is no version before: {error}", file=sys.stderr)
            return 2 if options.commit else 0
        wrong = 0
        for backend in (SQLITE, PostgresBackend(server)):
            if options.database not in {None, backend.name}:
                continue
            (folder := Path(root) / backend.name).mkdir()
            made = side_by_side(code, folder, backend, options.changes, options.seed)
            print(
                f"{backend.name}, {commit[:8]}: {made.done.total()} changes, "
                f"{dict(sorted(made.done.items()))}: {len(made.wrong)} stale, lost or wrong; "
                f"{made.degraded} answers by a scan in place of buckets",
                *made.wrong[:5],
                sep="\n  ",
                flush=True,
            )
            wrong += len(made.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
