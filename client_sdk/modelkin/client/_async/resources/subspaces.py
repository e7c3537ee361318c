"""``client.subspaces``: what the data of clients span, in spaces of data subspaces."""

from __future__ import annotations

from collections.abc import Iterable

from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import subspaces
from modelkin.client._protocol.calls.requests import Condition
from modelkin.core.subspaces.subspace import Subspace
from modelkin.types.models import ModelInfo

__all__ = ["AsyncSubspaces"]


class AsyncSubspaces(AsyncResource):
    """Data subspaces. Their readers see the mean sample of each class: see docs/starting.md."""

    async def put(
        self,
        space: str,
        model: str,
        subspace: Subspace,
        *,
        tags: Iterable[str] | None = None,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> ModelInfo:
        """Stores the subspace of a model's data, in half precision.

        Args:
            space: of kind ``"subspaces"``; of the same m, constant and weighting.
            model: its name: the same as in a space of supports, where it is there, too.
            subspace: as ``modelkin.fit_subspace`` makes it.
            tags: replace the model's tags, ``[]`` removes them; None keeps them.
            if_match: the ``etag`` of the version to replace.
            create_only: a model of this name stays as it is, and the upload is refused.

        Raises:
            ApiError: ``wrong_kind`` in a space of supports, ``space_mismatch``,
                ``space_not_found``; ``precondition_failed`` for another version, or with
                ``create_only`` for any.
        """
        condition = Condition(if_match, create_only)
        return await self._connection.run(subspaces.put(space, model, subspace, tags, condition))

    async def get(self, space: str, model: str) -> Subspace:
        """Reads the subspace of a model's data.

        Args:
            space: holds the model.
            model: its name.

        Raises:
            ApiError: ``model_not_found``, ``space_not_found`` or ``wrong_kind``.
        """
        return await self._connection.run(subspaces.get(space, model))
