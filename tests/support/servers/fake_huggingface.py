"""A Hugging Face hub on loopback: real servers for the hub and for the CDN of its large files.

They answer as ``huggingface_hub`` expects, and tests can make them misbehave.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

TOKEN = "hf_of_a_user"
LARGE = (".safetensors", ".gguf")
"""Endings of the files that the CDN has."""


@dataclass
class Repo:
    """A model repository: its commits, the newest last, each with all its files."""

    name: str
    private: bool = False
    gated: bool = False
    card: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)
    created: str | None = None
    changed: str = "2026-01-01T00:00:00.000Z"

    def push(self, files: dict[str, bytes]) -> str:
        """Commit these files and no others; return the sha."""
        content = json.dumps([self.name, len(self.commits), sorted(files)])
        sha = hashlib.sha1(content.encode()).hexdigest()
        self.commits.append((sha, files))
        return sha

    def files(self, revision: str | None) -> tuple[str, dict[str, bytes]] | None:
        if revision in {None, "main"}:
            return self.commits[-1]
        return next((commit for commit in self.commits if commit[0] == revision), None)


Fault = Callable[["Handler"], bool]
"""Answers a request in its own way, and says whether it has."""


class Hub:
    """The state of both servers, and the requests that they received."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.moved: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        """What is declared of a file, by its path, where that is a lie."""
        self.blobs: dict[str, bytes] = {}
        self.on_hub: Fault = lambda _: False
        self.on_cdn: Fault = lambda _: False
        self.hub_tokens: set[str | None] = set()
        self.cdn_tokens: set[str | None] = set()
        self.downloads: list[str] = []
        self.sent: list[int] = []
        """The bytes of each answer of the CDN."""
        self.url = self.cdn = ""

    def repo(self, name: str, **known: Any) -> Repo:
        return self.repos.setdefault(name, Repo(name, **known))

    def push(self, name: str, files: dict[str, bytes], **known: Any) -> str:
        """Commit to a repository, which is created if it does not exist; return the sha."""
        for data in files.values():
            self.blobs[hashlib.sha256(data).hexdigest()] = data
        repo = self.repo(name)
        for key, value in known.items():
            setattr(repo, key, value)
        return repo.push({"README.md": b"# A model", **files})

    def move(self, old: str, new: str) -> None:
        repo = self.repos.pop(old)
        repo.name = new
        self.repos[new] = repo
        self.moved[old] = new


class Handler(BaseHTTPRequestHandler):
    """The common part of both servers."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        raise NotImplementedError

    def say(self, status: int, body: bytes | memoryview = b"", **headers: Any) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def say_json(self, value: Any, **headers: Any) -> None:
        self.say(200, json.dumps(value).encode(), Content_Type="application/json", **headers)

    def refuse(self, status: int, code: str, message: str) -> None:
        error = json.dumps({"error": message}).encode()
        self.say(status, error, X_Error_Code=code, X_Error_Message=message)

    @property
    def token(self) -> str | None:
        return self.headers.get("Authorization")


class _Hub(Handler):
    def do_GET(self) -> None:
        self.hub.hub_tokens.add(self.token)
        if self.hub.on_hub(self):
            return
        if self.token not in {None, f"Bearer {TOKEN}"}:
            message = "Invalid credentials in Authorization header"
            self.say(401, b"{}", X_Error_Message=message)
            return
        path = urlsplit(self.path).path
        if path == "/api/models":
            self.listing()
        elif path == "/api/whoami-v2":
            self.whoami()
        elif match := re.fullmatch(r"/api/models/(.+?)(?:/revision/([^/]+))?", path):
            self.info(unquote(match[1]), match[2] and unquote(match[2]))
        elif match := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
            self.resolve(unquote(match[1]), unquote(match[2]), unquote(match[3]))
        else:
            self.refuse(404, "EntryNotFound", "Entry not found")

    def listing(self) -> None:
        """Answer with pages of two models, linked as in RFC 8288."""
        asked = parse_qs(urlsplit(self.path).query)
        author, tags = asked.get("author", [None])[0], asked.get("filter", [])
        seen = [
            repo
            for name, repo in sorted(self.hub.repos.items())
            if (author is None or name.startswith(f"{author}/"))
            and all(tag in repo.tags for tag in tags)
            and (self.token or not repo.private)
        ]
        at = int(asked.get("cursor", ["0"])[0])
        headers: dict[str, Any] = {}
        if at + 2 < len(seen):
            query = f"author={author}&full=true&cursor={at + 2}" if author else f"cursor={at + 2}"
            headers["Link"] = f'<{self.hub.url}/api/models?{query}>; rel="next"'
        self.say_json([self.described(repo, None) for repo in seen[at : at + 2]], **headers)

    def whoami(self) -> None:
        if self.token is None:
            self.refuse(401, "", "Invalid username or password.")
        else:
            self.say_json({"type": "user", "name": "a-user"})

    def info(self, name: str, revision: str | None) -> None:
        if name in self.hub.moved:
            location = f"/api/models/{self.hub.moved[name]}?{urlsplit(self.path).query}"
            self.say(307, Location=location)
        elif (repo := self.seen(name)) is not None:
            if repo.files(revision) is None:
                self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            else:
                self.say_json(self.described(repo, revision))

    def resolve(self, name: str, revision: str, path: str) -> None:
        repo = self.seen(self.hub.moved.get(name, name))
        if repo is None:
            return
        if repo.gated and not self.token:
            self.refuse(401, "GatedRepo", f"Access to model {name} is restricted")
            return
        commit = repo.files(revision)
        if commit is None or path not in commit[1]:
            self.refuse(404, "EntryNotFound", "Entry not found")
            return
        self.hub.downloads.append(path) if self.command == "GET" else None
        data = commit[1][path]
        headers: dict[str, Any] = {"X_Repo_Commit": commit[0], "Accept_Ranges": "bytes"}
        if not path.endswith(LARGE):
            self.say(200, data, ETag=f'"{hashlib.sha1(data).hexdigest()}"', **headers)
            return
        digest = hashlib.sha256(data).hexdigest()
        self.say(
            302,
            Location=f"{self.hub.cdn}/lfs/{digest}?signed={quote(path)}",
            X_Linked_Size=len(data),
            X_Linked_ETag=f'"{digest}"',
            ETag=f'"{digest}"',
            **headers,
        )

    def seen(self, name: str) -> Repo | None:
        """The repository; a client that may not see it gets the hub's refusal."""
        repo = self.hub.repos.get(name)
        if repo is not None and (self.token or not repo.private):
            return repo
        status = 404 if self.token else 401
        self.refuse(status, "RepoNotFound", "Repository not found")
        return None

    def described(self, repo: Repo, revision: str | None) -> dict[str, Any]:
        found = repo.files(revision)
        assert found is not None
        sha, files = found
        return {
            "id": repo.name,
            "modelId": repo.name,
            "sha": sha,
            "private": repo.private,
            "gated": "auto" if repo.gated else False,
            "tags": repo.tags,
            "pipeline_tag": "text-generation",
            "library_name": "transformers",
            "lastModified": repo.changed,
            **({} if repo.created is None else {"createdAt": repo.created}),
            "cardData": repo.card,
            "siblings": [self.sibling(path, data) for path, data in files.items()],
        }

    def sibling(self, path: str, data: bytes) -> dict[str, Any]:
        size = self.hub.sizes.get(path, len(data))
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry: dict[str, Any] = {"rfilename": path, "size": size, "blobId": blob}
        if path.endswith(LARGE):
            digest = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"sha256": digest, "size": size, "pointerSize": 134}
        return entry


class _Cdn(Handler):
    def do_GET(self) -> None:
        self.hub.cdn_tokens.add(self.token)
        if self.hub.on_cdn(self):
            return
        data = self.hub.blobs[urlsplit(self.path).path.rpartition("/")[2]]
        begin = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if begin is None:
            self.hub.sent.append(len(data))
            self.say(200, data)
            return
        first = int(begin[1])
        if first >= len(data):
            self.say(416, Content_Range=f"bytes */{len(data)}")
            return
        last = min(int(begin[2]), len(data) - 1) if begin[2] else len(data) - 1
        self.hub.sent.append(last + 1 - first)
        self.say(206, data[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(data)}")


def answering(status: int, body: bytes = b"", **headers: Any) -> Fault:
    """A fault that gives every request this answer."""

    def answer(request: Handler) -> bool:
        request.say(status, body, **headers)
        return True

    return answer


@contextmanager
def loopback_hub() -> Iterator[Hub]:
    """A hub and its CDN, each on its own port."""
    hub = Hub()
    servers = []
    for kind in (_Hub, _Cdn):
        bound = type(kind.__name__, (kind,), {"hub": hub})
        server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
    hub.url, hub.cdn = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
