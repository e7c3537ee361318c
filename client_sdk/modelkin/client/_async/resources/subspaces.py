"""``client.subspaces``: the subspaces that clients' data span, in spaces of data subspaces."""

from __future__ import annotations

from collections.abc import Iterable

from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import subspaces
from modelkin.client._protocol.calls.requests import Condition
from modelkin.core.subspaces.subspace import Subspace
from modelkin.types.models import ModelInfo

__all__ = ["AsyncSubspaces"]


class AsyncSubspaces(AsyncResource):
    """Data subspaces. A reader sees the mean sample of each class: see docs/starting.md."""

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
            space: a space of kind ``"subspaces"``, with the same m, constant and weighting.
            model: the model's name, the same as in a space of supports.
            subspace: the subspace, from ``modelkin.fit_subspace``.
            tags: the tags that replace the model's, ``[]`` for none; None keeps the old ones.
            if_match: the ``etag`` of the version to replace.
            create_only: whether to refuse the upload if the model exists.

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
            space: the model's space.
            model: the model's name.

        Raises:
            ApiError: ``model_not_found``, ``space_not_found`` or ``wrong_kind``.
        """
        return await self._connection.run(subspaces.get(space, model))
