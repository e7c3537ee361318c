"""``client.keys``: the API keys of your tenant."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import keys
from modelkin.client._protocol.keys import AnyKey
from modelkin.types.keys import ApiKey
from modelkin.types.vocabulary import KeyScope

__all__ = ["AsyncKeys"]


class AsyncKeys(AsyncResource):
    """API keys. Every method needs a key with the scope ``admin``, where keys are required."""

    async def create(
        self,
        *,
        label: str = "",
        scopes: Iterable[KeyScope] | None = None,
        valid_for: timedelta | None = None,
    ) -> ApiKey:
        """Makes a key of your tenant. It is sent once, without retries.

            made = await client.keys.create(label="training", valid_for=timedelta(days=90))
            keep(made.key)  # never answered again

        Args:
            label: the purpose of the key, for people.
            scopes: the key's scopes, among those of your own key; by default read and write.
            valid_for: the time for which the key is valid; by default until it is revoked.

        Raises:
            PermissionDeniedError: your key lacks ``admin``, or a scope of the new key.
            ApiError: ``quota_exceeded``, or an argument is refused.
        """
        return await self._connection.run(keys.create(label, scopes, valid_for))

    def list(self) -> AsyncListing[ApiKey]:
        """Lists the keys of your tenant, the newest first, page by page as they are read."""
        return self._listing(keys.list_all(), ApiKey)

    async def get(self, key: AnyKey) -> ApiKey:
        """Reads a key.

        Args:
            key: the key as answered, or its first characters.

        Raises:
            ApiError: ``key_not_found``.
        """
        return await self._connection.run(keys.get(key))

    async def revoke(self, key: AnyKey) -> None:
        """Revokes a key, which is refused from now on, and stays listed.

        Args:
            key: the key as answered, or its first characters.

        Raises:
            ApiError: ``key_not_found``.
        """
        await self._connection.run(keys.revoke(key))
