"""``Client``: the service's API as blocking calls, over ``httpx.Client``.

Owns the connection, the sending and the sleeping. What is sent and how answers are read is
``_protocol``'s; what comes of a try is ``_exchange``'s.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from modelkin.client._protocol import deltas, spaces
from modelkin.client._protocol.batches import Given, check_count, uploading
from modelkin.client._protocol.deltas import Memory
from modelkin.client._protocol.exchange import Exchange, Outcome, Terms
from modelkin.client._protocol.hubs import SourceCalls
from modelkin.client._protocol.jobs import JobCalls
from modelkin.client._protocol.journal import Journal
from modelkin.client._protocol.kinship import KinCalls
from modelkin.client._protocol.sketches import SketchCalls
from modelkin.client._protocol.spaces import Call, Query
from modelkin.client._protocol.support_size import AgreementCalls
from modelkin.client._protocol.webhooks import SubscriptionCalls
from modelkin.client._sync.batches import put_chunks
from modelkin.client._sync.clusterings import ClusteringCalls
from modelkin.client._sync.listing import Listing
from modelkin.client._sync.supports import SupportCalls
from modelkin.client._transport.config import Config
from modelkin.client._transport.messages import Request
from modelkin.client._transport.progress import Count, Progress, pieces, reporting
from modelkin.core.layout import Layout
from modelkin.core.sketching.banding import Banding
from modelkin.core.sketching.signature import Signature
from modelkin.types.models import BulkResult, BulkSummary, ModelInfo
from modelkin.types.paging import UNCHANGED, Page, Unchanged
from modelkin.types.search import Neighbors, Overlap, SimilarityMatrix
from modelkin.types.spaces import SignatureSpec, SpaceInfo, SupportSizePolicy

__all__ = ["Client"]

T = TypeVar("T")


class Client(
    AgreementCalls,
    SupportCalls,
    SketchCalls,
    ClusteringCalls,
    JobCalls,
    KinCalls,
    SourceCalls,
    SubscriptionCalls,
):
    """A connection to one modelkin service; threads may share it.

        with modelkin.Client() as client:
            client.put_support("digits-cnn", "org/client-7", support)

    Every method raises, beside what it says itself:

    - :class:`InvalidInput` for an argument that no service would take, before anything is sent;
    - :class:`ApiError` where the service refuses: a subclass by the status, such as
      :class:`NotFoundError`, :class:`ConflictError` and :class:`RateLimitError`; ``problem_code``
      says why;
    - :class:`ConnectionFailed` where no service answers;
    - :class:`ModelkinError` for an answer in a form that this version does not know.

    Refused and broken connections, 429 and 503 are tried again after growing, random pauses, or the
    pause that the service asks for. That holds for what may be sent twice: reading, deleting,
    :meth:`ensure_space` and storing; not for :meth:`update_model`, and not with ``if_match``.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        delta_memory: int = deltas.MEMORY,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
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
        self._http = httpx.Client(transport=transport, **config.http_options)

    # --- spaces -------------------------------------------------------------------------------

    def spaces(self) -> Listing[SpaceInfo]:
        """All spaces, by name, fetched page by page as they are read."""
        return Listing(self._rows(spaces.spaces()), SpaceInfo)

    def space(self, name: str) -> SpaceInfo:
        """A space with its counts; ``space_not_found`` where there is none."""
        return self._run(spaces.space(name))

    def ensure_space(
        self,
        name: str,
        *,
        layout: Layout | None = None,
        num_parameters: int | None = None,
        signature: SignatureSpec | None = None,
        banding: Banding | float | None = None,
        support_size: SupportSizePolicy | str | float | None = None,
    ) -> SpaceInfo:
        """The space of that name, made where it does not exist yet.

        Args:
            name: ``[a-z0-9][a-z0-9._-]{0,99}``.
            layout: the tensors of its models, as ``modelkin.layout_of(model)`` gives them.
            num_parameters: M; needed only without a layout.
            signature: how its signatures are made; the service's default where left out.
            banding: how they are cut for ``method="lsh"``, or the least S of which they are to find
                99%; likewise.
            support_size: ``"agreed"``, where clients shall agree on the median of their K*; K as an
                int or a share of M as a float, where it is fixed; else each chooses its own.

        Raises:
            ApiError: ``space_exists`` where the space there is another one.
        """
        return self._run(
            spaces.ensure_space(name, layout, num_parameters, signature, banding, support_size)
        )

    def delete_space(self, name: str) -> None:
        """Deletes a space and every model in it."""
        self._run(spaces.delete_space(name))

    # --- signatures, and many models ----------------------------------------------------------

    def put_signature(
        self,
        space: str,
        model: str,
        signature: Signature,
        *,
        tags: Iterable[str] | None = None,
        if_match: str | None = None,
        progress: Progress | bool = False,
    ) -> ModelInfo:
        """Stores a signature alone: the service never sees the indices.

        Args:
            space: where; its M, scheme, h and seed must be the signature's.
            model: the name; ``support_exists`` where it already has a support.
            signature: as ``support.signature(...)`` makes it.
            tags: as for :meth:`put_support`.
            if_match: as for :meth:`put_support`.
            progress: as for :meth:`put_support`.
        """
        call = spaces.put_signature(space, model, signature, tags, if_match)
        with reporting(progress, model) as report:
            return self._run(call, report)

    def put_many(
        self,
        space: str,
        items: Iterable[Given],
        *,
        batch_size: int = 500,
        concurrency: int = 4,
        progress: Count | bool = False,
        resume: str | os.PathLike[str] | None = None,
        on_result: Callable[[BulkResult], object] | None = None,
    ) -> BulkSummary:
        """Stores many models, hundreds a request; what is counted as stored is durable.

        An item that is refused leaves the others as they are. Of several items of one model the
        last one stands. What ends the upload as a whole is raised once requests under way are over.

        Args:
            space: where.
            items: pairs of a name and a support or signature, or :class:`modelkin.BulkItem` objects
                with tags and attributes too. They are taken as they are needed, and few are in
                memory at a time.
            batch_size: the most models of a request, 1 to 10,000; it has 4 MiB at most anyway.
            concurrency: requests at a time, 1 to 64.
            progress: True shows a line on a terminal; a function is called with the items done and
                the items in all, or None where ``items`` has no length.
            resume: a file that notes what was acknowledged. The same call after an interruption
                sends only what is not noted there; the file may be deleted in the end.
            on_result: called with what became of each item, as that is known.

        Raises:
            InvalidParameter: ``resume`` is the file of another space, or of something else.
        """
        check_count("concurrency", concurrency, 64)
        journal = None if resume is None else Journal(resume, self.url, self.space(space))
        with uploading(
            space,
            items,
            batch_size=batch_size,
            progress=progress,
            journal=journal,
            on_result=on_result,
        ) as upload:
            put_chunks(upload, items, concurrency, self._run)
        return upload.summary

    def get_signature(self, space: str, model: str) -> Signature:
        """The signature of a model, sent alone or computed by the service from its support."""
        return self._run(spaces.get_signature(space, model))

    # --- models -------------------------------------------------------------------------------

    def models(self, space: str, *, tags: Iterable[str] = ()) -> Listing[ModelInfo]:
        """The models of a space that carry all the tags, by name, fetched page by page."""
        return Listing(self._rows(spaces.models(space, tags)), ModelInfo)

    def model(self, space: str, model: str) -> ModelInfo:
        """What the service knows of a model; ``model_not_found`` where there is none."""
        return self._memory.see(self._run(spaces.model(space, model)))

    def update_model(
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
        """Changes what is said about a model; what is left out stays as it is.

        Args:
            space: where the model is.
            model: its name.
            tags: replace its tags.
            attributes: replace its attributes; JSON values.
            source: where the model is from; None clears it.
            base_model: what it was made from; None clears it.
            if_match: the ``etag`` of the version to change, else ``precondition_failed``.
        """
        call = spaces.update_model(space, model, tags, attributes, source, base_model, if_match)
        return self._memory.see(self._run(call))

    def delete_model(self, space: str, model: str, *, if_match: str | None = None) -> None:
        """Deletes a model with its support and signature."""
        self._run(spaces.delete_model(space, model, if_match))

    # --- questions ----------------------------------------------------------------------------

    def neighbors(
        self,
        space: str,
        query: Query,
        *,
        k: int = 10,
        min_similarity: float | None = None,
        method: str = "auto",
        tags: Iterable[str] = (),
    ) -> Neighbors:
        """The models most similar to one, best first.

        Args:
            space: where to look.
            query: a stored model's name; or a support or signature, which is not stored.
            k: how many, 1 to 1,000.
            min_similarity: leave out those below this S, 0 to 1.
            method: ``"auto"``, ``"exact"``, ``"scan"`` or ``"lsh"``.
            tags: only models that carry all of them.
        """
        return self._run(spaces.neighbors(space, query, k, min_similarity, method, tags))

    def overlap(self, space: str, a: str, b: str) -> Overlap:
        """Two models compared exactly, tensor by tensor where the space has a layout."""
        return self._run(spaces.overlap(space, a, b))

    def similarity(self, space: str, models: Iterable[str]) -> SimilarityMatrix:
        """All pairs of up to 1,000 models, in the order given."""
        return self._run(spaces.similarity(space, models))

    def ready(self) -> bool:
        """Whether the service answers and can serve: one try, no error where nothing answers."""
        return self._terms.is_ready(self._send(spaces.ready()))

    # --- the connection -----------------------------------------------------------------------

    def close(self) -> None:
        """Closes the connections; ``with`` does it too."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def _rows(self, call: Call[Page[T]]) -> Iterator[T]:
        following: Call[Page[T]] | None = call
        while following is not None:
            page = self._run(following)
            yield from page.items
            following = spaces.next_page(following, page, self.url)

    def _run(self, call: Call[T], report: Progress | None = None) -> T:
        exchange = Exchange(call, self._terms)
        while (pause := exchange.after(self._send(call.request, report))) is not None:
            self._sleep(pause)
        return exchange.result()

    def _send(self, request: Request, report: Progress | None = None) -> Outcome:
        content = request.content if report is None else pieces(request.content, report)
        try:
            return self._http.request(
                request.method, request.target, headers=request.sent_headers, content=content
            )
        except httpx.RequestError as error:
            return error
