"""Client of the Hugging Face Hub and of servers with its API.

Models are repositories, revisions are commits. The requests are those of ``huggingface_hub``. That
package is not used: it has one HTTP layer a process, which cannot be a guarded client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
from msgspec import Struct

from app.hubs.clients.answers import (
    escaped,
    integer_of,
    is_true,
    items_of,
    moment_of,
    name_of,
    part_of,
    path_of,
    shown,
    text_of,
)
from app.hubs.clients.http import HubHttpClient, require_few
from app.hubs.clients.protocol import (
    HubFile,
    HubModel,
    HubRevision,
    Received,
    Sink,
)
from app.hubs.clients.references import huggingface_reference
from app.hubs.filters import Filters
from app.infra.errors import HubForbidden, HubNotFound, HubProtocolError
from modelkin._validation import MAX_BASE_MODELS, quote_model
from modelkin.core.foreign_json import NULL, Raw
from modelkin.core.kinship.lineage import BaseRelation, relation_of
from modelkin.errors import InvalidName, ModelkinError

__all__ = ["HuggingFace", "refusal"]

_PAGE_SIZE: Final = 100
_MAX_PAGES: Final = 1000
"""The most pages of one listing, over all its owners."""
_MAX_FILES: Final = 100_000
"""The most files of a repository."""
_MAX_TAGS: Final = 1000
"""Tags that are read of a model."""
_BASE_MODEL_TAG: Final = re.compile(r"base_model:(?:(\w+):)?(.+)")
"""A tag that the Hub makes of a card: with the relation to the base, and another without."""
_LICENSE: Final = "license:"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class _Model(Struct):
    """A model as the Hub describes it."""

    id: Raw = NULL
    sha: Raw = NULL
    tags: Raw = NULL
    cardData: Raw = NULL  # noqa: N815 - the Hub's name
    private: Raw = NULL
    disabled: Raw = NULL
    library_name: Raw = NULL
    pipeline_tag: Raw = NULL
    createdAt: Raw = NULL  # noqa: N815 - the Hub's name
    lastModified: Raw = NULL  # noqa: N815 - the Hub's name
    siblings: Raw = NULL


class _Card(Struct):
    """The metadata of a model card."""

    base_model: Raw = NULL
    base_model_relation: Raw = NULL
    license: Raw = NULL
    license_name: Raw = NULL


class _Sibling(Struct):
    """A file of a repository."""

    rfilename: Raw = NULL
    size: Raw = NULL
    blobId: Raw = NULL  # noqa: N815 - the Hub's name
    lfs: Raw = NULL


class _Lfs(Struct):
    """A file in LFS."""

    size: Raw = NULL
    sha256: Raw = NULL
    oid: Raw = NULL


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
            model = part_of(item, _Model)
            if model is not None and part_of(model.id, str) is not None:
                # A name that is no text stays escaped, and so is none that a model can have.
                name = text_of(model.id) or escaped(model.id)
                changed = moment_of(model.lastModified)
                yield HubModel(name, text_of(model.sha, 200), _tags(model), changed_at=changed)

    def look_up(self, name: str, revision: str | None = None) -> HubRevision:
        path, blobs = f"/api/models/{_quote(name)}", {"blobs": "true"}
        if revision is not None:
            path += f"/revision/{quote(revision, safe='')}"
        try:
            found, _, _ = self._transfer.json(path, _Model, blobs)
        except HubNotFound:
            if revision is not None:
                raise
            # Mirrors may serve only the requests of whole-repository downloads.
            found, _, _ = self._transfer.json(f"{path}/revision/main", _Model, blobs)
        current = name_of(found.id, f"the id of {name}") or name
        sha = name_of(found.sha, f"the sha of {name}", 200)
        if sha is None:
            raise HubProtocolError(f"{self._transfer.host} names no commit of {name}")
        if is_true(found.disabled):
            raise HubForbidden(f"{name} is disabled on {self._transfer.host}")
        base_models, relation = _bases(found)
        return HubRevision(
            name=current,
            revision=sha,
            tags=_tags(found),
            base_models=base_models,
            base_relation=relation,
            private=is_true(found.private),
            attributes=_attributes(found),
            files=tuple(_files(found.siblings, name)),
            address=f"{self._transfer.base}/{current}/tree/{sha}",
            license=_license(found),
            published_at=moment_of(found.createdAt),
            changed_at=moment_of(found.lastModified),
        )

    def reference(self, text: str) -> tuple[str, str | None]:
        return huggingface_reference(text, self._transfer.base)

    def download(
        self, revision: HubRevision, file: HubFile, into: Path, received: Received | None = None
    ) -> int:
        return self._transfer.download(_url(revision, file), file, into, received)

    def beginning(
        self, revision: HubRevision, file: HubFile, size: int
    ) -> tuple[bytes, int | None]:
        return self._transfer.beginning(_url(revision, file), size)

    def part(
        self, revision: HubRevision, file: HubFile, begin: int, end: int, into: Sink
    ) -> frozenset[str]:
        return self._transfer.part(_url(revision, file), file, begin, end, into)

    def knows_us(self) -> bool:
        if not self._transfer.authorized:
            return False
        try:
            self._transfer.json("/api/whoami-v2", Raw)
        except (HubNotFound, HubForbidden):
            return False
        return True

    def _pages(self, author: str | None, filters: Filters, pages: Iterator[int]) -> Iterator[Raw]:
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
            items, headers, address = self._transfer.json(url, list[Raw], params)
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
    message = shown(response.headers.get("X-Error-Message"), 300)
    said = f" ({message})" if message else ""
    host, path = response.url.host, path_of(response.url)
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


def _tags(found: _Model) -> tuple[str, ...]:
    tags = islice(items_of(found.tags), _MAX_TAGS)
    return tuple(filter(None, map(text_of, tags)))


def _bases(found: _Model) -> tuple[tuple[str, ...], BaseRelation | None]:
    """The bases that the card declares, else the Hub's tags; and the relation that either states.

    The order is that of the card. A base that is declared twice counts once.
    """
    card = part_of(found.cardData, _Card) or _Card()
    matches = [match for tag in _tags(found) if (match := _BASE_MODEL_TAG.fullmatch(tag))]
    declared = card.base_model
    several = part_of(declared, list[Raw])
    texts = [part_of(each, str) for each in ([declared] if several is None else several)]
    if declared == NULL:
        texts = [match[2] for match in matches]
    names = filter(None, (shown((text or "").strip(), 200) for text in texts))
    stated = {relation_of(match[1]) for match in matches} - {None}
    relation = relation_of(part_of(card.base_model_relation, str))
    if relation is None and len(stated) == 1:
        [relation] = stated
    return tuple(islice(dict.fromkeys(names), MAX_BASE_MODELS)), relation


def _license(found: _Model) -> str | None:
    """The licence of the card, by its own name where that is "other"; else of the Hub's tags."""
    card = part_of(found.cardData, _Card) or _Card()
    tagged = (tag.removeprefix(_LICENSE) for tag in _tags(found) if tag.startswith(_LICENSE))
    said = text_of(card.license_name, 200) or text_of(card.license, 200)
    return said or next((text[:200] for text in tagged if text), None)


def _attributes(found: _Model) -> dict[str, Any]:
    facts = {
        "library": text_of(found.library_name, 200),
        "pipeline": text_of(found.pipeline_tag, 200),
        "last_modified": text_of(found.lastModified, 200),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _files(siblings: Raw, name: str) -> Iterator[HubFile]:
    if siblings != NULL and part_of(siblings, list[Raw]) is None:
        raise HubProtocolError(f"the hub answers no list of the files of {name}")
    for number, item in enumerate(items_of(siblings)):
        if number == _MAX_FILES:
            raise HubForbidden(f"{name} holds more than {_MAX_FILES:,} files")
        sibling = part_of(item, _Sibling)
        path = None if sibling is None else text_of(sibling.rfilename)
        if sibling is not None and path is not None:
            lfs = part_of(sibling.lfs, _Lfs) or _Lfs()
            size = integer_of(lfs.size)
            yield HubFile(
                path,
                integer_of(sibling.size) if size is None else size,
                _sha256(lfs),
                text_of(sibling.blobId, 64),
            )


def _sha256(lfs: _Lfs) -> str | None:
    """The digest of a file in LFS; for other files the Hub declares another kind."""
    digest = text_of(lfs.oid if lfs.sha256 == NULL else lfs.sha256)
    return digest if digest is not None and _SHA256.fullmatch(digest) else None
