"""``client.fingerprints``: the lines of checkpoints, by name of model and in no space."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal, TypeAlias

from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import fingerprints
from modelkin.client._protocol.calls.call import Call
from modelkin.client._protocol.calls.requests import Condition
from modelkin.client._protocol.fingerprints import Batch, BatchOfOne
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.errors import ApiError
from modelkin.types.fingerprints.stored import FingerprintItem, StoredFingerprint
from modelkin.types.models import BulkResult, BulkSummary
from modelkin.types.vocabulary import BaseRelation

__all__ = ["AsyncFingerprints"]

Given: TypeAlias = tuple[str, Fingerprint] | FingerprintItem


class AsyncFingerprints(AsyncResource):
    """Fingerprints of models. One says which others a model's tensors come from."""

    async def put(
        self,
        model: str,
        fingerprint: Fingerprint,
        *,
        base_models: Iterable[str] = (),
        base_relation: BaseRelation | None = None,
        license: str | None = None,  # noqa: A002
        published_at: datetime | None = None,
        file_bytes: int | None = None,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> StoredFingerprint:
        """Stores the fingerprint of a model, with what is said of it, in place of an earlier one.

        Args:
            model: the model's name; a model of this name need not be in any space.
            fingerprint: the fingerprint, from ``modelkin.checkpoints.fingerprint``.
            base_models: the models that it is made from. As all that follows, it is not checked.
            base_relation: what it is of them.
            license: its licence, as a hub writes it.
            published_at: when it was published, with an offset from UTC.
            file_bytes: the bytes of the files that the fingerprint was made from.
            if_match: the ``etag`` of the version to replace.
            create_only: whether to refuse the upload if the name has a fingerprint.

        Raises:
            ApiError: ``fingerprint_exists`` where the service made another one from a hub's file;
                ``quota_exceeded``; ``precondition_failed`` for another version.
        """
        item = FingerprintItem(
            model, fingerprint, base_models, base_relation, license, published_at, file_bytes
        )
        condition = Condition(if_match, create_only)
        return await self._connection.run(fingerprints.put(item, condition))

    async def put_many(
        self,
        items: Iterable[Given],
        *,
        on_result: Callable[[BulkResult], object] | None = None,
    ) -> BulkSummary:
        """Stores many fingerprints, up to 500 a request; what is counted as stored is durable.

        A refused item does not stop the upload. One of more than 768 KiB goes by itself, and is
        counted as replaced where its name had one.

        Args:
            items: pairs of a name and a fingerprint, or :class:`modelkin.FingerprintItem` objects.
                Few are in memory at a time.
            on_result: a function that is called with the result of each item.

        Raises:
            ApiError: a refusal that concerns all of them.
        """
        self._connection.require_open()
        batch = Batch()
        for item in items:
            for call in batch.add(item):
                await self._send(batch, call, on_result)
        for call in batch.rest():
            await self._send(batch, call, on_result)
        return batch.summary

    async def info(self, model: str) -> StoredFingerprint:
        """Reads what is known of a model's fingerprint, without its keys.

        Args:
            model: the model's name.

        Raises:
            ApiError: ``fingerprint_not_found``.
        """
        return await self._connection.run(fingerprints.info(model))

    async def get(self, model: str) -> Fingerprint:
        """Reads the fingerprint of a model.

        Args:
            model: the model's name.

        Raises:
            ApiError: ``fingerprint_not_found``.
        """
        return await self._connection.run(fingerprints.get(model))

    def list(
        self, *, prefix: str = "", stated_by: Literal["hub", "client"] | None = None
    ) -> AsyncListing[StoredFingerprint]:
        """Lists fingerprints by the names of their models, without their keys.

        Args:
            prefix: only names that begin so.
            stated_by: only those that the service read from hubs, or that clients sent.
        """
        return self._listing(fingerprints.list_all(prefix, stated_by), StoredFingerprint)

    async def delete(self, model: str, *, if_match: str | None = None) -> None:
        """Deletes the fingerprint of a model; the models of that name in spaces stay.

        Args:
            model: the model's name.
            if_match: the ``etag`` of the version to delete; None for any.

        Raises:
            ApiError: ``fingerprint_not_found``; ``precondition_failed`` for another version.
        """
        await self._connection.run(fingerprints.delete(model, if_match))

    async def _send(
        self,
        batch: Batch,
        call: Call[tuple[BulkResult, ...]] | BatchOfOne,
        on_result: Callable[[BulkResult], object] | None,
    ) -> None:
        if isinstance(call, BatchOfOne):
            try:
                results = await self._connection.run(call.call())
            except ApiError as error:
                results = call.refused(error)
        else:
            results = await self._connection.run(call)
        batch.results.extend(results)
        if on_result is not None:
            for result in results:
                on_result(result)
