"""API keys: making, checking and revoking them.

A key is ``mk_``, 43 characters that hold 256 random bits, and 6 that check them, so that a mistyped
key is told from an unknown one without a look into the database. Only its SHA-256 is stored, and it
is looked up by that: what takes time does not depend on how much of a guess is right.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from app.auth import repository
from app.auth.records import Identity, KeyRecord, Tenant
from app.auth.tenants import ensure_tenant
from app.errors import Unauthorized
from app.infra.db.database import Database, Reader, Writer
from modelkin._validation import check_space_name
from modelkin.errors import InvalidParameter

__all__ = ["SCOPES", "Authenticator", "KeyService", "generate"]

SCOPES = ("read", "write", "metrics")
"""What a key may open: queries, changes, and the operator's ``/metrics``."""

MAX_LABEL = 200
_MARK = "mk_"
_SECRET = 43  # 62^43 > 2^256
_CHECK = 6  # 62^6 > 2^32
_SHOWN = len(_MARK) + 8
_DIGITS = string.digits + string.ascii_letters


def generate() -> str:
    """A new key: 256 random bits and their checksum."""
    secret = _base62(secrets.randbits(256), _SECRET)
    return _MARK + secret + _checksum(secret)


class KeyService:
    """The use cases of keys."""

    def create(
        self,
        session: Writer,
        tenant: str,
        *,
        key: str | None = None,
        label: str = "",
        scopes: Iterable[str] = ("read", "write"),
        valid_for: timedelta | None = None,
    ) -> str:
        """Store a key for a tenant, which is made if it is new; answers the key, this once.

        Args:
            tenant: named like a space.
            key: one that :func:`generate` made; a new one by default.
            label: what people call it, at most 200 characters.
            scopes: some of :data:`SCOPES`.

        Raises:
            InvalidInput: a name, label, scope or key that cannot be.
        """
        wanted = frozenset(scopes)
        if not wanted or wanted - set(SCOPES):
            raise InvalidParameter(
                f"scopes are {', '.join(SCOPES)}, not {', '.join(sorted(wanted)) or 'none'}",
                field="scopes",
            )
        if len(label) > MAX_LABEL:
            raise InvalidParameter(
                f"a label has {MAX_LABEL} characters at most, this one {len(label)}", field="label"
            )
        key = generate() if key is None else key
        if not _well_formed(key):
            raise InvalidParameter(
                "this is no key: make one with `python -m app keys generate`", field="key"
            )
        now = datetime.now(UTC)
        repository.insert_key(
            session,
            ensure_tenant(session, check_space_name(tenant, field="tenant")),
            prefix=key[:_SHOWN],
            sha256=_sha256(key),
            label=label,
            scopes=wanted,
            created_at=now,
            expires_at=None if valid_for is None else now + valid_for,
        )
        return key

    def check(self, session: Reader, key: str) -> KeyRecord:
        """The record of a key that opens something.

        Raises:
            Unauthorized: it is malformed, unknown, revoked or expired.
        """
        if not _well_formed(key):
            raise Unauthorized("this is no modelkin key: it is mistyped or cut short")
        digest = _sha256(key)
        found = repository.find_key(session, digest)
        if found is None or not hmac.compare_digest(found.sha256, digest):
            raise Unauthorized("this key is unknown")
        if found.revoked_at is not None:
            raise Unauthorized(f"the key {found.prefix}... was revoked")
        if found.expires_at is not None and found.expires_at <= datetime.now(UTC):
            raise Unauthorized(f"the key {found.prefix}... has expired")
        return found

    def any(self, session: Reader) -> bool:
        """Whether there is a key that opens anything."""
        return repository.any_key(session, datetime.now(UTC))

    def list(self, session: Reader) -> list[KeyRecord]:
        """All keys, oldest first."""
        return repository.list_keys(session)

    def revoke(self, session: Writer, prefix: str) -> bool:
        """Revoke the key that begins with ``prefix``; False if there is none to revoke."""
        return repository.revoke_key(session, prefix[:_SHOWN], datetime.now(UTC))


class Authenticator:
    """Identifies callers by their keys.

    Args:
        database: holds the keys.
        keys: checks them.
        tenant: every caller's, where keys are not required.
        keys_required: whether a caller needs a key.
    """

    def __init__(
        self, database: Database, keys: KeyService, tenant: Tenant, *, keys_required: bool
    ) -> None:
        self._database = database
        self._keys = keys
        self.keys_required = keys_required
        self.default = Identity(tenant, frozenset(SCOPES))
        """Every caller, where keys are not required."""

    def identify(self, key: str) -> Identity:
        """The holder of a key.

        In a short transaction of its own, so that a slow body holds no connection.

        Raises:
            Unauthorized: the key opens nothing.
        """
        with self._database.reading() as session:
            record = self._keys.check(session, key)
        return Identity(record.tenant, record.scopes)


def _well_formed(key: str) -> bool:
    secret, check = key[len(_MARK) : -_CHECK], key[-_CHECK:]
    return (
        key.startswith(_MARK)
        and len(secret) == _SECRET
        and set(secret) <= set(_DIGITS)
        and _checksum(secret) == check
    )


def _checksum(secret: str) -> str:
    return _base62(zlib.crc32(secret.encode()), _CHECK)


def _base62(number: int, length: int) -> str:
    text = ""
    for _ in range(length):
        number, digit = divmod(number, 62)
        text = _DIGITS[digit] + text
    return text


def _sha256(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
