"""Hub events: authentication of the sender, the id of the delivery, and the parsed content."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.hubs.incoming import huggingface, mlflow
from app.hubs.incoming.events import HubEvent, InvalidWebhookSignature
from tests.support.hub_payloads import hf_payload, mlflow_payload, signed

SECRET = "your-secret-key"
BODY = (
    b'{"entity": "model_version", "action": "created", '
    b'"timestamp": "2025-07-31T08:27:32.080217+00:00", "data": {"name": "example_model", '
    b'"version": "1", "source": "models:/123", "run_id": "abcd1234abcd5678", '
    b'"tags": {"example_key": "example_value"}, "description": "An example model version"}}'
)
HEADERS = {
    "x-mlflow-signature": "v1,ij6oTCMoJHV/mwP7kolmecmGCZcV/Fs+JrlbadLxYx0=",
    "x-mlflow-delivery-id": "2b9d1d0e-6a5e-4c0a-9a39-5b7f6f1f0c11",
    "x-mlflow-timestamp": "1753950452",
}
SENT = datetime.fromtimestamp(1753950452, UTC)

KEYS = st.sampled_from(
    [
        *("event", "action", "scope", "repo", "type", "name", "tags", "updatedRefs", "ref"),
        *("movedTo", "entity", "data", "version", "headSha", "webhook", "id"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def test_a_published_signature_is_understood() -> None:
    """The example of MLflow's own format is good with its secret."""
    mlflow.verify(SECRET, HEADERS, BODY, SENT)
    assert HEADERS["x-mlflow-delivery-id"] == mlflow.event_id(HEADERS, BODY, {})


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_a_body_that_was_changed_is_forged(at: int, by: int) -> None:
    """A change of any byte of the body invalidates the signature."""
    tampered = bytearray(BODY)
    tampered[at] ^= by
    with pytest.raises(InvalidWebhookSignature, match="Signature"):
        mlflow.verify(SECRET, HEADERS, bytes(tampered), SENT)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-mlflow-signature", "v1,AAAA"),
        ("x-mlflow-signature", "v2,ij6oTCMoJHV/mwP7kolmecmGCZcV/Fs+JrlbadLxYx0="),
        ("x-mlflow-signature", "ij6oTCMoJHV/mwP7kolmecmGCZcV/Fs+JrlbadLxYx0="),
        ("x-mlflow-signature", ""),
        ("x-mlflow-signature", "v1,\xff"),
        ("x-mlflow-delivery-id", "3b9d1d0e-6a5e-4c0a-9a39-5b7f6f1f0c11"),
        ("x-mlflow-delivery-id", None),
        ("x-mlflow-timestamp", "1753950453"),
        ("x-mlflow-timestamp", None),
    ],
)
def test_headers_that_were_changed_are_forged(header: str, value: str | None) -> None:
    """Id and time are signed with the body, and each of the three must be there."""
    headers = {name: text for name, text in (HEADERS | {header: value}).items() if text is not None}
    with pytest.raises(InvalidWebhookSignature):
        mlflow.verify(SECRET, headers, BODY, SENT)


def test_blanks_that_http_drops_are_no_difference() -> None:
    """A secret that begins or ends with blanks comes without them, and is that secret."""
    huggingface.verify(f" {SECRET}\t ", {"x-webhook-secret": SECRET}, b"{}", SENT)
    huggingface.verify(SECRET, {"x-webhook-secret": f"{SECRET} "}, b"{}", SENT)
    with pytest.raises(InvalidWebhookSignature):
        huggingface.verify(f"{SECRET}\n", {"x-webhook-secret": SECRET}, b"{}", SENT)


@pytest.mark.parametrize("secret", ["Your-secret-key", "your secret-key", ""])
def test_another_secret_vouches_for_nothing(secret: str) -> None:
    """Neither for a signature nor for a header."""
    with pytest.raises(InvalidWebhookSignature):
        mlflow.verify(secret, HEADERS, BODY, SENT)
    with pytest.raises(InvalidWebhookSignature):
        huggingface.verify(secret, {"x-webhook-secret": SECRET}, b"{}", SENT)


@pytest.mark.parametrize(
    ("seconds", "good"), [(0, True), (300, True), (301, False), (-300, True), (-301, False)]
)
def test_five_minutes_are_tolerated(seconds: int, good: bool) -> None:
    """A clock may be wrong by five minutes either way; a signature expires after that."""
    now = SENT + timedelta(seconds=seconds)
    if good:
        mlflow.verify(SECRET, HEADERS, BODY, now)
    else:
        with pytest.raises(InvalidWebhookSignature, match="300 s are tolerated"):
            mlflow.verify(SECRET, HEADERS, BODY, now)


@pytest.mark.parametrize("timestamp", ["soon", "-5", "1e9", "9" * 30, "\xb2"])
def test_a_time_that_is_none_is_refused(timestamp: str) -> None:
    """Even if it was signed."""
    headers, body = signed(SECRET, {"a": 1}, timestamp=timestamp)
    with pytest.raises(InvalidWebhookSignature, match="number of seconds"):
        mlflow.verify(SECRET, headers, body, SENT)


def test_secrets_of_any_script_are_compared() -> None:
    """A secret is text, and its header the bytes of that in UTF-8."""
    headers = {"x-webhook-secret": "schlüssel☃".encode().decode("latin-1")}
    huggingface.verify("schlüssel☃", headers, b"{}", SENT)
    with pytest.raises(InvalidWebhookSignature):
        huggingface.verify("schlüssel", headers, b"{}", SENT)
    with pytest.raises(InvalidWebhookSignature, match="no X-Webhook-Secret"):
        huggingface.verify("schlüssel", {}, b"{}", SENT)


def test_a_delivery_without_an_id_is_known_by_its_body() -> None:
    """Where a hub sends none, or that of its webhook, the digest of the body stands in."""
    document, body = {"webhook": {"id": "6390e855e30d9209411de93b"}}, b"{...}"
    digest = "sha256:" + hashlib.sha256(body).hexdigest()
    assert digest == huggingface.event_id({}, body, document)
    webhook = {"webhook-id": "6390e855e30d9209411de93b"}
    assert digest == huggingface.event_id(webhook, body, document)
    assert "msg_1" == huggingface.event_id({"webhook-id": "msg_1"}, body, document)
    long = huggingface.event_id({"webhook-id": "x" * 999}, body, document)
    assert long.startswith("sha256:")
    assert long != digest


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (hf_payload("org/a", sha="s1"), ("repo.content.update", "org/a", None, "s1", False)),
        (hf_payload("org/a", scope="repo.content.lfs"), (None, "org/a", None, None, False)),
        (hf_payload("org/a", scope="repo.config.dois"), (None, "org/a", None, None, False)),
        (hf_payload("org/a", scope="repo.whatever.comes"), (None, "org/a", None, None, False)),
        (hf_payload("org/a", scope="repo", action="create"), (None, "org/a", None, None, False)),
        (
            hf_payload("org/a", sha="s1", scope="repo", action="delete"),
            ("repo.delete", "org/a", None, None, False),
        ),
        (
            hf_payload("org/a", scope="repo", action="move", movedTo={"name": "org/b"}),
            ("repo.move", "org/b", "org/a", None, False),
        ),
        (
            hf_payload("org/a", scope="repo", action="move", movedTo="org/b"),
            ("repo.move", "org/a", None, None, False),
        ),
        (hf_payload("org/a", refs=["refs/pr/1"]), (None, "org/a", None, None, True)),
        (hf_payload("org/a", refs=["refs/heads/dev"]), (None, "org/a", None, None, True)),
        (
            hf_payload("org/a", refs=["refs/pr/1", "refs/heads/main"]),
            (None, "org/a", None, None, False),
        ),
        (hf_payload("org/a", refs=["refs/tags/v1"]), (None, "org/a", None, None, True)),
        (
            hf_payload("org/a", webhook={"id": "1", "version": 1}),
            (None, "org/a", None, None, False),
        ),
        (hf_payload("org/a", kind="kernel"), (None, "org/a", None, None, True)),
        (hf_payload("org/a", kind="bucket"), (None, "org/a", None, None, True)),
        (hf_payload("org/a", refs=[7]), (None, "org/a", None, None, False)),
        (hf_payload("org/a", kind="dataset"), (None, "org/a", None, None, True)),
        (hf_payload("org/a", kind="space"), (None, "org/a", None, None, True)),
        (hf_payload("org/a", scope="discussion"), (None, "org/a", None, None, True)),
        (hf_payload("org/a", scope="discussion.comment"), (None, "org/a", None, None, True)),
        (hf_payload("org/a", scope="billing"), (None, "org/a", None, None, True)),
        ({}, ("?.?", None, None, None, True)),
        ({"event": [], "repo": "org/a"}, ("?.?", None, None, None, True)),
        (hf_payload("org/\na"), (None, None, None, None, True)),
    ],
)
def test_what_hugging_face_tells(payload: Any, told: tuple[Any, ...]) -> None:
    """The event names the model to sync, whatever the payload omits or adds."""
    event, model, moved_from, revision, ignored = told
    got = huggingface.read(payload)
    assert event in {None, got.event}
    assert (model, moved_from, revision) == (got.model, got.moved_from, got.revision)
    assert ignored is (got.ignored is not None), got


@pytest.mark.parametrize(
    ("event", "data", "model", "revision", "ignored"),
    [
        ("model_version.created", {"version": "3"}, "m", "3", False),
        ("model_version_alias.created", {"alias": "best", "version": "2"}, "m", "2", False),
        ("model_version_alias.deleted", {"alias": "best"}, "m", None, False),
        ("model_version_tag.set", {"version": "1", "key": "k", "value": "v"}, "m", "1", False),
        ("model_version_tag.deleted", {"version": "1", "key": "k"}, "m", "1", False),
        ("registered_model.created", {}, "m", None, True),
        ("prompt_version.created", {"version": "1"}, "m", None, True),
        ("budget_policy.exceeded", {}, "m", None, True),
        ("model_version.created", {"name": 7}, None, None, True),
    ],
)
def test_what_mlflow_tells(
    event: str, data: dict[str, Any], model: str | None, revision: str | None, ignored: bool
) -> None:
    """An event of a version, an alias or a tag requests a sync; an event of a prompt does not."""
    got = mlflow.read(mlflow_payload(event, {"name": "m", **data}))
    assert (event, model, revision) == (got.event, got.model, got.revision)
    assert ignored is (got.ignored is not None), got


@given(ANYTHING)
def test_anything_at_all_is_read(document: Any) -> None:
    """Whatever a payload is, reading it answers something that can be stored."""
    for read in (huggingface.read, mlflow.read):
        parsed = read(document)
        assert isinstance(parsed, HubEvent)
        assert parsed.model is not None or parsed.ignored is not None
        texts = [parsed.event, parsed.model, parsed.moved_from, parsed.revision]
        assert all(text is None or len(text) <= 200 for text in texts)
