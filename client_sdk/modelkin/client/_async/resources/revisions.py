"""``client.revisions``: the past supports of models."""

from __future__ import annotations

from modelkin.client._async.flows import run_flow
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import models
from modelkin.types.revisions import Revisions

__all__ = ["AsyncModelRevisions"]


class AsyncModelRevisions(AsyncResource):
    """Revisions. ``client.supports.get(space, model, revision=...)`` reads a revision's support."""

    async def list(self, space: str, model: str) -> Revisions:
        """Lists the revisions of a model, the newest first, with the drift between them.

        Args:
            space: the model's space.
            model: the model's name.

        Raises:
            ApiError: ``model_not_found`` or ``space_not_found``.
        """
        flow = models.list_revisions(space, model, self._connection.url)
        return await run_flow(flow, self._connection.run)
