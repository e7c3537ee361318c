"""Calls about sources, the events that hubs sent to them, and polls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from modelkin._validation import check_model_name, check_space_name
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, read_nothing
from modelkin.client._protocol.calls.decoding import reader
from modelkin.client._protocol.jobs import read_job
from modelkin.client._transport.messages import Request
from modelkin.errors import InvalidParameter
from modelkin.types.hubs import HubEvent, Source
from modelkin.types.jobs import JobInfo
from modelkin.types.paging import Page, Unchanged
from modelkin.wire import JSON

__all__ = [
    "Filters",
    "create",
    "delete",
    "fields",
    "get",
    "hub_events",
    "list_all",
    "poll",
    "update",
]

Filters: TypeAlias = Mapping[str, Iterable[str]]
"""The models of a hub to follow: ``{"repos": [...], "owners": [...], "tags": [...]}``."""

_SOURCES: Final = "/v1/sources"
_PAGE_SIZE: Final = (("limit", "1000"),)


def create(kind: str, given: Mapping[str, Any]) -> Call[Source]:
    """Creates a source of the given :func:`fields`."""
    body = {"kind": kind, **given}
    for name in ("filters", "exclude"):
        if body[name] is None:
            del body[name]
    return Call(requests.post_once(_SOURCES, body), reader(Source))


def list_all() -> Call[Page[Source]]:
    """Lists all sources."""
    return Call(requests.get(_SOURCES, _PAGE_SIZE), reader(Page[Source]))


def get(source: str | Source) -> Call[Source]:
    """Reads a source."""
    return Call(requests.get(_path(source)), reader(Source))


def update(source: str | Source, given: Mapping[str, Any]) -> Call[Source]:
    """Changes the given :func:`fields` of a source."""
    content = requests.json_bytes(given)
    return Call(requests.write("PATCH", _path(source), content, JSON), reader(Source))


def delete(source: str | Source) -> Call[None]:
    """Deletes a source."""
    return Call(requests.write("DELETE", _path(source)), read_nothing)


def hub_events(source: str | Source) -> Call[Page[HubEvent]]:
    """Lists the events that a hub sent."""
    request = requests.get(f"{_path(source)}/deliveries", _PAGE_SIZE)
    return Call(request, reader(Page[HubEvent]))


def poll(source: str | Source) -> Call[JobInfo]:
    """Starts a poll of a hub."""
    # A second request finds the job of the first, or starts one that finds nothing new.
    headers = {"Accept": JSON}
    request = Request("POST", f"{_path(source)}/poll", (), headers, b"", idempotent=True)
    return Call(request, read_job)


def fields(
    space: str | Unchanged,
    secret: str | Unchanged,
    url: str | Unchanged | None,
    token: str | Unchanged | None,
    importance: str | Unchanged | None,
    base_model: str | Unchanged | None,
    exclude: Iterable[str] | Unchanged | None,
    filters: Filters | Unchanged | None,
    on_delete: str | Unchanged,
    poll_seconds: int | Unchanged | None,
    fingerprints: bool | Unchanged,
    backfill_per_hour: int | Unchanged | None,
) -> dict[str, Any]:
    """Check the given fields of a source as far as that needs no service, and return them."""
    values = {
        "space": space if isinstance(space, Unchanged) else check_space_name(space),
        "secret": secret,
        "url": url,
        "token": token,
        "importance": importance,
        "base_model": base_model,
        "exclude": exclude,
        "filters": filters,
        "on_delete": on_delete,
        "poll_seconds": poll_seconds,
        "fingerprints": fingerprints,
        "backfill_per_hour": backfill_per_hour,
    }
    if isinstance(base_model, str):
        values["base_model"] = check_model_name(base_model, field="base_model")
    if not isinstance(exclude, Unchanged) and exclude is not None:
        values["exclude"] = _list_of("exclude", exclude, field="exclude")
    if isinstance(filters, Mapping):
        values["filters"] = {
            name: _list_of(f"filters[{name!r}]", texts, field="filters")
            for name, texts in filters.items()
        }
    return {name: value for name, value in values.items() if not isinstance(value, Unchanged)}


def _list_of(name: str, texts: Iterable[str], *, field: str) -> list[str]:
    if isinstance(texts, str):
        message = f"{name} is one string, {texts!r}; give a list of strings"
        raise InvalidParameter(message, field=field)
    return list(texts)


def _path(source: str | Source) -> str:
    source_id = source.id if isinstance(source, Source) else source
    return f"{_SOURCES}/{requests.check_id(source_id, 'source')}"
