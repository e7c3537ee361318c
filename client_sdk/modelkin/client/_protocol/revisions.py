"""The calls about a support that changes: a delta of it, what it was, and how far it has drifted.

As in ``_protocol`` each is a request and how its answer is read, without I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from modelkin import wire
from modelkin._validation import check_model_name
from modelkin.client._protocol import decoding, requests, spaces
from modelkin.client._protocol.decoding import Fields
from modelkin.client._protocol.flows import Script
from modelkin.client._protocol.spaces import Call
from modelkin.client._transport.errors import foreign_answer, parse_json
from modelkin.client._transport.messages import Response, media_type
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter
from modelkin.types.models import ModelInfo
from modelkin.types.paging import Page
from modelkin.types.revisions import Revision, Revisions

__all__ = ["get_support", "patch_support", "revisions"]

_PAGE_SIZE = (("limit", "1000"),)


@dataclass(frozen=True, slots=True)
class _Listed(Page[Revision]):
    first_revision: int


def get_support(space: str, model: str, revision: int | None) -> Call[tuple[Support, str | None]]:
    """The support, and the entity tag of the model while it is that one."""
    if revision is not None and (type(revision) is not int or revision < 1):
        raise InvalidParameter(f"revision must be 1 or more, not {revision!r}", field="revision")
    params = () if revision is None else (("revision", str(revision)),)
    path = requests.model_path(space, "supports", model)
    return Call(requests.get(path, params, accept=wire.SUPPORT), _read_support)


def patch_support(
    space: str,
    model: str,
    delta: bytes,
    tags: Iterable[str] | None,
    etag: str,
    *,
    idempotent: bool,
) -> Call[ModelInfo]:
    """Changes the support of the model that has this entity tag.

    Args:
        delta: in the native format.
        idempotent: whoever sends it knows what to do where a second try meets the first one's
            effect.
    """
    path = requests.model_path(space, "supports", model)
    request = requests.write("PATCH", path, delta, wire.DELTA, requests.new_tags(tags), etag)
    return Call(replace(request, idempotent=idempotent), _read_model)


def revisions(space: str, model: str, url: str) -> Script[Revisions]:
    """All that is known of the model's revisions, page by page."""
    path = requests.model_path(space, "revisions", model)
    call: Call[Page[Revision]] = Call(requests.get(path, _PAGE_SIZE), _read_page)
    items: list[Revision] = []
    while True:
        page: _Listed = yield call
        items.extend(page.items)
        following = spaces.next_page(call, page, url)
        if following is None:
            return Revisions(tuple(items), check_model_name(model), page.first_revision)
        call = following


def _read_support(response: Response) -> tuple[Support, str | None]:
    if media_type(response) != wire.SUPPORT:
        raise foreign_answer(response)
    return wire.decode_support(response.content), response.headers.get("etag")


def _read_model(response: Response) -> ModelInfo:
    return decoding.read_model(Fields(parse_json(response)), response.headers.get("etag"))


def _read_page(response: Response) -> _Listed:
    body = Fields(parse_json(response))
    page = decoding.read_page(body, _read_revision)
    return _Listed(page.items, page.next_cursor, body.integer("first_revision"))


def _read_revision(body: Fields) -> Revision:
    return Revision(
        revision=body.integer("revision"),
        kind=body.text("kind"),
        digest=body.optional("digest", body.text),
        support_size=body.integer("support_size"),
        created_at=body.moment("created_at"),
        kept=body.flag("kept"),
        self_overlap_previous=body.optional("self_overlap_previous", body.number),
        similarity_previous=body.optional("similarity_previous", body.number),
        estimate_previous=body.optional("estimate_previous", body.text),
        standard_error_previous=body.optional("standard_error_previous", body.number),
        self_overlap_first=body.number("self_overlap_first"),
        similarity_first=body.number("similarity_first"),
        estimate_first=body.text("estimate_first"),
        standard_error_first=body.number("standard_error_first"),
    )
