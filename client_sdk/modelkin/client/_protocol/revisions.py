"""The flow that reads the revisions of a model, page by page."""

from __future__ import annotations

from dataclasses import dataclass

from modelkin._validation import check_model_name
from modelkin.client._protocol import requests
from modelkin.client._protocol.call import Call, next_page
from modelkin.client._protocol.decoding import reader
from modelkin.client._protocol.flows import Flow
from modelkin.types.paging import Page
from modelkin.types.revisions import Revision, Revisions

__all__ = ["list_all"]

_PAGE_SIZE = (("limit", "1000"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RevisionPage(Page[Revision]):
    items: tuple[Revision, ...]
    first_revision: int


def list_all(space: str, model: str, url: str) -> Flow[Revisions]:
    """Reads all revisions that the service knows of a model."""
    path = requests.model_path(space, "revisions", model)
    call: Call[Page[Revision]] = Call(requests.get(path, _PAGE_SIZE), reader(_RevisionPage))
    items: list[Revision] = []
    while True:
        page: _RevisionPage = yield call
        items.extend(page.items)
        following = next_page(call, page, url)
        if following is None:
            return Revisions(tuple(items), check_model_name(model), page.first_revision)
        call = following
