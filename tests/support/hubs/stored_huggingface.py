"""A Hugging Face hub on loopback whose checkpoints lie on the disk, since they are many or large.

A repository is a folder, ``owner/name``, with one ``model.safetensors`` and a page. The digests of
its weights are computed once.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from tests.support.servers.fake_huggingface import Handler

__all__ = ["StoredHub", "stored_hub"]

WEIGHTS: Final = "model.safetensors"
_PAGE: Final = "page.json"
_OF_A_LISTING: Final = 50


@dataclass
class StoredHub:
    """A hub of a folder.

    Attributes:
        folder: has the repositories.
        url: its address while it is served.
        pages: what it answers of each repository, by its name.
        sent: how often the weights of each were sent, by their bytes.
    """

    folder: Path
    url: str = ""
    pages: dict[str, dict[str, Any]] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.glob(f"*/*/{_PAGE}")):
            page = json.loads(path.read_text())
            self.pages[page["id"]] = page

    def push(
        self,
        name: str,
        tensors: Mapping[str, npt.NDArray[Any]],
        card: Mapping[str, Any],
        created: str,
    ) -> None:
        """Store a repository of one commit."""
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        save_file(
            {key: np.ascontiguousarray(values) for key, values in tensors.items()}, place / WEIGHTS
        )
        with (place / WEIGHTS).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = (place / WEIGHTS).stat().st_size
        page = {
            "id": name,
            "sha": hashlib.sha1(f"{name} {digest}".encode()).hexdigest(),
            "private": False,
            "gated": False,
            "tags": [],
            "pipeline_tag": "text-generation",
            "library_name": "transformers",
            "createdAt": created,
            "lastModified": created,
            "cardData": dict(card),
            "siblings": [
                {
                    "rfilename": WEIGHTS,
                    "size": size,
                    "blobId": digest[:40],
                    "lfs": {"sha256": digest, "size": size, "pointerSize": 134},
                }
            ],
        }
        (place / _PAGE).write_text(json.dumps(page))
        self.pages[name] = page


class _Stored(Handler):
    stored: StoredHub

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/api/models":
            self.listing()
        elif match := re.fullmatch(r"/api/models/(.+?)(?:/revision/[^/]+)?", path):
            self.page(unquote(match[1]))
        elif match := re.fullmatch(rf"/(.+?)/resolve/([^/]+)/{WEIGHTS}", path):
            self.weights(unquote(match[1]))
        else:
            self.refuse(404, "EntryNotFound", "Entry not found")

    def listing(self) -> None:
        """Answer with pages of some models, linked as in RFC 8288."""
        asked = parse_qs(urlsplit(self.path).query)
        author = asked.get("author", [None])[0]
        seen = [
            page
            for name, page in sorted(self.stored.pages.items())
            if author is None or name.startswith(f"{author}/")
        ]
        at = int(asked.get("cursor", ["0"])[0])
        headers: dict[str, Any] = {}
        if at + _OF_A_LISTING < len(seen):
            query = f"cursor={at + _OF_A_LISTING}" + (f"&author={author}" if author else "")
            headers["Link"] = f'<{self.stored.url}/api/models?{query}>; rel="next"'
        self.say_json(seen[at : at + _OF_A_LISTING], **headers)

    def page(self, name: str) -> None:
        page = self.stored.pages.get(name)
        if page is None:
            self.refuse(404, "RepoNotFound", "Repository not found")
        else:
            self.say_json(page)

    def weights(self, name: str) -> None:
        page = self.stored.pages.get(name)
        if page is None:
            self.refuse(404, "RepoNotFound", "Repository not found")
            return
        with (self.stored.folder / name / WEIGHTS).open("rb") as file:
            size = page["siblings"][0]["size"]
            part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            begin = int(part[1]) if part else 0
            last = min(int(part[2]), size - 1) if part and part[2] else size - 1
            if self.command == "GET":
                sent = self.stored.sent
                sent[name] = sent.get(name, 0.0) + (last + 1 - begin) / size
            file.seek(begin)
            headers: dict[str, Any] = {"Accept_Ranges": "bytes", "X_Repo_Commit": page["sha"]}
            headers["ETag"] = f'"{page["siblings"][0]["lfs"]["sha256"]}"'
            if part:
                headers["Content_Range"] = f"bytes {begin}-{last}/{size}"
            self.say(206 if part else 200, file.read(last + 1 - begin), **headers)


class _Server(ThreadingHTTPServer):
    """Says nothing of clients that were killed while they were answered."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def stored_hub(folder: Path) -> Iterator[StoredHub]:
    """Serve the hub of a folder."""
    hub = StoredHub(folder)
    server = _Server(("127.0.0.1", 0), type("Bound", (_Stored,), {"stored": hub}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
