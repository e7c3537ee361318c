"""``AsyncClient``: the service's API, with the namespaces of its resources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import httpx

from modelkin.client._async.anatomies import AsyncAnatomies
from modelkin.client._async.checkpoints import AsyncCheckpoints
from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.queries import AsyncQueries
from modelkin.client._async.resources.clusterings import AsyncClusterings
from modelkin.client._async.resources.fingerprints import AsyncFingerprints
from modelkin.client._async.resources.hubs import AsyncSources
from modelkin.client._async.resources.jobs import AsyncJobs
from modelkin.client._async.resources.keys import AsyncKeys
from modelkin.client._async.resources.learngenes import AsyncLearngenes
from modelkin.client._async.resources.maps import AsyncMaps
from modelkin.client._async.resources.merges import AsyncMerges
from modelkin.client._async.resources.models import AsyncModels
from modelkin.client._async.resources.public import AsyncPublicSpaces
from modelkin.client._async.resources.reports import AsyncReports
from modelkin.client._async.resources.revisions import AsyncModelRevisions
from modelkin.client._async.resources.spaces import AsyncSpaces
from modelkin.client._async.resources.subspaces import AsyncSubspaces
from modelkin.client._async.resources.supports import AsyncSignatures, AsyncSketches, AsyncSupports
from modelkin.client._async.resources.webhooks import AsyncWebhooks
from modelkin.client._protocol.uploads.patches import DEFAULT_CACHE_BYTES, SupportCache
from modelkin.client._protocol.uploads.tensor_order import LayoutCache
from modelkin.client._transport.config import (
    CALL_SECONDS,
    IDLE_SECONDS,
    MAX_ANSWER_BYTES,
    Config,
)
from modelkin.client._transport.embedded import embedded_service

__all__ = ["AsyncClient"]


class AsyncClient(AsyncCheckpoints, AsyncQueries, AsyncAnatomies):
    """A connection to one modelkin service, for the tasks of one event loop.

        async with modelkin.AsyncClient() as client:
            await client.put_support("digits-cnn", "org/client-7", support)
            async for model in client.models.list("digits-cnn"):
                print(model.model)

    Every method raises, beside its own errors:

    - :class:`InvalidInput` for an argument that every service refuses, before anything is sent;
    - :class:`ApiError` where the service refuses: a subclass by the status, such as
      :class:`NotFoundError`, :class:`ConflictError` and :class:`RateLimitError`; ``problem_code``
      says why;
    - :class:`ConnectionFailed` where no service answers, or not in time;
    - :class:`PayloadTooLarge` for an answer that is longer than what was asked can be;
    - :class:`ClientClosed` after :meth:`close`;
    - :class:`ModelkinError` for an answer that this version cannot read.

    Refused and broken connections, 429 and 503 are retried after growing random pauses, or after
    the pause that the service asks for. Only idempotent requests are retried: reading,
    deleting, :meth:`ensure_space` and storing, without ``if_match``; and requests with an
    idempotency key, which this client draws for calls that make sources, subscriptions, their
    secrets, jobs and clusterings.

    A process that is forked has connections of its own; an embedded service stays its parent's.

    A call that is cancelled ends at once and leaves the client usable. Whether a cancelled write
    took effect is not known.

    Attributes:
        url: the service's address.
        spaces: the spaces of the service, their K and their graphs.
        models: the metadata of models.
        revisions: the past contents of models.
        supports: reads supports.
        signatures: reads signatures.
        sketches: stores and reads sketches.
        subspaces: stores and reads data subspaces.
        fingerprints: the lines of checkpoints, by model name and in no space.
        clusterings: clusterings, and the policies by which the service makes them.
        maps: the models of a space in the plane.
        learngenes: the layers that newcomers of a cluster start from.
        merges: averages of models that no party sees.
        jobs: work that goes on after an answer.
        sources: hubs whose models a space follows.
        webhooks: subscriptions to events, and their deliveries.
        keys: the API keys of your tenant.
        reports: what was found of all models beside what is declared.
        public: the spaces that every tenant may ask, yours and those of other tenants.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str | int | float | bool | None] | None = None,
        timeout: float = CALL_SECONDS,
        idle_timeout: float = IDLE_SECONDS,
        retries: int = 3,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        delta_cache_bytes: int = DEFAULT_CACHE_BYTES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Connects at the first call, not here.

        A service of its own runs beside this process, needs ``pip install 'modelkin[server]'``,
        and ends with the client. Its explorer is at ``client.url``.

        Args:
            url: the service's address; else ``MODELKIN_URL``, else ``http://127.0.0.1:8000``. With
                ``":memory:"`` the client has a service of its own, whose data goes with it.
            api_key: the key; else ``MODELKIN_API_KEY``. A service on loopback needs none by
                default.
            path: a folder: the client has a service of its own, whose data stays in the folder.
                The clients of one process share the service.
            settings: settings of a service that the client starts, by name, such as
                ``{"max_learngene_bytes": 1_000_000}``. docs/settings.md lists all, by their
                variables. The service checks them when it starts: the first call raises
                :class:`InvalidParameter` for a name or a value that cannot be.
            timeout: seconds of a call from its start to the last byte of its answer, retries and
                their pauses included; by default 600. What sends several requests has them for
                each: listings, ``put_many``, learngenes for each 16 MiB.
            idle_timeout: seconds, for connecting and for each pause while sending or receiving; by
                default 30.
            retries: the number of attempts after the first.
            delta_cache_bytes: the bytes of indices in the cache of supports that patches start
                from; 0 sends every support whole.
            max_answer_bytes: the most bytes of an answer, 1 GiB by default, and of the indices
                that it decodes to; JSON has 256 MiB at most.
            transport: a transport that carries the requests, in place of the network.

        Raises:
            InvalidParameter: an argument is out of range or of another form.
            MissingExtra: the service is to be started, and is not installed.
        """
        service = embedded_service(url, path, settings)
        address = url if service is None else service.url
        config = Config.resolve(address, api_key, timeout, retries, idle_timeout, max_answer_bytes)
        connection = AsyncConnection(config, transport, service)
        cache = SupportCache(delta_cache_bytes)
        self.url = config.url
        self._connection = connection
        self._support_cache = cache
        self._layouts = LayoutCache()
        self.spaces = AsyncSpaces(connection, self._layouts)
        self.models = AsyncModels(connection, cache)
        self.revisions = AsyncModelRevisions(connection)
        self.supports = AsyncSupports(connection, cache, self._layouts)
        self.signatures = AsyncSignatures(connection)
        self.sketches = AsyncSketches(connection)
        self.subspaces = AsyncSubspaces(connection)
        self.fingerprints = AsyncFingerprints(connection)
        self.clusterings = AsyncClusterings(connection, self._layouts)
        self.maps = AsyncMaps(connection)
        self.learngenes = AsyncLearngenes(connection, config.timeout, config.idle_timeout)
        self.merges = AsyncMerges(connection)
        self.jobs = AsyncJobs(connection)
        self.sources = AsyncSources(connection)
        self.webhooks = AsyncWebhooks(connection)
        self.keys = AsyncKeys(connection)
        self.reports = AsyncReports(connection)
        self.public = AsyncPublicSpaces(connection)

    async def ready(self) -> bool:
        """Whether the service can answer: one attempt, and False where none answers."""
        return await self._connection.is_ready()

    async def close(self) -> None:
        """Closes the connections; ``async with`` does it too."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        await self._connection.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._connection.is_closed else ""
        return f"<AsyncClient of {self.url}{state}>"
