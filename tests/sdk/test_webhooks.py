"""Webhooks are signed and verified as Standard Webhooks says; its own library is the oracle."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from modelkin.errors import InvalidParameter, InvalidWebhook
from modelkin.webhooks import TOLERANCE_S, new_secret, sign, verify
from tests.docs.pages import blocks, run_python

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = 1_795_000_000
BODY = b'{"type":"ping","timestamp":"2026-11-21T15:00:00Z","data":{}}'


def headers(**changes: str) -> dict[str, str]:
    """Good headers of the body, but for what is changed."""
    signature = sign(SECRET, "msg_1", NOW, BODY)
    good = {"webhook-id": "msg_1", "webhook-timestamp": str(NOW), "webhook-signature": signature}
    return good | {f"webhook-{name}": value for name, value in changes.items()}


@given(st.text(), st.integers(0, 2**31), st.text("abc_-0", min_size=1))
def test_signatures_are_those_of_the_library(payload: str, moment: int, message_id: str) -> None:
    """Both make the same signature of the same message."""
    secret = new_secret()
    theirs = Webhook(secret).sign(message_id, datetime.fromtimestamp(moment, UTC), payload)
    assert theirs == sign(secret, message_id, moment, payload.encode())


def test_the_example_of_the_specification() -> None:
    """The signature that stands in its documentation is the one that is made here."""
    body = b'{"test": 2432232314}'
    signature = sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == signature


def test_a_good_webhook_is_read() -> None:
    """However the headers' names are written, and as bytes or text, the JSON is answered."""
    loud = {name.title(): value for name, value in headers().items()}
    for body in (BODY, BODY.decode()):
        assert json.loads(BODY) == verify(body, loud, SECRET, now=NOW)


def test_each_of_several_signatures_is_enough() -> None:
    """While a secret is rotated there are two, and receivers with either accept."""
    other = new_secret()
    both = f"{sign(other, 'msg_1', NOW, BODY)} v2,xyz {sign(SECRET, 'msg_1', NOW, BODY)}"
    for secret in (other, SECRET):
        assert "ping" == verify(BODY, headers(signature=both), secret, now=NOW)["type"]


@pytest.mark.parametrize(
    ("changes", "body", "said"),
    [
        ({}, BODY + b" ", "none of its signatures"),
        ({"id": "msg_2"}, BODY, "none of its signatures"),
        ({"timestamp": str(NOW + 1)}, BODY, "none of its signatures"),
        ({"signature": "v1,AAAA"}, BODY, "none of its signatures"),
        ({"signature": "v2" + sign(SECRET, "msg_1", NOW, BODY)[2:]}, BODY, "none of its"),
        ({"signature": "ÿé"}, BODY, "none of its signatures"),
        ({"signature": ""}, BODY, "no header webhook-signature"),
        ({"id": ""}, BODY, "no header webhook-id"),
        ({"timestamp": ""}, BODY, "no header webhook-timestamp"),
        ({"timestamp": "soon"}, BODY, "not a whole number"),
        ({"timestamp": "1e9"}, BODY, "not a whole number"),
        ({"timestamp": str(NOW - TOLERANCE_S - 1)}, BODY, "301 s ago"),
        ({"timestamp": str(NOW + TOLERANCE_S + 1)}, BODY, "-301 s ago"),
    ],
)
def test_what_is_forged_stale_or_damaged_is_refused(
    changes: dict[str, str], body: bytes, said: str
) -> None:
    """It is refused, and the error says what is wrong."""
    with pytest.raises(InvalidWebhook, match=said):
        verify(body, headers(**changes), SECRET, now=NOW)


@pytest.mark.parametrize("name", ["id", "timestamp", "signature"])
@pytest.mark.parametrize("value", ["\ud800", "v1,\udcff", "é", "\0"])
def test_headers_that_are_no_text(name: str, value: str) -> None:
    """Whatever a server made of the bytes of a header, it is refused like any other forgery."""
    with pytest.raises(InvalidWebhook):
        verify(BODY, headers(**{name: value}), SECRET, now=NOW)


def test_a_body_that_is_no_text() -> None:
    """Half a character in a body that came as text is refused, too."""
    with pytest.raises(InvalidWebhook):
        verify('{"type": "\ud800"}', headers(), SECRET, now=NOW)


def test_a_signed_body_that_is_no_json() -> None:
    """It is refused as well, with the same error, however deep it is."""
    deep = b"[" * 100_000
    with pytest.raises(InvalidWebhook, match="not JSON"):
        verify(deep, headers(signature=sign(SECRET, "msg_1", NOW, deep)), SECRET, now=NOW)
    signed = headers(signature=sign(SECRET, "msg_1", NOW, b"{"))
    with pytest.raises(InvalidWebhook, match="not JSON"):
        verify(b"{", signed, SECRET, now=NOW)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_%%%", "whsec_é"])
def test_a_secret_that_is_none(secret: str) -> None:
    """A mistake of the receiver's is not blamed on the webhook."""
    with pytest.raises(InvalidParameter, match="whsec_"):
        verify(BODY, headers(), secret, now=NOW)


def test_the_time_is_that_of_this_machine() -> None:
    """Without another one, what the library signs just now is good."""
    now = datetime.now(UTC)
    signature = Webhook(SECRET).sign("msg_1", now, BODY.decode())
    good = headers(timestamp=str(int(now.timestamp())), signature=signature)
    assert "ping" == verify(BODY, good, SECRET)["type"]


def test_the_page_receives() -> None:
    """The receiver of docs/webhooks.md accepts what is signed, once, and nothing else."""
    page = Path(__file__).parents[2] / "docs" / "webhooks.md"
    [(_, source)] = [block for block in blocks(page.read_text()) if block[0] == "python"]
    namespace: dict[str, Any] = {}
    run_python(source, page.name, namespace)
    now = int(time.time())
    good = headers(timestamp=str(now), signature=sign(SECRET, "msg_1", now, BODY))
    seen: set[str] = set()
    assert ["ping", "known"] == [namespace["receive"](BODY, good, SECRET, seen) for _ in range(2)]
    with pytest.raises(InvalidWebhook):
        namespace["receive"](BODY, good, new_secret(), seen)
