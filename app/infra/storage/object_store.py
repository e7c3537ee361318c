"""An object store by its URL: its client's timeouts and attempts, and the text of its failures."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from app.infra.errors import Unavailable

__all__ = [
    "MAX_ATTEMPTS",
    "PATIENT_S",
    "RETRY_S",
    "SILENT_S",
    "first_line",
    "is_beyond_end",
    "is_without_bucket",
    "open_store",
]

MAX_ATTEMPTS: Final = 3
RETRY_S: Final = 5.0
"""Seconds after which no other attempt begins: a silent store is asked once."""
SILENT_S: Final = 5.0
"""Seconds without a byte of its answer after which a store does not answer."""
PATIENT_S: Final = 30.0
"""Seconds of a whole request, which may be silent as long if it sends or deletes much."""
_NO_BUCKET: Final = re.compile("NoSuchBucket|ContainerNotFound")
_BEYOND_END: Final = re.compile("status code: 416|StartTooLarge")


def open_store(url: str, *, patient: bool = False) -> ObjectStore:
    """Open the store of a URL, with the credentials of the environment that its own tools read.

    Args:
        url: the URL of the bucket and its prefix.
        patient: whether to wait longer for the answers to long requests.

    Raises:
        Unavailable: the URL, or a variable of the store, is wrong.
    """
    options: dict[str, str] = {"checksum_algorithm": "SHA256"} if url.startswith("s3:") else {}
    try:
        return from_url(  # type: ignore[no-any-return, call-overload]
            url,
            client_options={
                "timeout": timedelta(seconds=PATIENT_S),
                "read_timeout": timedelta(seconds=PATIENT_S if patient else SILENT_S),
                "connect_timeout": timedelta(seconds=2),
                "allow_http": True,  # only where an operator names such an address
            },
            retry_config={
                "max_retries": MAX_ATTEMPTS,
                "retry_timeout": timedelta(seconds=RETRY_S),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=50),
                    "max_backoff": timedelta(seconds=2),
                    "base": 2,
                },
            },
            **options,
        )
    except (BaseError, ValueError) as error:
        raise Unavailable(f"the object store {url} cannot be used", reason=str(error)) from error


def is_without_bucket(error: Exception) -> bool:
    """Whether a store says that the bucket itself is not there."""
    return _NO_BUCKET.search(str(error)) is not None


def is_beyond_end(error: Exception) -> bool:
    """Whether a store says that an object ends before the range that was asked for."""
    return _BEYOND_END.search(str(error)) is not None


def first_line(error: Exception) -> str:
    """The first line of an error, without the answer of the store."""
    return re.split(r"\n|<\?xml", str(error), maxsplit=1)[0]
