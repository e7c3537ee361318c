"""The calls by which supports are stored and read, now and as they were.

Which of them go out as deltas is ``_deltas``'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable

from modelkin._validation import check_model_name
from modelkin.client._protocol import deltas, revisions
from modelkin.client._protocol.deltas import Memory
from modelkin.client._protocol.flows import perform, perform_async
from modelkin.client._sync.resource import AsyncCalling, Calling
from modelkin.client._transport.progress import Progress, reporting
from modelkin.core.support import Support
from modelkin.types.models import ModelInfo
from modelkin.types.revisions import Revisions

__all__ = ["AsyncSupportCalls", "SupportCalls"]


class SupportCalls(Calling):
    """Part of :class:`modelkin.Client`."""

    url: str
    _memory: Memory

    def put_support(
        self,
        space: str,
        model: str,
        support: Support,
        *,
        tags: Iterable[str] | None = None,
        if_match: str | None = None,
        progress: Progress | bool = False,
    ) -> ModelInfo:
        """Stores the support of a model; it is durable when this returns.

        Where this client stored or read the support that is there now, and what changed is smaller
        than the support, only that is sent.

        Args:
            space: where; its M must be the support's, else ``space_mismatch``.
            model: the name, which may hold slashes; see ``modelkin._validation.check_model_name``.
            support: sent in the native format. The same content again changes nothing.
            tags: replace the model's tags, ``[]`` removes them; None leaves them as they are.
            if_match: the ``etag`` of the version to replace, else ``precondition_failed``.
            progress: True shows a bar on a terminal; a function is called with the bytes sent and
                the bytes in all, from 0 again at each try. What it raises ends the upload.
        """
        script = deltas.put_support(self._memory, space, model, support, tags, if_match)
        with reporting(progress, model) as report:
            return perform(script, lambda call: self._run(call, report))

    def get_support(self, space: str, model: str, *, revision: int | None = None) -> Support:
        """The stored support; ``support_missing`` where the model sent only a signature.

        Args:
            space: where the model is.
            model: its name.
            revision: as of this revision, ``revision_not_found`` where that is not kept; the
                present one by default.
        """
        support, etag = self._run(revisions.get_support(space, model, revision))
        if revision is None:
            self._memory.note(space, check_model_name(model), support, etag)
        return support

    def revisions(self, space: str, model: str) -> Revisions:
        """What a model has been, the newest first, and how far it drifted from one to the next."""
        return perform(revisions.revisions(space, model, self.url), self._run)


class AsyncSupportCalls(AsyncCalling):
    """Part of :class:`modelkin.AsyncClient`."""

    url: str
    _memory: Memory

    async def put_support(
        self,
        space: str,
        model: str,
        support: Support,
        *,
        tags: Iterable[str] | None = None,
        if_match: str | None = None,
        progress: Progress | bool = False,
    ) -> ModelInfo:
        """Stores the support of a model; it is durable when this returns."""
        script = deltas.put_support(self._memory, space, model, support, tags, if_match)
        with reporting(progress, model) as report:
            return await perform_async(script, lambda call: self._run(call, report), heavy=True)

    async def get_support(self, space: str, model: str, *, revision: int | None = None) -> Support:
        """The stored support; ``support_missing`` where the model sent only a signature."""
        support, etag = await self._run(revisions.get_support(space, model, revision))
        if revision is None:
            self._memory.note(space, check_model_name(model), support, etag)
        return support

    async def revisions(self, space: str, model: str) -> Revisions:
        """What a model has been, the newest first, and how far it drifted from one to the next."""
        return await perform_async(revisions.revisions(space, model, self.url), self._run)
