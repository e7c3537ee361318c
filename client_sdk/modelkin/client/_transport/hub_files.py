"""The rules of downloads from the hub of a learngene's owner, with no redirect off https.

A token goes only to the server that it is for. Redirects lead to the hub's own stores, which get no
token.
"""

from __future__ import annotations

import os
from typing import Final

import httpx

from modelkin._version import __version__
from modelkin.client._transport.deadline import Deadline
from modelkin.core.learngenes.references import HUGGING_FACE, HubFile, MlflowFile, Reference
from modelkin.errors import ConnectionFailed, LearngeneMismatch

__all__ = [
    "MAX_REDIRECTS",
    "PART_BYTES",
    "Parts",
    "headers_for",
    "is_same_origin",
    "known_token",
    "next_address",
    "require_file",
]

MAX_REDIRECTS: Final = 5
PART_BYTES: Final = 1 << 24
"""The bytes that may take as long as a call: as many as one request of a kept file reads."""
_IDENTITY: Final = {"", "identity"}


def known_token(reference: Reference) -> str | None:
    """The environment's token for the hub of a reference, if the token is for that hub.

    Another party writes the manifest, whose server must not get the reader's token.
    """
    if isinstance(reference, HubFile):
        ours = os.environ.get("HF_ENDPOINT") or HUGGING_FACE
        name = "HF_TOKEN"
    elif isinstance(reference, MlflowFile):
        ours, name = os.environ.get("MLFLOW_TRACKING_URI") or "", "MLFLOW_TRACKING_TOKEN"
    else:
        return None
    is_ours = reference.url.rstrip("/") == ours.rstrip("/")
    return (os.environ.get(name) or "").strip() or None if is_ours else None


class Parts:
    """The progress of a download, each part of which has the time of a call.

    Args:
        deadline: the deadline of the first part; it begins again with each.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._seen = 0

    def add(self, count: int) -> None:
        """Count the bytes that came.

        Raises:
            httpx.ReadTimeout: the part took too long.
        """
        part = self._seen // PART_BYTES
        self._seen += count
        if self._deadline.left <= 0:
            seconds = self._deadline.seconds
            raise httpx.ReadTimeout(f"{PART_BYTES >> 20} MiB took longer than {seconds:g} s")
        if self._seen // PART_BYTES > part:
            self._deadline.restart()


def headers_for(token: str | None) -> dict[str, str]:
    """The headers of a download: without compression, the digest is of the file's own bytes."""
    headers = {"User-Agent": f"modelkin/{__version__}", "Accept-Encoding": "identity"}
    return headers if token is None else {**headers, "Authorization": f"Bearer {token}"}


def next_address(first: httpx.URL, url: httpx.URL, location: str) -> httpx.URL:
    """The address that a redirect leads to.

    Raises:
        LearngeneMismatch: it leads off https.
    """
    target = url.join(location)
    if target.scheme != "https" and not (first.scheme == target.scheme == "http"):
        raise LearngeneMismatch(
            f"{url.host} redirects off https, to {target.scheme}://{target.host}: nothing was "
            f"written"
        )
    return target


def require_file(answer: httpx.Response, reference: Reference) -> None:
    """Refuse an answer that is not the file's bytes.

    Raises:
        LearngeneMismatch: the server has no such file, or gives it to others alone.
        ConnectionFailed: the server fails.
    """
    status = answer.status_code
    if status == 200:
        coding = answer.headers.get("content-encoding", "")
        if coding.strip().lower() not in _IDENTITY:
            raise LearngeneMismatch(
                f"{answer.url.host} answers a compressed file, which was not asked for: nothing "
                f"was written"
            )
        return
    where = f"{answer.url.host} answers {status} for {reference.address}"
    if status >= 500 or status == 429:
        raise ConnectionFailed(f"{where}: try again later")
    if status in {401, 403}:
        raise LearngeneMismatch(f"{where}: it needs a token that may read it (token=)")
    raise LearngeneMismatch(f"{where}: the file is not there any more")


def is_same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    """Whether two addresses have one origin: scheme, host and port (RFC 6454; RFC 9110, 4.3.1)."""
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)
