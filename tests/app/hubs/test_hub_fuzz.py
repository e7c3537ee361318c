"""Requests drawn at random about sources and to hooks: whatever comes, never a 5xx."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.app.http.test_fuzz import TEXT, VALUES, some
from tests.support.app.harness import AppHarness
from tests.support.app.hubs import SECRET
from tests.support.hub_payloads import hf_headers

fuzz = settings(
    max_examples=60,
    derandomize=True,
)

URLS = st.sampled_from(
    [
        *("http://127.0.0.1:9", "http://127.0.0.1:99999", "http://[::1", "http://", "http://é"),
        *("https://10.1/", "http://127.0.0.1:9/\n", "http://a@127.0.0.1:9", "//x", "\0"),
        *("http://" + "a" * 300, "http://xn--/", "http://127.0.0.1:9#x", "HTTP://127.0.0.1:9"),
    ]
)
FILTERS = some(repos=st.lists(TEXT, max_size=3), owners=st.lists(TEXT), tags=st.lists(TEXT))
FIELDS = some(
    url=URLS,
    token=TEXT,
    secret=TEXT,
    space=TEXT,
    importance=st.sampled_from(["delta", "weight"]),
    base_model=TEXT,
    exclude=st.lists(TEXT, max_size=3),
    filters=FILTERS,
    on_delete=st.sampled_from(["keep", "remove"]),
    poll_seconds=st.integers(0, 100),
)
KINDS = st.sampled_from(["huggingface", "mlflow"])


def check(answer: Any) -> None:
    """A success, or a 4xx problem document."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["detail"]


@pytest.mark.slow
@fuzz
@given(kind=KINDS, fields=FIELDS, changes=FIELDS)
def test_any_source_is_made_or_refused(
    service: AppHarness, kind: str, fields: dict[str, Any], changes: dict[str, Any]
) -> None:
    """What is made can be changed into what else is drawn, shown and deleted, or that is a 4xx."""
    asked = {"kind": kind, "space": "any", "secret": SECRET, **fields}
    answer = service.http.post("/v1/sources", content=_json(asked), headers=_JSON)
    check(answer)
    if answer.is_success:
        path = f"/v1/sources/{answer.json()['id']}"
        check(service.http.patch(path, content=_json(changes), headers=_JSON))
        assert 200 == service.http.get(path).status_code
        assert 204 == service.http.delete(path).status_code


@pytest.mark.slow
@fuzz
@given(
    event=some(action=TEXT, scope=TEXT),
    repo=some(type=st.just("model"), name=TEXT, headSha=TEXT, tags=st.lists(TEXT, max_size=3)),
    more=some(updatedRefs=VALUES, movedTo=some(name=TEXT), webhook=some(id=TEXT)),
    delivery_id=st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=300),
)
def test_any_delivery_is_taken_in_or_refused(
    service: AppHarness, event: Any, repo: Any, more: dict[str, Any], delivery_id: str
) -> None:
    """Whatever a payload is made of, it is recorded, and can be listed afterwards."""
    source = service.hubs.create()
    vouched = {name.encode(): value.encode() for name, value in hf_headers(SECRET).items()}
    headers = {**vouched, b"webhook-id": delivery_id.encode("latin-1")}
    content = _json({"event": event, "repo": repo, **more})
    answer = service.http.post(source["hook"], content=content, headers=headers)
    check(answer)
    listed = service.http.get(f"/v1/sources/{source['id']}/deliveries")
    assert answer.is_success is (1 == len(listed.json()["items"]))
    service.http.delete(f"/v1/sources/{source['id']}")


_JSON = {"Content-Type": "application/json"}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
