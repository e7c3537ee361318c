"""Public keys that join a merge: those that would harm the others are refused where they join."""

from __future__ import annotations

import base64

import httpx
import numpy as np
import pytest

from modelkin.federation.sharing import public_key
from tests.support.federations.low_order import LOW_ORDER_KEYS, key_of, same_secrets
from tests.support.federations.merging import Floats, HubMerge, Party
from tests.support.http_space import Space, assert_problem, ok

M = 1000
NAMES = ("a", "b", "c", "mallory")


@pytest.fixture
def merge(http: httpx.Client) -> HubMerge:
    """A merge of four members, one of whom is hostile."""
    drawn = np.random.default_rng(4).normal(0, 0.05, (4, M)).astype(np.float32)
    vectors: dict[str, Floats] = dict(zip(NAMES, drawn, strict=True))
    return HubMerge(Space(http, M), vectors, aggregators=1)


def join_with(party: Party, key: bytes) -> httpx.Response:
    return party.join(public_key=base64.b64encode(key).decode())


def test_keys_of_low_order_do_not_join(merge: HubMerge) -> None:
    """Each of the 14 encodings is a 422 that names the field and says why; the others average."""
    mallory = merge.parties["mallory"]
    for key in LOW_ORDER_KEYS:
        why = assert_problem(join_with(mallory, key), 422, "invalid_parameter", "public_key")
        assert "of low order" in why
    neutral = Party(merge, "helper")
    assert_problem(join_with(neutral, bytes(32)), 422, "invalid_parameter", "public_key")
    assert list(NAMES) == merge.show()["awaited"]
    merge.join_all()
    merge.send_all()
    merge.aggregate_all()
    assert ("done", 0) == (merge.state, merge.show()["attempt"])


def test_a_key_joins_once(merge: HubMerge) -> None:
    """Another member's key, itself or in a form with the same secrets, does not join again: a
    third member's masks for the two would cancel.
    """
    first, mallory = merge.parties["a"], merge.parties["mallory"]
    ok(first.join())
    key = public_key(first.key)
    for twin in (key, same_secrets(key)[1]):
        why = assert_problem(join_with(mallory, twin), 422, "invalid_parameter", "public_key")
        assert "another party has this public key" in why
    assert ["b", "c", "mallory"] == merge.show()["awaited"]


def test_keys_in_another_encoding_do_not_join(merge: HubMerge) -> None:
    """With the highest bit, or from 2^255 - 19 on: no cell that is sealed to them would open."""
    mallory = merge.parties["mallory"]
    for key in (same_secrets(public_key(mallory.key))[0], key_of(2**255 - 17)):
        why = assert_problem(join_with(mallory, key), 422, "invalid_parameter", "public_key")
        assert "not encoded as X25519 keys are" in why
    ok(mallory.join())
