"""Downloads from the hub of a learngene's owner, with a limit, and with no redirect off https.

A token goes only to the server that it is for. Redirects lead to the hub's own stores, which get no
token.
"""

from __future__ import annotations

import os
from typing import Final

import httpx

from modelkin._version import __version__
from modelkin.client._transport.learngene_files import PartialFile
from modelkin.core.learngenes.references import HUGGING_FACE, HubFile, MlflowFile, Reference
from modelkin.errors import ConnectionFailed, LearngeneMismatch

__all__ = ["download", "known_token"]

_MAX_REDIRECTS: Final = 5
_CHUNK_BYTES: Final = 1 << 20


def download(
    reference: Reference,
    into: PartialFile,
    *,
    token: str | None,
    timeout: float,
    transport: httpx.BaseTransport | None = None,
) -> None:
    """Write the file that a reference names.

    Args:
        reference: the manifest's reference.
        into: the file that takes the bytes, up to the manifest's size.
        token: the token for the server of the reference; None for the environment's, if any.
        timeout: seconds, for connecting and for each pause while receiving.
        transport: a transport that carries the requests, in place of the network.

    Raises:
        LearngeneMismatch: the server has no such file, or redirects off https.
        ConnectionFailed: the server does not answer, or fails.
    """
    first = url = httpx.URL(reference.address)
    token = known_token(reference) if token is None else token
    try:
        with httpx.Client(timeout=timeout, transport=transport) as http:
            for _ in range(_MAX_REDIRECTS + 1):
                headers = _headers(token if _is_same_origin(first, url) else None)
                with http.stream("GET", url, headers=headers) as answer:
                    if not answer.has_redirect_location:
                        _require_file(answer, reference)
                        for chunk in answer.iter_bytes(_CHUNK_BYTES):
                            into.write(chunk)
                        return
                    url = _next(first, url, answer.headers["location"])
    except (httpx.RequestError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise ConnectionFailed(f"{url.host} does not give the learngene: {reason}") from error
    raise LearngeneMismatch(f"{first.host} redirects more than {_MAX_REDIRECTS} times")


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


def _headers(token: str | None) -> dict[str, str]:
    # No compression: the digest is of the file's own bytes.
    headers = {"User-Agent": f"modelkin/{__version__}", "Accept-Encoding": "identity"}
    return headers if token is None else {**headers, "Authorization": f"Bearer {token}"}


def _next(first: httpx.URL, url: httpx.URL, location: str) -> httpx.URL:
    target = url.join(location)
    if target.scheme != "https" and not (first.scheme == target.scheme == "http"):
        raise LearngeneMismatch(
            f"{url.host} redirects off https, to {target.scheme}://{target.host}: nothing was "
            f"written"
        )
    return target


def _require_file(answer: httpx.Response, reference: Reference) -> None:
    status = answer.status_code
    if status == 200:
        return
    where = f"{answer.url.host} answers {status} for {reference.address}"
    if status >= 500 or status == 429:
        raise ConnectionFailed(f"{where}: try again later")
    if status in {401, 403}:
        raise LearngeneMismatch(f"{where}: it needs a token that may read it (token=)")
    raise LearngeneMismatch(f"{where}: the file is not there any more")


def _is_same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    """Whether two addresses have one origin: scheme, host and port (RFC 6454; RFC 9110, 4.3.1)."""
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)
