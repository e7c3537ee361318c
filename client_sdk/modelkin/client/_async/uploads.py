"""The part of the client that creates spaces and stores models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from modelkin.client._async.batches import put_chunks
from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.flows import run_flow
from modelkin.client._protocol import models, spaces, supports
from modelkin.client._protocol.calls.requests import Condition
from modelkin.client._protocol.uploads import accounts, patches, support_size
from modelkin.client._protocol.uploads.batches import AsyncItems, check_count, uploading
from modelkin.client._protocol.uploads.journal import Journal
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
            name: ``[a-z0-9][a-z0-9._-]{0,99}``.
            layout: the tensors of its models, as ``modelkin.layout_of(model)`` gives them.
            num_parameters: M; needed only without a layout.
            signature: the parameters of its signatures; by default the service's.
            banding: how signatures are cut for ``method="lsh"``, or the least S of the models of
                which that finds 99%; by default the service's.
            support_size: ``"agreed"`` for the median of the clients' K*; a fixed K as an int or a
                share of M as a float. By default each client chooses its own.
            importance: the kind of importance that its supports are selected by, such as
                ``"fisher"``, or a :class:`modelkin.Importance`. By default a new space takes
                supports of any kind, which then may not compare.
            exclude: shell patterns of the tensors of ``layout`` that are never trained, such as
                ``"*.running_*"``; the space is of the layout without them.
            kind: ``"subspaces"`` for a space of data subspaces, with ``num_parameters``, how many
                features a sample has, and of the others at most the two that follow.
            subspaces: what its subspaces share; by default the service's.
            features: what the features are, such as ``"8x8 grey /16"``, for people.
            blinding: of a space whose supports are blinded, in place of ``layout``. The service
                gets M and the check value of the key.
            ordered: take supports of ``select_support(..., ordered=True)``, and no others, which
                ``measure="ordered"`` compares by the ranks of their indices. Of importances of
                gradients alone.

        Raises:
            InvalidParameter: the importance cannot be, or a pattern matches no tensor or all.
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

        Where this client knows the stored support, it sends the delta from that to the new one, if
        the delta is smaller.

        Args:
            space: receives the model; its M must be the support's.
            model: the name, which may hold slashes.
            support: the same content again changes nothing. Where its layout is known
                (``Support.origin``), its indices are put in the order of the space's tensors.
            tags: replace the model's tags, ``[]`` removes them; None keeps them.
            attributes: replace the model's attributes, JSON values; None keeps them.
            source: the model's origin; None keeps it.
            base_model: the model that it derives from; None keeps it.
            if_match: the ``etag`` of the version to replace.
            create_only: a model of this name stays as it is, and the upload is refused. As with
                ``if_match`` it is sent once: check after a lost answer whether it was stored.
            progress: True shows a bar on a terminal. A function is called with the bytes sent and
                the bytes in all, from 0 again at each attempt; an error that it raises ends the
                upload.
            privacy: the account of a private support, which :meth:`modelkin.PrivacyAccount.spend`
                has paid for. It is stored as the model's attribute ``privacy``, and must go on
                from the one that is there.

        Raises:
            InvalidParameter: the account does not go on, or has paid for another support.
            SpaceMismatch: the support has other tensors than the space; names the first.
            ApiError: ``space_not_found`` or ``space_mismatch``; ``precondition_failed`` for another
                version, or with ``create_only`` for any.
        """
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
        attributes = accounts.with_account(attributes, privacy)
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
        ``client.spaces.report_support_size`` does, then selects and stores the K of the answer. The
        importance stays on this machine. Where its layout is known, the tensors that the space
        leaves out are left out, and the others put in its order, before anything is selected. An
        importance that does not fit the space is refused and not counted.

        Args:
            space: receives the model.
            model: its name.
            importance: as for ``modelkin.select_support``, on any device.
            coverage: selects K*; a fixed K of the space overrides it. The default is that of
                ``modelkin.select_support``.
            k_max: its cap, 0.2 of M by default.
            kind: as for ``modelkin.select_support``; by default the attached one.
            base: likewise.
            layout: of the importance; by default the attached one.
            tags: as for :meth:`put_support`.
            attributes: likewise.
            source: likewise.
            base_model: likewise.
            if_match: as for :meth:`put_support`.
            create_only: likewise.
            progress: as for :meth:`put_support`.
            blinding: of a blinded space: the support is blinded before it is sent.
            ordered: as for ``modelkin.select_support``; by default as the space is.

        Raises:
            SpaceMismatch: the importance has other tensors than the space; names the first. Or the
                space is of another key.
            InvalidImportance: it is a support, or not a vector of numbers that are not negative.
            ApiError: ``space_mismatch`` for an importance of another kind or M; else as
                :meth:`put_support` raises it.
        """
        support_size.refuse_support(importance)
        order = selection(self._layouts, space, importance, layout, blinding, ordered)
        how = {"kind": kind, "base": base, **await run_flow(order, self._connection.run)}
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
        if blinding is not None:
            support = await async_offload(blinding.blind, support)
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
        """Stores a signature alone, so that the service never sees the indices.

        Args:
            space: receives the model; its M, scheme, h and seed must be the signature's.
            model: its name.
            signature: as ``support.signature(...)`` makes it. Where the layout of the support is
                known, it is compared with the space's; a signature cannot be reordered.
            tags: as for :meth:`put_support`.
            attributes: likewise.
            source: likewise.
            base_model: likewise.
            if_match: as for :meth:`put_support`.
            create_only: likewise.
            progress: as for :meth:`put_support`.

        Raises:
            SpaceMismatch: the signature is of other tensors than the space's, or of another order.
            ApiError: ``support_exists`` for a model with a support; else as :meth:`put_support`
                raises it.
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

        A refused item leaves the others as they are, and so does a support with other tensors than
        the space. Supports whose layout is known are put in the order of the space's tensors. Of
        several items of one model the last one stands. An error that ends the upload is raised once
        no request is in flight.

        Args:
            space: receives the models.
            items: an iterable or asynchronous iterable of pairs of a name and a support,
                signature or subspace, or of :class:`modelkin.BulkItem` objects with tags and
                attributes. Few of them are in memory at a time.
            batch_size: models of a request at most, 1 to 10,000; a request has 4 MiB at most.
            concurrency: requests at a time, 1 to 64.
            progress: True shows a line on a terminal. A function is called with the items done and
                the items in all, or None where ``items`` has no length.
            resume: a journal file of the models that the service acknowledged. The same call after
                an interruption sends only the others. The file may be deleted in the end.
            on_result: called with the result of each item.

        Raises:
            InvalidParameter: ``resume`` is the file of another space, or not a journal.
            ApiError: ``space_not_found``, or another refusal that concerns all models.
        """
        self._connection.require_open()
        check_count("concurrency", concurrency, 64)
        journal = None
        if resume is not None:
            info = await self._connection.run(spaces.get(space))
            journal = Journal.open(resume, self._connection.url, info)
        with uploading(
            space,
            items,
            batch_size=batch_size,
            progress=progress,
            journal=journal,
            on_result=on_result,
        ) as upload:
            await put_chunks(upload, items, concurrency, self._connection.run, self._layouts)
        return upload.summary

    async def _with_metadata(
        self,
        space: str,
        stored: ModelInfo,
        attributes: Mapping[str, Any] | None,
        source: str | None,
        base_model: str | None,
    ) -> ModelInfo:
        """The stored model, once it has its metadata; a second request where these differ."""
        call = models.describe(space, stored, attributes, source, base_model)
        if call is None:
            return stored
        return self._support_cache.update(await self._connection.run(call))
