"""API keys: create, check and revoke them; identify callers by them.

A key is ``mk_``, 43 characters that hold 256 random bits, and 6 that check them. So a mistyped key
is distinguished from an unknown one without a query. Only its SHA-256 is stored, and a lookup uses
that: its time does not depend on how much of a guess is right.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string
import zlib
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from app.infra.db.database import Database, Reader, Writer
from app.infra.db.visibility import every_tenant
from app.infra.errors import Forbidden, KeyNotFound, QuotaExceeded, Unauthorized
from app.infra.programs import service_command
from app.tenancy.auth import repository
from app.tenancy.auth.records import KEY_MARK, KEY_PREFIX_LENGTH, Identity, KeyRecord, Tenant
from app.tenancy.auth.tenants import ensure_tenant
from app.tenancy.auth.uses import KeyUses
from app.tenancy.auth.visitor_sessions import VisitorSessions
from modelkin._validation import check_space_name
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page

__all__ = ["SCOPES", "Authenticator", "KeyService", "generate"]

SCOPES = ("read", "write", "metrics", "values", "admin")
"""The scopes of a key: queries, changes, the operator's ``/metrics``, the values of models that the
operator keeps, and the keys of its tenant.
"""

MAX_LABEL_LENGTH = 200
MAX_KEYS = 1_000
"""The most valid keys of a tenant that it makes itself."""
_SECRET_LENGTH = 43  # 62^43 > 2^256
_CHECK_LENGTH = 6  # 62^6 > 2^32
_DIGITS = string.digits + string.ascii_letters


def generate() -> str:
    """A new key: 256 random bits and their checksum."""
    secret = _base62(secrets.randbits(256), _SECRET_LENGTH)
    return KEY_MARK + secret + _checksum(secret)


class KeyService:
    """Creates, checks, lists and revokes keys."""

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
        """Store a key for a tenant, which is created if it is new; return the key.

        Args:
            tenant: named like a space.
            key: a result of :func:`generate`; a new one by default.
            label: a name for people, at most 200 characters.
            scopes: some of :data:`SCOPES`.

        Raises:
            InvalidInput: a name, label, scope or key is invalid.
        """
        wanted = frozenset(scopes)
        if not wanted or wanted - set(SCOPES):
            raise InvalidParameter(
                f"scopes are {', '.join(SCOPES)}, not {', '.join(sorted(wanted)) or 'none'}",
                field="scopes",
            )
        if len(label) > MAX_LABEL_LENGTH:
            raise InvalidParameter(
                f"a label has {MAX_LABEL_LENGTH} characters at most, this one {len(label)}",
                field="label",
            )
        key = generate() if key is None else key
        if not _well_formed(key):
            raise InvalidParameter(
                f"this is not a key: make one with `{service_command('keys generate')}`",
                field="key",
            )
        now = datetime.now(UTC)
        repository.insert_key(
            session,
            ensure_tenant(session, check_space_name(tenant, field="tenant")),
            prefix=key[:KEY_PREFIX_LENGTH],
            sha256=_sha256(key),
            label=label,
            scopes=wanted,
            created_at=now,
            expires_at=None if valid_for is None else now + valid_for,
        )
        return key

    def create_for(
        self,
        session: Writer,
        identity: Identity,
        *,
        label: str,
        scopes: Iterable[str],
        valid_for: timedelta | None,
    ) -> tuple[KeyRecord, str]:
        """Store a new key for the tenant of a caller; return its record and the key.

        Raises:
            Forbidden: the key would have a scope that the caller does not have.
            InvalidInput: a label or scope is invalid.
            QuotaExceeded: the tenant has as many valid keys as it may.
        """
        wanted = frozenset(scopes)
        lacking = (wanted & set(SCOPES)) - identity.scopes
        if lacking:
            raise Forbidden(
                f"this key lacks the scope {', '.join(sorted(lacking))}, and so cannot give it away"
            )
        if repository.count_usable(session, identity.tenant, datetime.now(UTC)) >= MAX_KEYS:
            raise QuotaExceeded(
                f"the tenant has {MAX_KEYS:,} valid keys: revoke those that it does not use"
            )
        key = self.create(
            session, identity.tenant.name, label=label, scopes=wanted, valid_for=valid_for
        )
        return self.check(session, key), key

    def get(self, session: Reader, tenant: Tenant, prefix: str) -> KeyRecord:
        """Return the tenant's key with these first characters.

        Raises:
            KeyNotFound: the tenant has no such key.
        """
        return repository.get_key(session, tenant, prefix)

    def page(
        self, session: Reader, tenant: Tenant, *, limit: int, cursor: str | None
    ) -> Page[KeyRecord]:
        """The tenant's keys, newest first, revoked and expired ones included."""
        return repository.page_of_keys(session, tenant, limit=limit, cursor=cursor)

    def revoke_own(self, session: Writer, tenant: Tenant, prefix: str) -> None:
        """Revoke one of the tenant's keys; a revoked key stays revoked.

        Raises:
            KeyNotFound: the tenant has no such key.
        """
        if not repository.revoke_key(session, prefix, datetime.now(UTC), tenant=tenant):
            repository.get_key(session, tenant, prefix)

    def check(self, session: Reader, key: str) -> KeyRecord:
        """The record of a valid key.

        Raises:
            Unauthorized: the key is malformed, unknown, revoked or expired.
        """
        if not _well_formed(key):
            raise Unauthorized("this is not a modelkin key: it is mistyped or cut short")
        digest = _sha256(key)
        found = repository.find_key(session, digest)
        if found is None or not hmac.compare_digest(found.sha256, digest):
            raise Unauthorized("this key is unknown")
        state = found.state_at(datetime.now(UTC))
        if state == "revoked":
            raise Unauthorized(f"the key {found.prefix}... was revoked")
        if state == "expired":
            raise Unauthorized(f"the key {found.prefix}... has expired")
        return found

    def any(self, session: Reader) -> bool:
        """Whether a valid key exists."""
        return repository.any_key(session, datetime.now(UTC))

    def usable(self, session: Reader, key_ids: Collection[int]) -> set[int]:
        """Return the ids of usable keys among some: not revoked, expired or deleted."""
        return repository.usable_keys(session, key_ids, datetime.now(UTC))

    def list(self, session: Reader) -> list[KeyRecord]:
        """Return all keys, oldest first."""
        return repository.list_keys(session)

    def revoke(self, session: Writer, prefix: str) -> str:
        """Revoke the valid key that begins with ``prefix``; return its first characters.

        Raises:
            KeyNotFound: there is no such key; the message says how long a prefix is, and names keys
                that begin so.
        """
        named = prefix[:KEY_PREFIX_LENGTH]
        if not repository.revoke_key(session, named, datetime.now(UTC)):
            begun = repository.keys_beginning(session, named)
            raise KeyNotFound(
                f"no valid key begins with {named}" if not begun else f"{named!r}{begun}"
            )
        return named


class Authenticator:
    """Identifies callers by their keys.

    Args:
        database: holds the keys.
        keys: checks them.
        sessions: checks the sessions of visitors.
        tenant: every caller's, where keys are not required.
        keys_required: whether a caller needs a key.
    """

    def __init__(
        self,
        database: Database,
        keys: KeyService,
        sessions: VisitorSessions,
        tenant: Tenant,
        *,
        keys_required: bool,
    ) -> None:
        self._database = database
        self._keys = keys
        self._sessions = sessions
        self._uses = KeyUses(database)
        self.keys_required = keys_required
        self.default = Identity(tenant, frozenset(SCOPES))
        """The identity of every caller where keys are not required."""

    def identify(self, key: str) -> Identity:
        """Return the tenant and scopes of a key.

        The query has a short transaction of its own, so a request with a slow body holds no
        connection.

        Raises:
            Unauthorized: the key is not valid.
        """
        with every_tenant(), self._database.reading() as session:
            record = self._keys.check(session, key)
        return self._identity(record)

    def identify_visitor(self, token: str) -> Identity:
        """Return the tenant and scopes of the key of a session, by its token.

        Raises:
            Unauthorized: the session or its key is over.
        """
        with every_tenant(), self._database.reading() as session:
            record, session_id = self._sessions.check(session, token)
        return self._identity(record, session_id)

    def _identity(self, record: KeyRecord, session_id: int | None = None) -> Identity:
        self._uses.note(record)
        return Identity(record.tenant, record.scopes, record.id, record.prefix, session_id)

    def usable(self, callers: Collection[Identity]) -> list[Identity]:
        """Return those of some callers whose keys are valid, and whose sessions go on."""
        key_ids = {each.key_id for each in callers if each.key_id is not None}
        session_ids = {each.session_id for each in callers if each.session_id is not None}
        with every_tenant(), self._database.reading() as session:
            keys = self._keys.usable(session, key_ids)
            sessions = {None, *self._sessions.open_ones(session, session_ids)}
        return [each for each in callers if each.key_id in keys and each.session_id in sessions]

    def write_uses(self, *_: object) -> None:
        """Write down when keys were last used; a step of the clean-up."""
        self._uses.write()


def _well_formed(key: str) -> bool:
    secret, check = key[len(KEY_MARK) : -_CHECK_LENGTH], key[-_CHECK_LENGTH:]
    return (
        key.startswith(KEY_MARK)
        and len(secret) == _SECRET_LENGTH
        and set(secret) <= set(_DIGITS)
        and _checksum(secret) == check
    )


def _checksum(secret: str) -> str:
    return _base62(zlib.crc32(secret.encode()), _CHECK_LENGTH)


def _base62(number: int, length: int) -> str:
    text = ""
    for _ in range(length):
        number, digit = divmod(number, 62)
        text = _DIGITS[digit] + text
    return text


def _sha256(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
