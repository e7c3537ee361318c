"""``client.sources``: hubs whose models a space follows, and the events that the hubs send."""

from __future__ import annotations

from collections.abc import Iterable

from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import hubs
from modelkin.client._protocol.hubs import Filters
from modelkin.types.hubs import HubEvent, Source
from modelkin.types.jobs import JobInfo
from modelkin.types.paging import UNCHANGED, Unchanged
from modelkin.types.vocabulary import HubImportance, HubKind, OnDelete

__all__ = ["AsyncSources"]


class AsyncSources(AsyncResource):
    """Sources of models; see docs/hubs.md."""

    async def create(
        self,
        kind: HubKind,
        space: str,
        *,
        secret: str,
        url: str | None = None,
        token: str | None = None,
        importance: HubImportance | None = None,
        base_model: str | None = None,
        exclude: Iterable[str] | None = None,
        filters: Filters | None = None,
        on_delete: OnDelete = "keep",
        poll_seconds: int | Unchanged | None = UNCHANGED,
        fingerprints: bool | Unchanged = UNCHANGED,
        backfill_per_hour: int | Unchanged | None = UNCHANGED,
    ) -> Source:
        """Follows the models of a hub. Retries make no second source.

            source = await client.sources.create(
                "huggingface", "llama-8b", secret=secret, url="https://huggingface.co",
                filters={"owners": ["my-org"]},
            )
            source.hook  # the path for the hub's webhook

        Args:
            kind: ``"huggingface"`` or ``"mlflow"``; a newer service may know more.
            space: the name of the space that receives models; theirs must be its layout.
            secret: signs the events of the hub, where it is entered too.
            url: the hub's address; without it events are only recorded.
            token: lets the service read from the hub; None reads what is public.
            importance: ``"weight"`` or ``"delta"`` alone; None stores the weights of every model in
                ``space``, and where a base is known also its difference from the base, in
                ``{space}-{base}-delta``.
            base_model: a model of the hub, the base of models that declare none.
            exclude: shell patterns of the tensors that supports leave out, such as
                ``"*.running_*"``.
            filters: the models to follow: ``{"repos": [...], "owners": [...], "tags": [...]}``.
            on_delete: whether a model that is deleted on the hub is kept or removed here.
            poll_seconds: the seconds between two polls; None for no polls, an hour by default.
            fingerprints: whether each model gets a fingerprint, also one that no space fits.
            backfill_per_hour: how many stored models an hour are read again for theirs, 60 by
                default; None for no limit.

        Raises:
            ApiError: ``space_not_found``, or an argument is wrong.
        """
        given = hubs.fields(
            space,
            secret,
            url,
            token,
            importance,
            base_model,
            exclude,
            filters,
            on_delete,
            poll_seconds,
            fingerprints,
            backfill_per_hour,
        )
        return await self._connection.run(hubs.create(kind, given))

    def list(self) -> AsyncListing[Source]:
        """Lists all sources, the newest first, page by page as they are read."""
        return self._listing(hubs.list_all(), Source)

    async def get(self, source: str | Source) -> Source:
        """Reads a source, with its last event, poll and error.

        Args:
            source: the source, or its id.

        Raises:
            ApiError: ``source_not_found``.
        """
        return await self._connection.run(hubs.get(source))

    async def update(
        self,
        source: str | Source,
        *,
        space: str | Unchanged = UNCHANGED,
        secret: str | Unchanged = UNCHANGED,
        url: str | Unchanged | None = UNCHANGED,
        token: str | Unchanged | None = UNCHANGED,
        importance: HubImportance | Unchanged | None = UNCHANGED,
        base_model: str | Unchanged | None = UNCHANGED,
        exclude: Iterable[str] | Unchanged | None = UNCHANGED,
        filters: Filters | Unchanged | None = UNCHANGED,
        on_delete: OnDelete | Unchanged = UNCHANGED,
        poll_seconds: int | Unchanged | None = UNCHANGED,
        fingerprints: bool | Unchanged = UNCHANGED,
        backfill_per_hour: int | Unchanged | None = UNCHANGED,
    ) -> Source:
        """Changes the given fields of a source; None clears a field. See :meth:`create` for fields.

        Args:
            source: the source, or its id.
            space: the name of the space that receives models from now on.
            secret: the secret, which counts from the next event on.
            url: the hub's address; a new host needs the token again.
            token: lets the service read from the hub.
            importance: the kinds of importance to store.
            base_model: a model of the hub, the base of models that declare none.
            exclude: shell patterns of the tensors that supports leave out.
            filters: the models to follow.
            on_delete: whether a model that is deleted on the hub is kept or removed here.
            poll_seconds: the seconds between two polls.
            fingerprints: whether each model gets a fingerprint; those that have none yet are read
                again.
            backfill_per_hour: how many of these an hour; None for no limit.

        Raises:
            ApiError: ``source_not_found``, or an argument is wrong.
        """
        given = hubs.fields(
            space,
            secret,
            url,
            token,
            importance,
            base_model,
            exclude,
            filters,
            on_delete,
            poll_seconds,
            fingerprints,
            backfill_per_hour,
        )
        return await self._connection.run(hubs.update(source, given))

    async def delete(self, source: str | Source) -> None:
        """Deletes a source; the models that came from it stay.

        Args:
            source: the source, or its id.

        Raises:
            ApiError: ``source_not_found``.
        """
        await self._connection.run(hubs.delete(source))

    def hub_events(self, source: str | Source) -> AsyncListing[HubEvent]:
        """Lists the events that a hub sent, the newest first, with their outcomes.

        Args:
            source: the source, or its id.
        """
        return self._listing(hubs.hub_events(source), HubEvent)

    async def poll(self, source: str | Source) -> JobInfo:
        """Starts a poll of the hub, which finds changes without events; returns its job at once.

        Args:
            source: the source, or its id.

        Raises:
            ApiError: ``source_not_found``, or the source has no URL.
        """
        return await self._connection.run(hubs.poll(source))
