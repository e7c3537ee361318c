"""Sealing: what opens for whom, keystreams against another library, and files of releases."""

from __future__ import annotations

import hashlib
import json
import pathlib
import pickle
import sys

import numpy as np
import pytest
from Crypto.Cipher import AES
from Crypto.Hash import SHA256
from Crypto.Protocol.KDF import HKDF

from modelkin.errors import InvalidCell, InvalidParameter, MissingExtra
from modelkin.federation.sharing import Aggregator, Roster, Round, open_result
from modelkin.federation.sharing.pairwise_masks import add_keystream, pair_secret
from modelkin.federation.sharing.sealing import (
    new_key,
    public_key,
    seal,
    unseal,
    unwrap,
    wrap,
)
from tests.support.federations.sharing import Federation

GOLDEN = pathlib.Path(__file__).parent / "golden"
ENTRIES = json.loads((GOLDEN / "manifest.json").read_text())


def test_sealed_data_opens_for_one_party_and_purpose() -> None:
    """48 bytes longer, different each time, and closed to any other key, purpose or change."""
    key = new_key()
    sealed = seal(b"values", public_key(key), b"round 1")
    assert 6 + 48 == len(sealed)
    assert sealed != seal(b"values", public_key(key), b"round 1")
    assert b"values" == unseal(sealed, key, b"round 1")
    flipped = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for data, private, info in (
        (sealed, new_key(), b"round 1"),
        (sealed, key, b"round 2"),
        (flipped, key, b"round 1"),
        (sealed[:20], key, b"round 1"),
        (b"", key, b"round 1"),
    ):
        with pytest.raises(InvalidCell, match="does not open"):
            unseal(data, private, info)


def test_wrapped_data_opens_for_its_parties() -> None:
    """Once encrypted, 64 bytes a party; for no other place or key."""
    keys = [new_key() for _ in range(3)]
    data = wrap(b"result", [public_key(key) for key in keys], b"info")
    assert 3 * 64 + 6 + 16 == len(data)
    for at, key in enumerate(keys):
        assert b"result" == unwrap(data, 3, at, key, b"info")
    for at, key, given in (
        (0, keys[1], data),
        (3, keys[0], data),
        (0, keys[0], data[:-1]),
        (0, keys[0], data[:100]),
    ):
        with pytest.raises(InvalidCell):
            unwrap(given, 3, at, key, b"info")


@pytest.mark.parametrize("size", [1, 7, 65_536, 65_537, 200_001])
def test_keystreams_are_hkdf_and_aes(size: int) -> None:
    """The stream that another library makes; both ends have it, and it cancels."""
    mine, theirs = new_key(), new_key()
    secret = pair_secret(mine, public_key(theirs))
    assert secret == pair_secret(theirs, public_key(mine))
    derived = HKDF(secret, 32, b"", SHA256, 1, b"label")
    assert isinstance(derived, bytes)
    stream = AES.new(derived[:16], AES.MODE_CTR, initial_value=derived[16:], nonce=b"")
    expected = np.frombuffer(stream.encrypt(bytes(4 * size)), "<u4")
    cell = np.arange(size, dtype=np.uint32)
    add_keystream(cell, secret, b"label", subtract=False)
    assert np.array_equal(np.arange(size, dtype=np.uint32) + expected, cell)
    add_keystream(cell, secret, b"label", subtract=True)
    assert np.array_equal(np.arange(size, dtype=np.uint32), cell)


def test_keys_are_checked() -> None:
    """A key of another length is refused by name."""
    for wrong in (b"", b"1" * 31, "1" * 32):
        with pytest.raises(InvalidParameter) as raised:
            public_key(wrong)  # type: ignore[arg-type]
        assert "private_key" == raised.value.field


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cryptography the error says what to install."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.hpke", None)
    with pytest.raises(MissingExtra, match=r"modelkin\[sharing\]"):
        public_key(new_key())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_cells_of_releases_open(entry: dict[str, object]) -> None:
    """Sealed, rounded, concealed and wrapped cells of a release open to the same values."""
    roster = Roster.from_json(entry["roster"])
    keys = [bytes.fromhex(key) for key in entry["keys"]]  # type: ignore[attr-defined]
    weights = {int(at): weight for at, weight in entry["weights"].items()}  # type: ignore[attr-defined]
    current = Round(1, weights, peak=entry["peak"])  # type: ignore[arg-type]
    cells = {}
    for at in weights:
        data = (GOLDEN / f"{entry['name']}-{at}.mksc").read_bytes()
        assert entry["sha256"][str(at)] == hashlib.sha256(data).hexdigest()  # type: ignore[index]
        cells[at] = data
    (holder,) = roster.holders(0)
    found = Aggregator(roster, holder, keys[holder]).combine(0, 0, cells, current)
    assert found.values is not None
    assert entry["values"] == found.values.tolist()
    result = (GOLDEN / f"{entry['name']}-result.mksc").read_bytes()
    opened = open_result(roster, 1, keys[1], result, shard=0, piece=0, current=current)
    assert entry["values"] == opened.tolist()


def test_parties_can_be_pickled() -> None:
    """Ray pickles what a mod refers to: no suite and no enum of cryptography is kept."""
    federation = Federation(3, 10)
    assert pickle.loads(pickle.dumps(federation.members[0])) is not None
    assert pickle.loads(pickle.dumps(next(iter(federation.aggregators.values())))) is not None
