"""The calls about sources: hubs that are followed, what they delivered, and looking through them.

What is sent and how answers are read is decided here once for both clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from modelkin._validation import check_model_name, check_space_name
from modelkin.client._protocol import decoding, requests
from modelkin.client._protocol.decoding import Fields
from modelkin.client._protocol.jobs import read_job
from modelkin.client._protocol.spaces import Call
from modelkin.client._sync.listing import AsyncListing, Listing
from modelkin.client._sync.resource import AsyncCalling, Calling
from modelkin.client._transport.errors import parse_json
from modelkin.client._transport.messages import Request, Response
from modelkin.errors import InvalidParameter
from modelkin.types.hubs import HubEvent, Source
from modelkin.types.jobs import JobInfo
from modelkin.types.paging import UNCHANGED, Page, Unchanged
from modelkin.wire import JSON

__all__ = ["AsyncSourceCalls", "SourceCalls"]

_SOURCES = "/v1/sources"
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
_PAGE_SIZE = (("limit", "1000"),)

Filters = Mapping[str, Iterable[str]]


class SourceCalls(Calling):
    """Part of :class:`modelkin.Client`."""

    def create_source(
        self,
        kind: str,
        space: str,
        *,
        secret: str,
        url: str | None = None,
        token: str | None = None,
        importance: str | None = None,
        base_model: str | None = None,
        filters: Filters | None = None,
        on_delete: str = "keep",
        poll_seconds: int | Unchanged | None = UNCHANGED,
    ) -> Source:
        """Follows the models of a hub; see docs/hubs.md.

            source = client.create_source(
                "huggingface", "llama-8b", secret=secret, url="https://huggingface.co",
                filters={"owners": ["my-org"]},
            )
            source.hook  # where its webhook is to deliver

        Args:
            kind: ``"huggingface"`` or ``"mlflow"``.
            space: where its models go, as far as they have the space's layout.
            secret: that deliveries are vouched for with.
            url: of the hub; without it deliveries are only recorded.
            token: that the hub lets in by.
            importance: ``"delta"``, ``"weight"``, or None for whichever can be.
            base_model: the base of models that declare none.
            filters: ``{"repos": [...], "owners": [...], "tags": [...]}``.
            on_delete: ``"keep"`` or ``"remove"``: what becomes here of what is deleted there.
            poll_seconds: between two polls; None for never, an hour where it is left out.
        """
        given = _given(
            space, secret, url, token, importance, base_model, filters, on_delete, poll_seconds
        )
        return self._run(_create(kind, given))

    def sources(self) -> Listing[Source]:
        """All sources, newest first, fetched page by page as they are read."""
        return Listing(self._rows(_list_all()), Source)

    def source(self, source: str | Source) -> Source:
        """A source as it is now: what came last, and what went wrong."""
        return self._run(_show(source))

    def update_source(
        self,
        source: str | Source,
        *,
        space: str | Unchanged = UNCHANGED,
        secret: str | Unchanged = UNCHANGED,
        url: str | Unchanged | None = UNCHANGED,
        token: str | Unchanged | None = UNCHANGED,
        importance: str | Unchanged | None = UNCHANGED,
        base_model: str | Unchanged | None = UNCHANGED,
        filters: Filters | Unchanged | None = UNCHANGED,
        on_delete: str | Unchanged = UNCHANGED,
        poll_seconds: int | Unchanged | None = UNCHANGED,
    ) -> Source:
        """Changes what is given, and leaves the rest; None clears.

        Args:
            source: which.
            space: as for :meth:`create_source`, as are all others.
            secret: counts from the next delivery on.
            url: on another host it needs the token given anew.
            token: likewise.
            importance: likewise.
            base_model: likewise.
            filters: likewise.
            on_delete: likewise.
            poll_seconds: likewise.
        """
        given = _given(
            space, secret, url, token, importance, base_model, filters, on_delete, poll_seconds
        )
        return self._run(_update(source, given))

    def delete_source(self, source: str | Source) -> None:
        """Follows a hub no more; the models that came from it stay."""
        self._run(_delete(source))

    def source_deliveries(self, source: str | Source) -> Listing[HubEvent]:
        """What a hub delivered, newest first, and what became of it."""
        return Listing(self._rows(_deliveries(source)), HubEvent)

    def poll_source(self, source: str | Source) -> JobInfo:
        """Has the hub looked through now, for what no delivery told; answers the job at once."""
        return self._run(_poll(source))


class AsyncSourceCalls(AsyncCalling):
    """Part of :class:`modelkin.AsyncClient`."""

    async def create_source(
        self,
        kind: str,
        space: str,
        *,
        secret: str,
        url: str | None = None,
        token: str | None = None,
        importance: str | None = None,
        base_model: str | None = None,
        filters: Filters | None = None,
        on_delete: str = "keep",
        poll_seconds: int | Unchanged | None = UNCHANGED,
    ) -> Source:
        """Follows the models of a hub; see docs/hubs.md."""
        given = _given(
            space, secret, url, token, importance, base_model, filters, on_delete, poll_seconds
        )
        return await self._run(_create(kind, given))

    def sources(self) -> AsyncListing[Source]:
        """All sources, newest first, fetched page by page as they are read."""
        return AsyncListing(self._rows(_list_all()), Source)

    async def source(self, source: str | Source) -> Source:
        """A source as it is now: what came last, and what went wrong."""
        return await self._run(_show(source))

    async def update_source(
        self,
        source: str | Source,
        *,
        space: str | Unchanged = UNCHANGED,
        secret: str | Unchanged = UNCHANGED,
        url: str | Unchanged | None = UNCHANGED,
        token: str | Unchanged | None = UNCHANGED,
        importance: str | Unchanged | None = UNCHANGED,
        base_model: str | Unchanged | None = UNCHANGED,
        filters: Filters | Unchanged | None = UNCHANGED,
        on_delete: str | Unchanged = UNCHANGED,
        poll_seconds: int | Unchanged | None = UNCHANGED,
    ) -> Source:
        """Changes what is given, and leaves the rest; None clears."""
        given = _given(
            space, secret, url, token, importance, base_model, filters, on_delete, poll_seconds
        )
        return await self._run(_update(source, given))

    async def delete_source(self, source: str | Source) -> None:
        """Follows a hub no more; the models that came from it stay."""
        await self._run(_delete(source))

    def source_deliveries(self, source: str | Source) -> AsyncListing[HubEvent]:
        """What a hub delivered, newest first, and what became of it."""
        return AsyncListing(self._rows(_deliveries(source)), HubEvent)

    async def poll_source(self, source: str | Source) -> JobInfo:
        """Has the hub looked through now, for what no delivery told; answers the job at once."""
        return await self._run(_poll(source))


def _given(
    space: str | Unchanged,
    secret: str | Unchanged,
    url: str | Unchanged | None,
    token: str | Unchanged | None,
    importance: str | Unchanged | None,
    base_model: str | Unchanged | None,
    filters: Filters | Unchanged | None,
    on_delete: str | Unchanged,
    poll_seconds: int | Unchanged | None,
) -> dict[str, Any]:
    """The fields to be sent, checked as far as that needs no service."""
    fields = {
        "space": space if isinstance(space, Unchanged) else check_space_name(space),
        "secret": secret,
        "url": url,
        "token": token,
        "importance": importance,
        "base_model": base_model,
        "filters": filters,
        "on_delete": on_delete,
        "poll_seconds": poll_seconds,
    }
    if isinstance(base_model, str):
        fields["base_model"] = check_model_name(base_model, field="base_model")
    if isinstance(filters, Mapping):
        fields["filters"] = {name: _listed(name, texts) for name, texts in filters.items()}
    return {name: value for name, value in fields.items() if not isinstance(value, Unchanged)}


def _listed(name: str, texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        message = f"filters[{name!r}] is one string, {texts!r}; give a list of strings"
        raise InvalidParameter(message, field="filters")
    return list(texts)


def _create(kind: str, given: Mapping[str, Any]) -> Call[Source]:
    body = {"kind": kind, **given}
    if body["filters"] is None:
        del body["filters"]
    headers = {"Accept": JSON, "Content-Type": JSON}
    content = requests.json_bytes(body)
    # Sent twice it would be two sources.
    return Call(Request("POST", _SOURCES, (), headers, content, idempotent=False), _read)


def _list_all() -> Call[Page[Source]]:
    request = requests.get(_SOURCES, _PAGE_SIZE)
    return Call(request, lambda r: decoding.read_page(Fields(parse_json(r)), _read_source))


def _show(source: str | Source) -> Call[Source]:
    return Call(requests.get(_path(source)), _read)


def _update(source: str | Source, given: Mapping[str, Any]) -> Call[Source]:
    content = requests.json_bytes(given)
    return Call(requests.write("PATCH", _path(source), content, JSON), _read)


def _delete(source: str | Source) -> Call[None]:
    return Call(requests.write("DELETE", _path(source)), lambda _: None)


def _deliveries(source: str | Source) -> Call[Page[HubEvent]]:
    request = requests.get(f"{_path(source)}/deliveries", _PAGE_SIZE)
    return Call(request, lambda r: decoding.read_page(Fields(parse_json(r)), _read_delivery))


def _poll(source: str | Source) -> Call[JobInfo]:
    # Sent twice it is still one job, or at most one that finds nothing.
    headers = {"Accept": JSON}
    request = Request("POST", f"{_path(source)}/poll", (), headers, b"", idempotent=True)
    return Call(request, read_job)


def _path(source: str | Source) -> str:
    source_id = source.id if isinstance(source, Source) else source
    if not isinstance(source_id, str) or not _ID.fullmatch(source_id):
        raise InvalidParameter("source must be a Source or the id of one", field="source")
    return f"{_SOURCES}/{source_id}"


def _read(response: Response) -> Source:
    return _read_source(Fields(parse_json(response)))


def _read_source(body: Fields) -> Source:
    return Source(
        id=body.text("id"),
        kind=body.text("kind"),
        space=body.text("space"),
        url=body.optional("url", body.text),
        has_token=body.flag("has_token"),
        importance=body.optional("importance", body.text),
        base_model=body.optional("base_model", body.text),
        filters=body.mapping("filters"),
        on_delete=body.text("on_delete"),
        poll_seconds=body.optional("poll_seconds", body.integer),
        hook=body.text("hook"),
        created_at=body.moment("created_at"),
        updated_at=body.moment("updated_at"),
        last_delivery_at=body.optional("last_delivery_at", body.moment),
        last_refusal=body.optional("last_refusal", body.mapping),
        last_error=body.optional("last_error", body.mapping),
        last_poll=body.optional("last_poll", body.mapping),
        last_poll_at=body.optional("last_poll_at", body.moment),
        next_poll_at=body.optional("next_poll_at", body.moment),
    )


def _read_delivery(body: Fields) -> HubEvent:
    return HubEvent(
        delivery_id=body.text("delivery_id"),
        event=body.text("event"),
        model=body.optional("model", body.text),
        revision=body.optional("revision", body.text),
        outcome=body.text("outcome"),
        reason=body.optional("reason", body.text),
        job=body.optional("job", body.text),
        received_at=body.moment("received_at"),
    )
