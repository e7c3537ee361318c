"""``client.webhooks``: subscriptions to events, and the deliveries to their receivers."""

from __future__ import annotations

from collections.abc import Iterable

from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import webhooks
from modelkin.client._protocol.webhooks import AnySubscription
from modelkin.types.paging import UNCHANGED, Unchanged
from modelkin.types.vocabulary import DeliveryState, EventType
from modelkin.types.webhooks import Delivery, Subscription

__all__ = ["AsyncWebhooks"]


class AsyncWebhooks(AsyncResource):
    """Webhook subscriptions and deliveries; see docs/webhooks.md.

    A receiver verifies deliveries with ``modelkin.webhooks.verify``.
    """

    async def create(
        self,
        url: str,
        events: Iterable[EventType],
        *,
        space: str | None = None,
        model: str | None = None,
        tag: str | None = None,
        threshold: float | None = None,
        description: str | None = None,
    ) -> Subscription:
        """Subscribes a URL to events. Retries make no second subscription.

            subscription = await client.webhooks.create(url, ["support.stored"])
            keep(subscription.secret)  # for modelkin.webhooks.verify; never answered again

        Args:
            url: the receiver's address, on the public internet or on a network that the service
                allows.
            events: the types of events.
            space: only events of this space.
            model: only events about this model; for ``neighbors.changed``, pairs with this model,
                whichever of the two changed.
            tag: only events about models that carry this tag; for ``neighbors.changed``, pairs
                with such a model.
            threshold: for ``neighbors.changed``, the similarity that a pair has to cross.
            description: a note in words.

        Raises:
            ApiError: the URL or another argument is refused.
        """
        fields = {
            "url": url,
            "events": events,
            "space": space,
            "model": model,
            "tag": tag,
            "threshold": threshold,
            "description": description,
        }
        return await self._connection.run(webhooks.create(fields))

    def list(self) -> AsyncListing[Subscription]:
        """Lists all subscriptions, the newest first, page by page as they are read."""
        return self._listing(webhooks.list_all(), Subscription)

    async def get(self, subscription: AnySubscription) -> Subscription:
        """Reads a subscription.

        Args:
            subscription: the subscription, or its id.

        Raises:
            ApiError: ``subscription_not_found``.
        """
        return await self._connection.run(webhooks.get(subscription))

    async def update(
        self,
        subscription: AnySubscription,
        *,
        url: str | Unchanged = UNCHANGED,
        events: Iterable[EventType] | Unchanged = UNCHANGED,
        space: str | Unchanged | None = UNCHANGED,
        model: str | Unchanged | None = UNCHANGED,
        tag: str | Unchanged | None = UNCHANGED,
        threshold: float | Unchanged | None = UNCHANGED,
        description: str | Unchanged | None = UNCHANGED,
        enabled: bool | Unchanged = UNCHANGED,
    ) -> Subscription:
        """Changes the given fields of a subscription; None clears a field.

        Args:
            subscription: the subscription, or its id.
            url: the receiver's address.
            events: the types of events.
            space: only events of this space.
            model: only events about this model, see :meth:`create`.
            tag: only events about models that carry this tag, see :meth:`create`.
            threshold: for ``neighbors.changed``, the similarity that a pair has to cross.
            description: a note in words.
            enabled: whether to send events; True also resets the failures and sends the pending
                deliveries.

        Raises:
            ApiError: ``subscription_not_found``, or an argument is refused.
        """
        fields = {
            "url": url,
            "events": events,
            "space": space,
            "model": model,
            "tag": tag,
            "threshold": threshold,
            "description": description,
            "enabled": enabled,
        }
        return await self._connection.run(webhooks.update(subscription, fields))

    async def delete(self, subscription: AnySubscription) -> None:
        """Deletes a subscription with its pending deliveries.

        Args:
            subscription: the subscription, or its id.

        Raises:
            ApiError: ``subscription_not_found``.
        """
        await self._connection.run(webhooks.delete(subscription))

    async def rotate_secret(
        self, subscription: AnySubscription, *, overlap_seconds: int | None = None
    ) -> Subscription:
        """Replaces the secret; only this answer has the new one.

        Args:
            subscription: the subscription, or its id.
            overlap_seconds: the seconds for which the previous secret signs as well; a day by
                default.

        Raises:
            ApiError: ``subscription_not_found``.
        """
        return await self._connection.run(webhooks.rotate_secret(subscription, overlap_seconds))

    async def ping(self, subscription: AnySubscription) -> Delivery:
        """Sends an event of type ``ping`` and returns its delivery at once.

        Args:
            subscription: the subscription, or its id.

        Raises:
            ApiError: ``subscription_not_found`` or ``subscription_disabled``.
        """
        return await self._connection.run(webhooks.ping(subscription))

    def deliveries(
        self, subscription: AnySubscription, *, state: DeliveryState | None = None
    ) -> AsyncListing[Delivery]:
        """Lists the deliveries of a subscription, the newest first, page by page.

        Args:
            subscription: the subscription, or its id.
            state: only deliveries in this state.
        """
        return self._listing(webhooks.deliveries(subscription, state), Delivery)

    async def delivery(self, delivery: Delivery) -> Delivery:
        """Reads a delivery again.

        Args:
            delivery: the delivery, from an earlier answer.

        Raises:
            ApiError: ``delivery_not_found``.
        """
        return await self._connection.run(webhooks.delivery(delivery))

    async def replay(self, delivery: Delivery) -> Delivery:
        """Sends a delivery again, with the same ``webhook-id`` and payload.

        Args:
            delivery: an answer of :meth:`deliveries` or :meth:`delivery`.

        Raises:
            ApiError: ``delivery_not_found`` or ``subscription_disabled``.
        """
        return await self._connection.run(webhooks.replay(delivery))
