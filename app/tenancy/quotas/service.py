"""Quotas of tenants, checked in the transaction of the write that they allow.

Each tenant has the quotas of the settings, except those that an operator set for it. A write beyond
a quota is refused, with an error that states the usage and the quota. A write that frees room is
never refused.

Where several transactions may count at a time, a lock on the tenant makes them count one by one, so
a quota is never exceeded. Models and bytes are written far more often than other things, and by
many writers at a time. So their lock is only taken near the quota.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict, Unpack, cast

from app.infra.db.database import Reader, Writer
from app.infra.errors import QueueFull, QuotaExceeded
from app.settings import Settings
from app.tenancy.quotas import repository
from app.tenancy.quotas.records import BOUNDS, QUOTAS, QuotaName, Quotas
from modelkin.errors import InvalidParameter

__all__ = ["QuotaService", "Allowance", "default_quotas"]

_MANY_MODELS: Final = 100_000
"""More models than all transactions of a moment store; so far below the quota none are counted."""
_MANY_BYTES: Final = 64 << 30

_SAYS: Final[Mapping[str, str]] = {
    "spaces": "this tenant has {used:,} spaces and may have {quota:,}: delete one first",
    "models": "this tenant has {used:,} models in its spaces and may have {quota:,}: delete some "
    "first",
    "support_bytes": "the supports of this tenant take {used:,} bytes of the {quota:,} that they "
    "may take, and this one takes {more:,}: delete models first",
    "fingerprints": "this tenant has {used:,} fingerprints and may have {quota:,}: delete some "
    "first",
    "fingerprint_bytes": "the fingerprints of this tenant take {used:,} bytes of the {quota:,} "
    "that they may take, and this one takes {more:,} more: delete some first",
    "queued_jobs": "{used:,} jobs of this tenant wait or run, and {quota:,} may: try again when "
    "some have ended, or cancel some",
    "sources": "this tenant has {used:,} sources and may have {quota:,}: delete one first",
    "subscriptions": "this tenant has {used:,} subscriptions and may have {quota:,}: delete one "
    "first",
    "merges": "{used:,} merges of this tenant have not ended, and {quota:,} may be open: delete "
    "some, or wait until some have",
    "reporters": "{used:,} reporters of K* are known in the spaces of this tenant, and {quota:,} "
    "may be: report under known names",
}


def default_quotas(settings: Settings) -> Quotas:
    """The quotas of every tenant for which an operator has set no others."""
    return Quotas(**{name: getattr(settings, f"quota_{name}") for name in QUOTAS})


class QuotaService:
    """Quotas of all tenants.

    Args:
        defaults: the quotas of the settings.
    """

    def __init__(self, defaults: Quotas) -> None:
        self.defaults = defaults

    def of(self, session: Reader, tenant_id: int) -> Quotas:
        """The quotas of a tenant."""
        return self.defaults.with_overrides(repository.overrides(session, tenant_id))

    def require(
        self, session: Writer, tenant_id: int, name: QuotaName, used: Callable[[], int]
    ) -> None:
        """Check that the tenant may have one more of something, before it is stored.

        Args:
            session: the transaction that stores it.
            tenant_id: the tenant that will own it.
            used: a query that counts what the tenant has.

        Raises:
            QuotaExceeded: the quota is used up; for jobs :class:`QueueFull`.
        """
        quota = self.of(session, tenant_id).of(name)
        if quota is None:
            return
        repository.lock_tenant(session, tenant_id)
        count = used()
        if count >= quota:
            raise _exceeded_error(name, count, quota)

    def allowance(self, session: Writer, tenant_id: int) -> Allowance:
        """Return the room left to the tenant in this transaction, which holds a space's lock."""
        stored = repository.read_usage(session, tenant_id)
        quotas = self.defaults.with_overrides(stored.overrides)
        if _is_near(stored.models, quotas.models, _MANY_MODELS) or _is_near(
            stored.support_bytes, quotas.support_bytes, _MANY_BYTES
        ):
            repository.lock_tenant(session, tenant_id)
            stored = repository.read_usage(session, tenant_id)
        return Allowance(quotas, _used(stored))

    def allowance_of(
        self, session: Writer, tenant_id: int, used: Mapping[QuotaName, int]
    ) -> Allowance:
        """Return the room left to the tenant in this transaction, which counts under its own lock.

        Args:
            used: what the tenant has of each thing.
        """
        return Allowance(self.of(session, tenant_id), used)

    def require_allowance(self, session: Reader, tenant_id: int, *, models: int) -> None:
        """Check, before long work, that ``models`` more models and one more byte would fit now.

        Raises:
            QuotaExceeded: the models would not fit.
        """
        stored = repository.read_usage(session, tenant_id)
        quotas = self.defaults.with_overrides(stored.overrides)
        Allowance(quotas, _used(stored)).take(models=models, support_bytes=1)

    def set(self, session: Writer, tenant_id: int, changes: Mapping[str, Any]) -> Quotas:
        """Set quotas of one tenant; return all its quotas.

        Args:
            changes: by quota name, a number, None for any number, or ``"default"`` for the
                setting's.

        Raises:
            InvalidParameter: a number is negative, or None or 0 for things that are deleted beyond
                their quota.
        """
        for name, value in changes.items():
            if value != "default":
                _require_valid(name, value)
        repository.lock_tenant(session, tenant_id)
        before = repository.overrides(session, tenant_id) or {}
        kept: dict[str, Any] = {
            name: value
            for name, value in {**before, **changes}.items()
            if name in QUOTAS and value != "default"
        }
        repository.set_overrides(session, tenant_id, kept)
        return self.defaults.with_overrides(kept)


class Allowance:
    """The room that a tenant has left, within one transaction.

    Args:
        quotas: the most that it may have.
        used: what it has of each thing.
    """

    def __init__(self, quotas: Quotas, used: Mapping[QuotaName, int]) -> None:
        self._quotas = quotas
        self._used = dict(used)

    def take(self, **more: Unpack[_Room]) -> None:
        """Take room for a write in full, or take nothing; less than nothing gives some back.

        Raises:
            QuotaExceeded: there is too little room; the message says of what.
        """
        wanted = cast(Mapping[QuotaName, int], more)
        for name, count in wanted.items():
            quota = self._quotas.of(name)
            if count > 0 and quota is not None and self._used[name] + count > quota:
                raise _exceeded_error(name, self._used[name], quota, count)
        for name, count in wanted.items():
            self._used[name] += count


class _Room(TypedDict, total=False):
    models: int
    support_bytes: int
    fingerprints: int
    fingerprint_bytes: int


def _used(stored: repository.TenantUsage) -> dict[QuotaName, int]:
    return {"models": stored.models, "support_bytes": stored.support_bytes}


def _is_near(used: int, quota: int | None, margin: int) -> bool:
    return quota is not None and used > quota - margin


def _exceeded_error(name: QuotaName, used: int, quota: int, more: int = 1) -> QuotaExceeded:
    said = _SAYS[name].format(used=used, quota=quota, more=more)
    error_type = QueueFull if name == "queued_jobs" else QuotaExceeded
    return error_type(f"{said} (quota {name})")


def _require_valid(name: str, value: Any) -> None:
    if value is None and name not in BOUNDS:
        return
    least = 1 if name in BOUNDS else 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
        raise InvalidParameter(f"{name}: a quota is {least} or more, not {value!r}", field=name)
