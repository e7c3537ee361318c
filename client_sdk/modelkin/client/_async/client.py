"""``AsyncClient``: the service's API for asyncio, over ``httpx.AsyncClient``.

Owns the connection, the sending and the sleeping, as ``sync`` does for blocking calls, whose
methods these are, name by name. What is sent and how answers are read is ``_protocol``'s; what
comes of a try is ``_exchange``'s.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from modelkin.client._async.batches import put_chunks
from modelkin.client._protocol import deltas, spaces
from modelkin.client._protocol.batches import Given, check_count, uploading
from modelkin.client._protocol.deltas import Memory
from modelkin.client._protocol.exchange import Exchange, Outcome, Terms
from modelkin.client._protocol.hubs import AsyncSourceCalls
from modelkin.client._protocol.jobs import AsyncJobCalls
from modelkin.client._protocol.journal import Journal
from modelkin.client._protocol.kinship import AsyncKinCalls
from modelkin.client._protocol.sketches import AsyncSketchCalls
from modelkin.client._protocol.spaces import Call, Query
from modelkin.client._protocol.support_size import AsyncAgreementCalls
from modelkin.client._protocol.webhooks import AsyncSubscriptionCalls
from modelkin.client._sync.clusterings import AsyncClusteringCalls
from modelkin.client._sync.listing import AsyncListing
from modelkin.client._sync.supports import AsyncSupportCalls
from modelkin.client._transport.config import Config
from modelkin.client._transport.messages import Request
from modelkin.client._transport.progress import Count, Progress, pieces_async, reporting
from modelkin.core.layout import Layout
from modelkin.core.sketching.banding import Banding
from modelkin.core.sketching.signature import Signature
from modelkin.types.models import BulkResult, BulkSummary, ModelInfo
from modelkin.types.paging import UNCHANGED, Page, Unchanged
from modelkin.types.search import Neighbors, Overlap, SimilarityMatrix
from modelkin.types.spaces import SignatureSpec, SpaceInfo, SupportSizePolicy

__all__ = ["AsyncClient"]

T = TypeVar("T")

_LARGE: Final = 1 << 18
"""Bytes of an answer that are read in a thread: it may take milliseconds, the loop has others."""


class AsyncClient(
    AsyncAgreementCalls,
    AsyncSupportCalls,
    AsyncSketchCalls,
    AsyncClusteringCalls,
    AsyncJobCalls,
    AsyncKinCalls,
    AsyncSourceCalls,
    AsyncSubscriptionCalls,
):
    """A connection to one modelkin service; the tasks of one event loop may share it.

        async with modelkin.AsyncClient() as client:
            await client.put_support("digits-cnn", "org/client-7", support)
            async for model in client.models("digits-cnn"):
                ...

    Each method is the one of the same name of :class:`modelkin.Client`, awaited: the arguments, the
    answers, the errors and the retries are the same, and described there. Supports are encoded and
    decoded in a thread, so the event loop is not held up. A call that is cancelled ends at once and
    leaves the client as good as before; whether a cancelled write took effect is not known.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        delta_memory: int = deltas.MEMORY,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Connects at the first call, not here.

        Args:
            url: of the service; else ``MODELKIN_URL``, else ``http://127.0.0.1:8000``.
            api_key: else ``MODELKIN_API_KEY``; a service on loopback asks for none by default.
            timeout: seconds, for connecting and for each pause while sending or receiving.
            retries: tries after the first.
            delta_memory: bytes of indices that are remembered, so that the next support of a model
                need not be sent whole; 0 sends all whole.
            transport: what carries the requests, instead of the network.
            sleep: waits between tries, in seconds.
            jitter: draws from 0 to 1, a try's share of the longest pause.

        Raises:
            InvalidParameter: one of them cannot be right.
        """
        config = Config.resolve(url, api_key, timeout, retries)
        self.url = config.url
        self._terms = Terms.of(config, jitter)
        self._memory = Memory(delta_memory)
        self._sleep = sleep
        self._http = httpx.AsyncClient(transport=transport, **config.http_options)

    # --- spaces -------------------------------------------------------------------------------

    def spaces(self) -> AsyncListing[SpaceInfo]:
        """All spaces, by name, fetched page by page as they are read."""
        return AsyncListing(self._rows(spaces.spaces()), SpaceInfo)

    async def space(self, name: str) -> SpaceInfo:
        """A space with its counts; ``space_not_found`` where there is none."""
        return await self._run(spaces.space(name))

    async def ensure_space(
        self,
        name: str,
        *,
        layout: Layout | None = None,
        num_parameters: int | None = None,
        signature: SignatureSpec | None = None,
        banding: Banding | float | None = None,
        support_size: SupportSizePolicy | str | float | None = None,
    ) -> SpaceInfo:
        """The space of that name, made where it does not exist yet."""
        return await self._run(
            spaces.ensure_space(name, layout, num_parameters, signature, banding, support_size)
        )

    async def delete_space(self, name: str) -> None:
        """Deletes a space and every model in it."""
        await self._run(spaces.delete_space(name))

    # --- signatures, and many models ----------------------------------------------------------

    async def put_signature(
        self,
        space: str,
        model: str,
        signature: Signature,
        *,
        tags: Iterable[str] | None = None,
        if_match: str | None = None,
        progress: Progress | bool = False,
    ) -> ModelInfo:
        """Stores a signature alone: the service never sees the indices."""
        call = spaces.put_signature(space, model, signature, tags, if_match)
        with reporting(progress, model) as report:
            return await self._run(call, report)

    async def put_many(
        self,
        space: str,
        items: Iterable[Given] | AsyncIterable[Given],
        *,
        batch_size: int = 500,
        concurrency: int = 4,
        progress: Count | bool = False,
        resume: str | os.PathLike[str] | None = None,
        on_result: Callable[[BulkResult], object] | None = None,
    ) -> BulkSummary:
        """Stores many models, hundreds a request; ``items`` may be asynchronous too.

        What ends the upload as a whole, a cancellation for one, ends the requests under way.
        """
        check_count("concurrency", concurrency, 64)
        journal = None if resume is None else Journal(resume, self.url, await self.space(space))
        with uploading(
            space,
            items,
            batch_size=batch_size,
            progress=progress,
            journal=journal,
            on_result=on_result,
        ) as upload:
            await put_chunks(upload, items, concurrency, self._run)
        return upload.summary

    async def get_signature(self, space: str, model: str) -> Signature:
        """The signature of a model, sent alone or computed by the service from its support."""
        return await self._run(spaces.get_signature(space, model))

    # --- models -------------------------------------------------------------------------------

    def models(self, space: str, *, tags: Iterable[str] = ()) -> AsyncListing[ModelInfo]:
        """The models of a space that carry all the tags, by name, fetched page by page."""
        return AsyncListing(self._rows(spaces.models(space, tags)), ModelInfo)

    async def model(self, space: str, model: str) -> ModelInfo:
        """What the service knows of a model; ``model_not_found`` where there is none."""
        return self._memory.see(await self._run(spaces.model(space, model)))

    async def update_model(
        self,
        space: str,
        model: str,
        *,
        tags: Iterable[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        source: str | Unchanged | None = UNCHANGED,
        base_model: str | Unchanged | None = UNCHANGED,
        if_match: str | None = None,
    ) -> ModelInfo:
        """Changes what is said about a model; what is left out stays as it is."""
        call = spaces.update_model(space, model, tags, attributes, source, base_model, if_match)
        return self._memory.see(await self._run(call))

    async def delete_model(self, space: str, model: str, *, if_match: str | None = None) -> None:
        """Deletes a model with its support and signature."""
        await self._run(spaces.delete_model(space, model, if_match))

    # --- questions ----------------------------------------------------------------------------

    async def neighbors(
        self,
        space: str,
        query: Query,
        *,
        k: int = 10,
        min_similarity: float | None = None,
        method: str = "auto",
        tags: Iterable[str] = (),
    ) -> Neighbors:
        """The models most similar to one, best first."""
        return await self._run(
            await asyncio.to_thread(spaces.neighbors, space, query, k, min_similarity, method, tags)
        )

    async def overlap(self, space: str, a: str, b: str) -> Overlap:
        """Two models compared exactly, tensor by tensor where the space has a layout."""
        return await self._run(spaces.overlap(space, a, b))

    async def similarity(self, space: str, models: Iterable[str]) -> SimilarityMatrix:
        """All pairs of up to 1,000 models, in the order given."""
        return await self._run(spaces.similarity(space, models))

    async def ready(self) -> bool:
        """Whether the service answers and can serve: one try, no error where nothing answers."""
        return self._terms.is_ready(await self._send(spaces.ready()))

    # --- the connection -----------------------------------------------------------------------

    async def close(self) -> None:
        """Closes the connections; ``async with`` does it too."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.url}>"

    async def _rows(self, call: Call[Page[T]]) -> AsyncIterator[T]:
        following: Call[Page[T]] | None = call
        while following is not None:
            page = await self._run(following)
            for row in page.items:
                yield row
            following = spaces.next_page(following, page, self.url)

    async def _run(self, call: Call[T], report: Progress | None = None) -> T:
        exchange = Exchange(call, self._terms)
        while (pause := exchange.after(await self._send(call.request, report))) is not None:
            await self._sleep(pause)
        if exchange.size < _LARGE:
            return exchange.result()
        return await asyncio.to_thread(exchange.result)

    async def _send(self, request: Request, report: Progress | None = None) -> Outcome:
        content = request.content if report is None else pieces_async(request.content, report)
        try:
            return await self._http.request(
                request.method, request.target, headers=request.sent_headers, content=content
            )
        except httpx.RequestError as error:
            return error
