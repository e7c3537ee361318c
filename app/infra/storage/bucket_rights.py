"""The rights of a bucket's credentials, found by trying: no two stores tell them alike."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Final

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore

from app.infra.errors import Unavailable
from app.infra.storage.blobs import RIGHTS
from app.infra.storage.object_store import first_line, is_without_bucket, open_store

__all__ = ["missing_rights"]

_REFUSED: Final = re.compile("401 Unauthorized|403 Forbidden|AccessDenied")
"""The texts of refusals in errors of the store, some of which have no class."""


def missing_rights(url: str) -> list[str]:
    """Try each operation on a temporary object, which stays only if deleting is refused.

    Args:
        url: the URL of the bucket and its prefix.

    Returns:
        The :data:`RIGHTS` that the store refuses.

    Raises:
        Unavailable: the store does not answer, has no such bucket, or overwrites existing objects.
    """
    store, key = open_store(url), f".check-{secrets.token_hex(8)}"
    requests: tuple[Callable[[], object], ...] = (
        lambda: next(iter(obstore.list(store, chunk_size=1)), None),
        lambda: _create(store, key),
        lambda: obstore.get(store, key),
        lambda: obstore.delete(store, key),
    )
    refused = [_is_refused(request) for request in requests]
    return [right for right, no in zip(RIGHTS, refused, strict=True) if no]


def _create(store: ObjectStore, key: str) -> None:
    """Create an object, which a second attempt must not be able to."""
    obstore.put(store, key, b"", mode="create")
    try:
        obstore.put(store, key, b"", mode="create")
    except AlreadyExistsError:
        return
    obstore.delete(store, key)
    raise Unavailable(
        "the object store overwrites an object that was to be created: it has to know the "
        "condition If-None-Match: *"
    )


def _is_refused(request: Callable[[], object]) -> bool:
    """Whether a store that answers refuses a request."""
    try:
        request()
    except (BaseError, OSError) as error:
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return True
        if _REFUSED.search(str(error)):
            return True
        if is_without_bucket(error):
            raise Unavailable("there is no such bucket", reason=first_line(error)) from error
        if not isinstance(error, FileNotFoundError):  # as where the object could not be put
            raise Unavailable("the object store failed", reason=first_line(error)) from error
    return False
