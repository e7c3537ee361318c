"""The visibility of rows to a transaction: a second wall between tenants, on Postgres.

Every query names its tenant already. Policies of the tables (row-level security) hide the rows of
all other tenants from a transaction that names its tenant, so a query that forgets the tenant finds
no foreign rows. A request names its tenant once its key is known; before that it sees no tenant's
rows. A worker names the tenant of each job. The service's own jobs, the clean-up and commands see
all rows.

The tenant is a property of the context: threads and tasks of a request inherit it, if they copy the
context. Any other thread sees all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from sqlalchemy import text
from sqlalchemy.orm import Session

__all__ = [
    "SETTING",
    "every_tenant",
    "every_tenant_within",
    "no_tenant",
    "one_tenant",
    "role_without_policies",
    "show_tenant",
    "visible",
]

SETTING: Final = "modelkin.tenant"
"""The setting of Postgres that the policies read: an id, empty for all, 0 for none."""

_ALL: Final = ""
_NONE: Final = "0"

_ROLE: Final = text(
    "SELECT rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)"
)

_visible: ContextVar[str] = ContextVar(SETTING, default=_ALL)


def visible() -> str:
    """The value of the setting in this context."""
    return _visible.get()


def show_tenant(tenant_id: int) -> None:
    """Let the transactions of this context see the rows of one tenant from now on."""
    _visible.set(str(int(tenant_id)))


def role_without_policies(session: Session) -> str | None:
    """The role of Postgres of a session, if no policy binds it."""
    if session.get_bind().dialect.name != "postgresql":
        return None
    role: str | None = session.scalar(_ROLE)
    return role


@contextmanager
def no_tenant() -> Iterator[None]:
    """Let transactions within the block see no tenant's rows."""
    with _showing(_NONE):
        yield


@contextmanager
def one_tenant(tenant_id: int) -> Iterator[None]:
    """Let transactions within the block see the rows of one tenant."""
    with _showing(str(int(tenant_id))):
        yield


@contextmanager
def every_tenant() -> Iterator[None]:
    """Let transactions within the block see all rows."""
    with _showing(_ALL):
        yield


@contextmanager
def every_tenant_within(session: Session) -> Iterator[None]:
    """Let a transaction that has begun see all rows within the block.

    For a row of the service itself that a change of a tenant asks for.
    """
    session.flush()  # pending rows of the tenant are written as the tenant
    with every_tenant():
        _show(session)
        yield
        session.flush()
    _show(session)


def _show(session: Session) -> None:
    """Set what the transaction of a session sees to what this context sees."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"SET LOCAL {SETTING} = '{visible()}'"))


@contextmanager
def _showing(value: str) -> Iterator[None]:
    token = _visible.set(value)
    try:
        yield
    finally:
        _visible.reset(token)
