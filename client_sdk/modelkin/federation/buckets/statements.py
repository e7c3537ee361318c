"""``Statements``: what parties write down in a bucket, each with a proof that it is theirs."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import zlib
from typing import Any, Final

from modelkin.errors import ConnectionFailed, InvalidParameter, MergeFailed
from modelkin.federation.buckets.stores import Store
from modelkin.federation.sharing.sealing import check_group_secret, primitives

__all__ = ["Statements", "statement_key"]

log = logging.getLogger("modelkin.sharing")

_MAX_BYTES: Final = 16 << 20
_NONCE_BYTES: Final = 12


def statement_key(secret: bytes | None, merge: str) -> bytes:
    """The key of a merge's statements; slow to compute, against guesses of a weak secret.

    Raises:
        InvalidParameter: there is no group secret, or one of fewer than 16 bytes.
    """
    if check_group_secret(secret) is None:
        message = "a bucket knows no party: all of them share a random secret of 16 bytes or more"
        raise InvalidParameter(message, field="group_secret")
    assert secret is not None  # as it was just checked
    salt = b"modelkin merge in a bucket 1 " + merge.encode()
    return hashlib.scrypt(secret, salt=salt, n=1 << 14, r=8, p=1, dklen=32)


class Statements:
    """The statements of one merge. What was read once is not read again, as none ever changes.

    Args:
        store: keeps them; what it changes is found.
        merge: the merge's name, which all keys begin with.
        key: what proves that a party of the group wrote a statement, and under which name.

    Attributes:
        foreign: the names under which lies what no party of the group wrote.
    """

    def __init__(self, store: Store, merge: str, key: bytes) -> None:
        self._store, self._merge, self._key = store, merge, key
        self._known: dict[str, dict[str, Any]] = {}
        self.foreign: set[str] = set()

    def __len__(self) -> int:
        """How many are known."""
        return len(self._known)

    def read(self, name: str, *, warn: bool = True) -> dict[str, Any] | None:
        """What was stated; None if nothing was, or not by a party of the group.

        Args:
            name: the statement's.
            warn: whether to log what nobody of the group wrote; False where an error says so.

        Raises:
            ConnectionFailed: the store does not answer.
        """
        if name in self._known:
            return self._known[name]
        data = self._store.get(self.path(name), _MAX_BYTES)
        if data is None:
            return None
        tag, _, text = data.partition(b"\n")
        if not hmac.compare_digest(tag, self._tag(name, text)):
            if warn and name not in self.foreign:
                log.warning("%s: nobody with the group's secret wrote it", self.path(name))
            self.foreign.add(name)
            return None
        self.foreign.discard(name)
        self._known[name] = json.loads(text)
        return self._known[name]

    def state(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        """State something, unless something was stated; return what stands.

        Raises:
            ConnectionFailed: the store does not answer, or does not show it yet.
            MergeFailed: what somebody else put there is in the way.
        """
        if self.read(name, warn=False) is None and name not in self.foreign:
            text = json.dumps(fields, sort_keys=True).encode()
            self._store.put(self.path(name), self._tag(name, text) + b"\n" + text)
        stands = self.read(name, warn=False)
        if stands is not None:
            return stands
        self.require_own(name)
        raise ConnectionFailed(f"{self.path(name)} was written, and does not show yet")

    def require_own(self, name: str) -> None:
        """Require that what was last read under a name is not of somebody else.

        Raises:
            MergeFailed: it is.
        """
        if name in self.foreign:
            raise MergeFailed(
                f"{self.path(name)} was put there without the group's secret, by somebody who may "
                f"write to the bucket; or your secret is another"
            )

    def sealed(self, content: Any) -> str:
        """What goes into a statement, and only the group can read, such as names of tensors."""
        nonce = os.urandom(_NONCE_BYTES)
        text = zlib.compress(json.dumps(content).encode())
        sealed: bytes = nonce + self._cipher().encrypt(nonce, text, self._merge.encode())
        return sealed.hex()

    def opened(self, sealed: str) -> Any:
        """The content of :meth:`sealed`, of a statement whose proof was checked."""
        data = bytes.fromhex(sealed)
        nonce, text = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        opened: bytes = self._cipher().decrypt(nonce, text, self._merge.encode())
        return json.loads(zlib.decompress(opened))

    def _cipher(self) -> Any:
        primitives()
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(hmac.digest(self._key, b"sealed in statements", "sha256"))

    def path(self, name: str) -> str:
        """The key of the object."""
        return f"{self._merge}/{name}"

    def _tag(self, name: str, text: bytes) -> bytes:
        content = f"{self.path(name)}\n".encode() + text
        return hmac.digest(self._key, content, "sha256").hex().encode()
