"""Client of the Hugging Face Hub and of servers with its API.

Models are repositories, revisions are commits. The requests are those of ``huggingface_hub``. That
package is not used: it has one HTTP layer a process, which cannot be a guarded client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from app.hubs.clients.http import HubHttpClient, require_few, text_of
from app.hubs.clients.protocol import HubFile, HubModel, HubRevision, Received
from app.hubs.filters import Filters
from app.infra.errors import HubForbidden, HubNotFound, HubProtocolError
from modelkin._validation import quote_model
from modelkin.errors import InvalidName, ModelkinError

__all__ = ["HuggingFace", "refusal"]

_PAGE_SIZE: Final = 100
_MAX_PAGES: Final = 1000
"""The most pages of one listing, over all its owners."""
_BASE_MODEL_TAG: Final = re.compile(r"base_model:(?:\w+:)?(.+)")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class HuggingFace:
    """The :class:`app.hubs.clients.protocol.Hub` of a Hugging Face hub."""

    def __init__(self, transfer: HubHttpClient) -> None:
        self._transfer = transfer

    def models(self, filters: Mapping[str, Any]) -> Iterator[HubModel]:
        narrowed = Filters.of(filters)
        pages = iter(range(_MAX_PAGES))
        authors = narrowed.named_owners or (None,)
        items = (item for author in authors for item in self._pages(author, narrowed, pages))
        for item in require_few(items, self._transfer.host):
            if isinstance(item, dict) and (name := text_of(item.get("id"))) is not None:
                yield HubModel(name, text_of(item.get("sha")), _tags(item))

    def look_up(self, name: str, revision: str | None = None) -> HubRevision:
        path, blobs = f"/api/models/{_quote(name)}", {"blobs": "true"}
        if revision is not None:
            path += f"/revision/{quote(revision, safe='')}"
        try:
            found, _, _ = self._transfer.json(path, blobs)
        except HubNotFound:
            if revision is not None:
                raise
            # Mirrors may serve only the requests of whole-repository downloads.
            found, _, _ = self._transfer.json(f"{path}/revision/main", blobs)
        if not isinstance(found, dict):
            raise HubProtocolError(f"{self._transfer.host} answered no description of {name}")
        current, sha = text_of(found.get("id")) or name, text_of(found.get("sha"), 200)
        if sha is None:
            raise HubProtocolError(f"{self._transfer.host} names no commit of {name}")
        if found.get("disabled") is True:
            raise HubForbidden(f"{name} is disabled on {self._transfer.host}")
        return HubRevision(
            name=current,
            revision=sha,
            tags=_tags(found),
            base_model=_base_model(found),
            private=found.get("private") is True,
            attributes=_attributes(found),
            files=tuple(_files(found.get("siblings"))),
            address=f"{self._transfer.base}/{current}/tree/{sha}",
        )

    def download(
        self, revision: HubRevision, file: HubFile, into: Path, received: Received | None = None
    ) -> int:
        return self._transfer.download(_url(revision, file), file, into, received)

    def beginning(
        self, revision: HubRevision, file: HubFile, size: int
    ) -> tuple[bytes, int | None]:
        return self._transfer.beginning(_url(revision, file), size)

    def knows_us(self) -> bool:
        if not self._transfer.authorized:
            return False
        try:
            self._transfer.json("/api/whoami-v2")
        except (HubNotFound, HubForbidden):
            return False
        return True

    def _pages(self, author: str | None, filters: Filters, pages: Iterator[int]) -> Iterator[Any]:
        """The items of a listing, page by page (RFC 8288 links), as long as there are ``pages``."""
        asked: dict[str, Any] = {
            "full": "true",
            "limit": _PAGE_SIZE,
            "sort": "lastModified",
            "direction": -1,
        }
        if author is not None:
            asked["author"] = author
        if filters.tags:
            asked["filter"] = list(filters.tags)
        params: dict[str, Any] | None = asked
        url = "/api/models"
        for _ in pages:
            items, headers, address = self._transfer.json(url, params)
            if not isinstance(items, list):
                raise HubProtocolError(f"{self._transfer.host} answered no list of models")
            yield from items
            further = self._transfer.next_page(headers, address)
            if further is None or not items:
                return
            url, params = further, None
        raise HubForbidden(
            f"{self._transfer.host} lists more than {_MAX_PAGES} pages of models: name the "
            f"repositories or their owners in the source's filters"
        )


def refusal(response: httpx.Response, body: bytes) -> ModelkinError | None:
    """The meaning of a status of 400 to 499.

    The Hub states it in a header, and often hides existing models behind a 401.
    """
    del body
    code = response.headers.get("X-Error-Code")
    message = text_of(response.headers.get("X-Error-Message"), 300)
    said = f" ({message})" if message else ""
    host, path = response.url.host, response.url.path
    if code == "GatedRepo":
        return HubForbidden(
            f"{host} gates {path}: accept its terms there, and give the source a token of that "
            f"account{said}"
        )
    if response.status_code == 401 and "invalid credentials" in (message or "").lower():
        return HubForbidden(f"{host} refuses the source's token{said}")
    if code == "RepoNotFound" or response.status_code == 404:
        return HubNotFound(
            f"{host} knows no {path}, or does not show it to this source's token{said}",
            definitive=code == "RepoNotFound",
        )
    if response.status_code == 401:
        return HubForbidden(
            f"{host} wants another token for {path}: it is private, gated or missing{said}"
        )
    if response.status_code == 403:
        return HubForbidden(f"{host} does not let this source's token see {path}{said}")
    if response.status_code == 410:
        return HubNotFound(f"{host} says that {path} is gone{said}")
    return None


def _url(revision: HubRevision, file: HubFile) -> str:
    path = "/".join(quote(part, safe="") for part in file.path.split("/"))
    return f"/{_quote(revision.name)}/resolve/{quote(revision.revision, safe='')}/{path}"


def _quote(name: str) -> str:
    try:
        return quote_model(name)
    except InvalidName as error:
        raise HubNotFound(f"no repository can have this name: {error}") from None


def _tags(found: Mapping[str, Any]) -> tuple[str, ...]:
    tags = found.get("tags")
    return tuple(filter(None, map(text_of, tags))) if isinstance(tags, list) else ()


def _base_model(found: Mapping[str, Any]) -> str | None:
    """The only base that the card declares; None for merges of several bases."""
    card = found.get("cardData")
    declared = card.get("base_model") if isinstance(card, dict) else None
    if isinstance(declared, list) and len(declared) == 1:
        declared = declared[0]
    if isinstance(declared, str):
        return text_of(declared.strip(), 200)
    tagged = {match[1] for tag in _tags(found) if (match := _BASE_MODEL_TAG.fullmatch(tag))}
    return tagged.pop() if declared is None and len(tagged) == 1 else None


def _attributes(found: Mapping[str, Any]) -> dict[str, Any]:
    facts = {
        name: text_of(found.get(field), 200)
        for name, field in (
            ("library", "library_name"),
            ("pipeline", "pipeline_tag"),
            ("last_modified", "lastModified"),
        )
    }
    return {name: value for name, value in facts.items() if value is not None}


def _files(siblings: Any) -> Iterable[HubFile]:
    for sibling in siblings if isinstance(siblings, list) else ():
        path = text_of(sibling.get("rfilename")) if isinstance(sibling, dict) else None
        if path is not None:
            blob = text_of(sibling.get("blobId"), 64)
            yield HubFile(path, _size(sibling), _sha256(sibling.get("lfs")), blob)


def _size(sibling: Mapping[str, Any]) -> int | None:
    lfs = sibling.get("lfs")
    for size in (lfs.get("size") if isinstance(lfs, dict) else None, sibling.get("size")):
        if type(size) is int and size >= 0:
            return size
    return None


def _sha256(lfs: Any) -> str | None:
    """The digest of a file in LFS; for other files the Hub declares another kind."""
    digest = lfs.get("sha256", lfs.get("oid")) if isinstance(lfs, dict) else None
    return digest if isinstance(digest, str) and _SHA256.fullmatch(digest) else None
