"""``client.fingerprints``: the lines of checkpoints, by name of model and in no space."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal

from modelkin.client._async.batches import fingerprint_chunks, put_chunks
from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import fingerprints
from modelkin.client._protocol.calls.requests import Condition
from modelkin.client._protocol.fingerprints import AsyncItems
from modelkin.client._protocol.uploads.batches import check_count, uploading
from modelkin.client._protocol.uploads.journal import Journal
from modelkin.client._transport.progress import Count
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.types.fingerprints.stored import FingerprintItem, StoredFingerprint
from modelkin.types.models import BulkResult, BulkSummary
from modelkin.types.vocabulary import BaseRelation

__all__ = ["AsyncFingerprints"]


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
        items: AsyncItems,
        *,
        batch_size: int = 500,
        concurrency: int = 4,
        progress: Count | bool = False,
        resume: str | os.PathLike[str] | None = None,
        on_result: Callable[[BulkResult], object] | None = None,
    ) -> BulkSummary:
        """Stores many fingerprints, hundreds a request; what is counted as stored is durable.

        A refused item does not stop the upload. One of more than 768 KiB goes by itself. If several
        items are of one model, the last item stands. An error that ends the upload is raised once
        no request is in flight.

        Args:
            items: an iterable or asynchronous iterable of pairs of a name and a fingerprint, or of
                :class:`modelkin.FingerprintItem` objects. Few of them are in memory at a time.
            batch_size: the most fingerprints of a request, 1 to 10,000; a request has 4 MiB at
                most.
            concurrency: the number of requests at a time, 1 to 64.
            progress: True shows a line on a terminal. A function is called with the items done and
                the items in all, or None where ``items`` has no length.
            resume: a journal file of the models that the service acknowledged. The same call after
                an interruption sends only the rest. The file may be deleted in the end.
            on_result: a function that is called with the result of each item.

        Raises:
            InvalidParameter: ``resume`` is the file of another upload, or not a journal.
            ApiError: a refusal that concerns all of them.
        """
        self._connection.require_open()
        check_count("concurrency", concurrency, 64)
        url, into = self._connection.url, {"kind": "fingerprints"}
        journal = None if resume is None else Journal.open(resume, url, into)
        with uploading(
            fingerprints.put_chunk,
            "fingerprints",
            items,
            batch_size=batch_size,
            progress=progress,
            journal=journal,
            on_result=on_result,
        ) as upload:
            chunks = fingerprint_chunks(upload, items)
            await put_chunks(upload, chunks, concurrency, self._connection.run)
        return upload.summary

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
