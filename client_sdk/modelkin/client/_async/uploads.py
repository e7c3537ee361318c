"""The part of the client that creates spaces and stores models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from modelkin._validation import check_space_name
from modelkin.client._async.batches import model_chunks, put_chunks
from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.flows import run_flow
from modelkin.client._protocol import models, spaces, supports
from modelkin.client._protocol.calls.requests import Condition
from modelkin.client._protocol.uploads import accounts, patches, support_size
from modelkin.client._protocol.uploads.batch_calls import put_chunk
from modelkin.client._protocol.uploads.batches import check_count, uploading
from modelkin.client._protocol.uploads.journal import Journal
from modelkin.client._protocol.uploads.lines import AsyncItems
from modelkin.client._protocol.uploads.patches import SupportCache
from modelkin.client._protocol.uploads.tensor_order import (
    LayoutCache,
    in_order,
    one_call,
    selection,
)
from modelkin.client._transport.concurrency import async_offload
from modelkin.client._transport.progress import Count, Progress, reporting
from modelkin.core.blinding import Blinding
from modelkin.core.importance import Importance, ImportanceKind
from modelkin.core.layout import Layout
from modelkin.core.privacy.account import PrivacyAccount
from modelkin.core.sketching.banding import Banding
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.selection import resize_support, select_support
from modelkin.types.models import BulkResult, BulkSummary, ModelInfo
from modelkin.types.spaces import SignatureSpec, SpaceInfo, SubspaceSpec, SupportSizePolicy
from modelkin.types.vocabulary import SpaceKind

__all__ = ["AsyncUploads"]


class AsyncUploads:
    """The writing half of :class:`modelkin.AsyncClient`."""

    _connection: AsyncConnection
    _support_cache: SupportCache
    _layouts: LayoutCache

    async def ensure_space(
        self,
        name: str,
        *,
        layout: Layout | None = None,
        num_parameters: int | None = None,
        signature: SignatureSpec | None = None,
        banding: Banding | float | None = None,
        support_size: SupportSizePolicy | str | float | None = None,
        importance: Importance | ImportanceKind | None = None,
        exclude: Iterable[str] = (),
        kind: SpaceKind = "supports",
        subspaces: SubspaceSpec | None = None,
        features: str | None = None,
        blinding: Blinding | None = None,
        ordered: bool = False,
    ) -> SpaceInfo:
        """Creates a space, unless the same one exists, and returns it.

        Args:
            name: the space's name, ``[a-z0-9][a-z0-9._-]{0,99}``.
            layout: the tensors of the space's models, from ``modelkin.layout_of(model)``.
            num_parameters: M; needed only without a layout.
            signature: the parameters of the signatures; by default the service's.
            banding: the cut of signatures for ``method="lsh"``, or the S from which on the method
                finds 99% of models; by default the service's.
            support_size: ``"agreed"`` for the median of the clients' K*; a fixed K as an int or a
                share of M as a float. By default each client chooses its own.
            importance: the kind of importance that supports are selected by, such as
                ``"fisher"``, or a :class:`modelkin.Importance`. By default a new space takes
                supports of any kind, which then may not compare.
            exclude: shell patterns of the tensors of ``layout`` that are never trained, such as
                ``"*.running_*"``; the space is of the layout without them.
            kind: ``"subspaces"`` for a space of data subspaces. ``num_parameters`` is then the
                number of features of a sample, and only ``subspaces`` and ``features`` may be
                given, too.
            subspaces: the properties that all subspaces share; by default the service's.
            features: a description of the features for people, such as ``"8x8 grey /16"``.
            blinding: the blinding of a space whose supports are blinded, in place of ``layout``.
                The service gets M and the check value of the key.
            ordered: whether to take only supports of ``select_support(..., ordered=True)``, which
                ``measure="ordered"`` compares by the ranks of their indices. The importance must
                be of gradients.

        Raises:
            InvalidParameter: the importance is invalid, or a pattern matches no tensor or all.
            ApiError: ``space_exists``, with other properties.
        """
        call = spaces.ensure(
            name,
            layout,
            num_parameters,
            signature,
            banding,
            support_size,
            importance,
            exclude,
            spaces.subspace_fields(kind, subspaces, features),
            blinding,
            ordered,
        )
        return self._layouts.update(await self._connection.run(call))

    async def put_support(
        self,
        space: str,
        model: str,
        support: Support,
        *,
        tags: Iterable[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        source: str | None = None,
        base_model: str | None = None,
        if_match: str | None = None,
        create_only: bool = False,
        progress: Progress | bool = False,
        privacy: PrivacyAccount | None = None,
    ) -> ModelInfo:
        """Stores the support of a model; it is durable when this returns.

        If this client knows the stored support, it sends a patch to the new one, if the patch is
        smaller.

        Args:
            space: the space that receives the model; its M must be the support's.
            model: the model's name, which may hold slashes.
            support: the support; the same content again changes nothing. If its layout is known
                (``Support.origin``), its indices are put in the order of the space's tensors.
            tags: the tags that replace the model's, ``[]`` for none; None keeps the old ones.
            attributes: the attributes that replace the model's, JSON values; None keeps them.
            source: the model's origin; None keeps it.
            base_model: the model that this one derives from; None keeps it.
            if_match: the ``etag`` of the version to replace.
            create_only: whether to refuse the upload if the model exists. As with ``if_match``,
                the request is sent once: check after a lost answer whether it was stored.
            progress: True shows a bar on a terminal. A function is called with the bytes sent and
                the bytes in all, from 0 again at each attempt; an error that it raises ends the
                upload.
            privacy: the account of a private support, which :meth:`modelkin.PrivacyAccount.spend`
                has paid for. It is stored as the model's attribute ``privacy``, and must go on
                from the stored account.

        Raises:
            InvalidParameter: the account does not go on, or has paid for another support.
            SpaceMismatch: the support has other tensors than the space; names the first.
            ApiError: ``space_not_found`` or ``space_mismatch``; ``precondition_failed`` for another
                version, or with ``create_only`` for any.
        """
        attributes = accounts.with_account(attributes, privacy)
        condition = Condition(if_match, create_only)
        flow = in_order(
            self._layouts,
            space,
            support,
            lambda value: accounts.put_with_account(
                space,
                model,
                value,
                privacy,
                patches.put_support(self._support_cache, space, model, value, tags, condition),
            ),
        )
        with reporting(progress, model) as report:
            stored = await run_flow(
                flow, lambda call: self._connection.run(call, report), heavy=True
            )
        stored = await self._with_metadata(space, stored, attributes, source, base_model)
        call = accounts.record(space, stored, privacy)
        if call is None:
            return stored
        return self._support_cache.update(await self._connection.run(call))

    async def put_importance(
        self,
        space: str,
        model: str,
        importance: Any,
        *,
        coverage: float | None = None,
        k_max: float | None = None,
        kind: ImportanceKind | None = None,
        base: str | None = None,
        layout: Layout | None = None,
        tags: Iterable[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        source: str | None = None,
        base_model: str | None = None,
        if_match: str | None = None,
        create_only: bool = False,
        progress: Progress | bool = False,
        blinding: Blinding | None = None,
        ordered: bool | None = None,
    ) -> ModelInfo:
        """Stores the support of an importance, of the size that the space asks for.

        This computes K* and reports it under the model's name, as
        ``client.spaces.report_support_size`` does, then selects and stores a support of the K in
        the answer. The importance stays on this machine. If its layout is known, tensors that the
        space leaves out are dropped, and the rest is put in the space's order, before anything is
        selected. An importance that does not fit the space is refused and not counted.

        Args:
            space: the name of the space that receives the model; it says how K is chosen.
            model: the model's name.
            importance: see ``modelkin.select_support``; on any device.
            coverage: the coverage that selects K*; a fixed K of the space overrides it. The
                default is that of ``modelkin.select_support``.
            k_max: the cap of K*, 0.2 of M by default.
            kind: the kind of importance; by default the attached one.
            base: the digest of the base's weights; by default the attached one.
            layout: the layout of the importance; by default the attached one.
            tags: the tags that replace the model's; None keeps the old ones.
            attributes: the attributes that replace the model's; None keeps them.
            source: the model's origin; None keeps it.
            base_model: the model that this one derives from; None keeps it.
            if_match: the ``etag`` of the version to replace.
            create_only: whether to refuse the upload if the model exists.
            progress: see :meth:`put_support`.
            blinding: the blinding of a blinded space, applied before the support is sent.
            ordered: see ``modelkin.select_support``; by default as the space is.

        Raises:
            SpaceMismatch: the importance has other tensors than the space (names the first), or
                the space is of another key.
            InvalidImportance: ``importance`` is a support, or no vector of numbers of at least 0.
            ApiError: ``space_mismatch`` for an importance of another kind or M; else see
                :meth:`put_support`.
        """
        support_size.refuse_support(importance)
        order = selection(self._layouts, space, importance, layout, blinding, ordered)
        how = {"kind": kind, "base": base, **await run_flow(order, self._connection.run)}
        support = await self._agreed_support(
            space, model, importance, coverage, k_max, blinding, how
        )
        return await self.put_support(
            space,
            model,
            support,
            tags=tags,
            attributes=attributes,
            source=source,
            base_model=base_model,
            if_match=if_match,
            create_only=create_only,
            progress=progress,
        )

    async def put_signature(
        self,
        space: str,
        model: str,
        signature: Signature,
        *,
        tags: Iterable[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        source: str | None = None,
        base_model: str | None = None,
        if_match: str | None = None,
        create_only: bool = False,
        progress: Progress | bool = False,
    ) -> ModelInfo:
        """Stores only a signature, so that the service never sees the indices.

        Args:
            space: the space that receives the model; its M, scheme, h and seed must be the
                signature's.
            model: the model's name.
            signature: the signature, from ``support.signature(...)``. If the support's layout is
                known, it is compared with the space's; a signature cannot be reordered.
            tags: the tags that replace the model's; None keeps the old ones.
            attributes: the attributes that replace the model's; None keeps them.
            source: the model's origin; None keeps it.
            base_model: the model that this one derives from; None keeps it.
            if_match: the ``etag`` of the version to replace.
            create_only: whether to refuse the upload if the model exists.
            progress: see :meth:`put_support`.

        Raises:
            SpaceMismatch: the signature is of other tensors than the space's, or of another order.
            ApiError: ``support_exists`` for a model with a support; else see :meth:`put_support`.
        """
        condition = Condition(if_match, create_only)
        flow = in_order(
            self._layouts,
            space,
            signature,
            lambda value: one_call(supports.put_signature(space, model, value, tags, condition)),
        )
        with reporting(progress, model) as report:
            stored = await run_flow(flow, lambda call: self._connection.run(call, report))
        return await self._with_metadata(space, stored, attributes, source, base_model)

    async def put_many(
        self,
        space: str,
        items: AsyncItems,
        *,
        batch_size: int = 500,
        concurrency: int = 4,
        progress: Count | bool = False,
        resume: str | os.PathLike[str] | None = None,
        on_result: Callable[[BulkResult], object] | None = None,
    ) -> BulkSummary:
        """Stores many models, hundreds a request; a model that is counted as stored is durable.

        A refused item does not stop the upload, nor does a support with other tensors than the
        space. Supports whose layout is known are put in the order of the space's tensors. If
        several items are of one model, the last item stands. An error that ends the upload is
        raised once no request is in flight.

        Args:
            space: the name of the space that receives the models.
            items: an iterable or asynchronous iterable of pairs of a name and a support,
                signature or subspace, or of :class:`modelkin.BulkItem` objects with tags and
                attributes. Few of them are in memory at a time.
            batch_size: the most models of a request, 1 to 10,000; a request has 4 MiB at most.
            concurrency: the number of requests at a time, 1 to 64.
            progress: True shows a line on a terminal. A function is called with the items done and
                the items in all, or None where ``items`` has no length.
            resume: a journal file of the models that the service acknowledged. The same call after
                an interruption sends only the rest. The file may be deleted in the end.
            on_result: a function that is called with the result of each item.

        Raises:
            InvalidParameter: ``resume`` is the file of another space, or not a journal.
            ApiError: ``space_not_found``, or another refusal that concerns all models.
        """
        self._connection.require_open()
        check_count("concurrency", concurrency, 64)
        journal = None
        if resume is not None:
            info = await self._connection.run(spaces.get(space))
            into = {"space": info.name, "created_at": info.created_at.isoformat()}
            journal = Journal.open(resume, self._connection.url, into)
        with uploading(
            partial(put_chunk, check_space_name(space)),
            space,
            items,
            batch_size=batch_size,
            progress=progress,
            journal=journal,
            on_result=on_result,
        ) as upload:
            run = self._connection.run
            chunks = model_chunks(upload, space, items, run, self._layouts)
            await put_chunks(upload, chunks, concurrency, run)
        return upload.summary

    async def _agreed_support(
        self,
        space: str,
        model: str,
        importance: Any,
        coverage: float | None,
        k_max: float | None,
        blinding: Blinding | None,
        how: Mapping[str, Any],
    ) -> Support:
        """Selects a support of the K that the space answers to the report of its K*.

        Args:
            how: the other keywords of ``modelkin.select_support``.
        """
        chosen = await async_offload(
            select_support, importance, coverage=coverage, k_max=k_max, **how
        )
        report = in_order(
            self._layouts,
            space,
            chosen if blinding is None else blinding.stated(chosen),
            lambda value: one_call(support_size.report(space, chosen.k, model, value)),
        )
        size = await run_flow(report, self._connection.run)
        support = await async_offload(resize_support, importance, chosen, size.k, **how)
        return support if blinding is None else await async_offload(blinding.blind, support)

    async def _with_metadata(
        self,
        space: str,
        stored: ModelInfo,
        attributes: Mapping[str, Any] | None,
        source: str | None,
        base_model: str | None,
    ) -> ModelInfo:
        """Returns the stored model with its metadata, after a second request if these differ."""
        call = models.describe(space, stored, attributes, source, base_model)
        if call is None:
            return stored
        return self._support_cache.update(await self._connection.run(call))
