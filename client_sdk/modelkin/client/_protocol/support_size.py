"""The calls by which clients of a space come to one K, and store supports of that size.

What is computed on the way is ``_sizes``'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from modelkin._validation import check_model_name
from modelkin.client._protocol import decoding, requests, sizes
from modelkin.client._protocol.decoding import Fields
from modelkin.client._protocol.spaces import Call
from modelkin.client._sync.resource import AsyncCalling, Calling
from modelkin.client._transport.errors import parse_json
from modelkin.client._transport.messages import Response
from modelkin.client._transport.progress import Progress
from modelkin.core.support import Support
from modelkin.types.models import ModelInfo
from modelkin.types.spaces import SupportSize

__all__ = ["AgreementCalls", "AsyncAgreementCalls"]


class _Storing(Protocol):
    """A client, as far as storing an importance needs it."""

    def agree_support_size(
        self, space: str, importance: Any, *, client: str | None = None
    ) -> SupportSize: ...

    def put_support(
        self,
        space: str,
        model: str,
        support: Support,
        *,
        tags: Iterable[str] | None = None,
        if_match: str | None = None,
        progress: Progress | bool = False,
    ) -> ModelInfo: ...


class _AsyncStoring(Protocol):
    """:class:`_Storing`, awaited."""

    async def agree_support_size(
        self, space: str, importance: Any, *, client: str | None = None
    ) -> SupportSize: ...

    async def put_support(
        self,
        space: str,
        model: str,
        support: Support,
        *,
        tags: Iterable[str] | None = None,
        if_match: str | None = None,
        progress: Progress | bool = False,
    ) -> ModelInfo: ...


class AgreementCalls(Calling):
    """Part of :class:`modelkin.Client`."""

    def support_size(self, space: str) -> SupportSize:
        """The K that supports of a space should have as of now; None where there is none yet."""
        return self._run(_support_size(space))

    def agree_support_size(
        self,
        space: str,
        importance: Any,
        *,
        client: str | None = None,
        coverage: float | None = None,
        k_max: float | None = None,
    ) -> SupportSize:
        """Tells the space this client's K* and answers the K to select with.

            size = client.agree_support_size("digits-cnn", importance, client="org/client-7")
            support = modelkin.select_support(importance, k=size.k)

        Where K is agreed, it is the median of what clients have told so far, and may move as more
        of them do; where it is fixed, that; where it is free, the K* told.

        Args:
            space: where.
            importance: as for ``modelkin.select_support``, of which only K* is sent; or K* itself.
            client: who tells, the name of its model: each counts once, with what it told last.
            coverage: how K* is chosen, 0.8 by default.
            k_max: its cap, 0.2 of M by default.
        """
        k_star = sizes.k_star_of(importance, coverage, k_max)
        return self._run(_report(space, k_star, client))

    def put_importance(
        self: _Storing,
        space: str,
        model: str,
        importance: Any,
        *,
        coverage: float | None = None,
        k_max: float | None = None,
        tags: Iterable[str] | None = None,
        if_match: str | None = None,
        progress: Progress | bool = False,
    ) -> ModelInfo:
        """Stores the support of an importance, of the size that the space asks for.

        K* is computed here and told under the model's name, as by :meth:`agree_support_size`; the K
        answered is selected, here too, and stored. No importance leaves this machine.

        Args:
            space: where.
            model: the name.
            importance: as for ``modelkin.select_support``, on any device.
            coverage: how K* is chosen, 0.8 by default; a K that the space fixes does not ask it.
            k_max: its cap, 0.2 of M by default.
            tags: as for :meth:`put_support`.
            if_match: as for :meth:`put_support`.
            progress: as for :meth:`put_support`.
        """
        chosen = sizes.chosen_by_coverage(importance, coverage, k_max)
        size = self.agree_support_size(space, chosen.k, client=model)
        support = sizes.resized(importance, chosen, size.k)
        return self.put_support(
            space, model, support, tags=tags, if_match=if_match, progress=progress
        )


class AsyncAgreementCalls(AsyncCalling):
    """Part of :class:`modelkin.AsyncClient`."""

    async def support_size(self, space: str) -> SupportSize:
        """The K that supports of a space should have as of now; None where there is none yet."""
        return await self._run(_support_size(space))

    async def agree_support_size(
        self,
        space: str,
        importance: Any,
        *,
        client: str | None = None,
        coverage: float | None = None,
        k_max: float | None = None,
    ) -> SupportSize:
        """Tells the space this client's K* and answers the K to select with."""
        k_star = await asyncio.to_thread(sizes.k_star_of, importance, coverage, k_max)
        return await self._run(_report(space, k_star, client))

    async def put_importance(
        self: _AsyncStoring,
        space: str,
        model: str,
        importance: Any,
        *,
        coverage: float | None = None,
        k_max: float | None = None,
        tags: Iterable[str] | None = None,
        if_match: str | None = None,
        progress: Progress | bool = False,
    ) -> ModelInfo:
        """Stores the support of an importance, of the size that the space asks for."""
        chosen = await asyncio.to_thread(sizes.chosen_by_coverage, importance, coverage, k_max)
        size = await self.agree_support_size(space, chosen.k, client=model)
        support = await asyncio.to_thread(sizes.resized, importance, chosen, size.k)
        return await self.put_support(
            space, model, support, tags=tags, if_match=if_match, progress=progress
        )


def _support_size(space: str) -> Call[SupportSize]:
    return Call(requests.get(f"{requests.space_path(space)}/support-size"), _read)


def _report(space: str, k_star: int, client: str | None) -> Call[SupportSize]:
    body: dict[str, Any] = {"k_star": k_star}
    if client is not None:
        body["client"] = check_model_name(client, field="client")
    # What a client tells replaces what it told before, so that it may be told twice.
    return Call(requests.post(f"{requests.space_path(space)}/support-size", body), _read)


def _read(response: Response) -> SupportSize:
    return decoding.read_support_size(Fields(parse_json(response)))
