"""Public keys that join a merge: those that would harm the others are refused where they join."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import update

from app.infra.db.tables.merges import MergePartyRow
from modelkin.federation.sharing import public_key
from tests.support.app.harness import open_app
from tests.support.backends import SQLITE
from tests.support.federations.low_order import LOW_ORDER_KEYS, key_of, same_secrets
from tests.support.federations.merging import Floats, HubMerge, Party
from tests.support.http_space import Space, assert_problem, ok

M = 1000
NAMES = ("a", "b", "c", "mallory")


def merge_of(http: httpx.Client) -> HubMerge:
    drawn = np.random.default_rng(4).normal(0, 0.05, (4, M)).astype(np.float32)
    vectors: dict[str, Floats] = dict(zip(NAMES, drawn, strict=True))
    return HubMerge(Space(http, M), vectors, aggregators=1)


@pytest.fixture
def merge(http: httpx.Client) -> HubMerge:
    """A merge of four members, one of whom is hostile."""
    return merge_of(http)


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


def test_a_key_that_joined_before_an_upgrade_is_in_no_roster(tmp_path: Path) -> None:
    """A merge may hold one from a version that took it: whose it is, is left out by name before
    shards are dealt, and the others average in the first attempt.
    """
    with open_app(tmp_path, SQLITE) as app:
        http: Any = app.http  # a client of the same interface, within the process
        merge = merge_of(http)
        last, *others = merge.parties.values()
        for party in others:
            ok(party.join())
        with app.database.writing() as session:
            mallory = update(MergePartyRow).where(MergePartyRow.name == "mallory")
            session.execute(mallory.values(public_key=LOW_ORDER_KEYS[0]))
        ok(last.join())
        reasons = {party["name"]: party["left_out"] for party in merge.show()["parties"]}
        assert "of low order" in reasons.pop("mallory")
        assert dict.fromkeys("abc") == reasons
        for name in reasons:
            merge.parties[name].send()
        merge.aggregate_all()
        assert ("done", 0) == (merge.state, merge.show()["attempt"])
