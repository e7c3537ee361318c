"""``download``: gets the file of a learngene from the hub of its owner."""

from __future__ import annotations

import httpx

from modelkin.client._async.network import AsyncNetwork
from modelkin.client._transport.concurrency import async_offload
from modelkin.client._transport.config import authorities, proxy_for
from modelkin.client._transport.deadline import Deadline
from modelkin.client._transport.hub_files import (
    MAX_REDIRECTS,
    Parts,
    headers_for,
    is_same_origin,
    known_token,
    next_address,
    require_file,
)
from modelkin.client._transport.learngene_files import PartialFile
from modelkin.core.learngenes.references import Reference
from modelkin.errors import ConnectionFailed, LearngeneMismatch

__all__ = ["download"]


async def download(
    reference: Reference,
    into: PartialFile,
    *,
    token: str | None,
    timeout: float,
    idle_timeout: float,
    transport: httpx.AsyncBaseTransport | None = None,
) -> None:
    """Writes the file that a reference names.

    Args:
        reference: the manifest's reference.
        into: the file that takes the bytes, up to the manifest's size.
        token: the token for the server of the reference; None for the environment's, if any.
        timeout: seconds until the file begins, redirects included, and for each 16 MiB of it.
        idle_timeout: seconds, for connecting and for each pause while receiving.
        transport: a transport that carries the requests, in place of the network.

    Raises:
        LearngeneMismatch: the server has no such file, or redirects off https.
        ConnectionFailed: the server does not answer, or fails.
    """
    first = url = httpx.URL(reference.address)
    token = known_token(reference) if token is None else token
    deadline = Deadline(timeout, idle_timeout)
    try:
        for _ in range(MAX_REDIRECTS + 1):
            carrier = transport or AsyncNetwork(authorities(True), proxy_for(url))
            headers = headers_for(token if is_same_origin(first, url) else None)
            timeouts = {"timeout": deadline.timeouts()}
            async with (
                httpx.AsyncClient(transport=carrier, trust_env=False) as http,
                http.stream("GET", url, headers=headers, extensions=timeouts) as answer,
            ):
                if not answer.has_redirect_location:
                    require_file(answer, reference)
                    parts = Parts(deadline)
                    async for piece in answer.aiter_bytes():
                        await async_offload(into.write, piece)
                        parts.add(len(piece))
                    return
                url = next_address(first, url, answer.headers["location"])
    except (httpx.RequestError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise ConnectionFailed(f"{url.host} does not give the learngene: {reason}") from error
    raise LearngeneMismatch(f"{first.host} redirects more than {MAX_REDIRECTS} times")
