"""``client.models``: the metadata of models, without their indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import kinship, models
from modelkin.client._protocol.uploads.patches import SupportCache
from modelkin.core.weights import Weights
from modelkin.types.models import DuplicateWeights, ModelInfo, StatedWeights
from modelkin.types.paging import UNCHANGED, Unchanged
from modelkin.types.reports.audits import LineageFinding
from modelkin.types.vocabulary import BaseRelation, ModelOrder

__all__ = ["AsyncModels"]


class AsyncModels(AsyncResource):
    """Models. ``client.put_support`` and its siblings store them.

    Args:
        connection: the client's connection.
        support_cache: the client's cache of supports.
    """

    def __init__(self, connection: AsyncConnection, support_cache: SupportCache) -> None:
        super().__init__(connection)
        self._support_cache = support_cache

    def list(
        self,
        space: str,
        *,
        tags: Iterable[str] = (),
        prefix: str = "",
        text: str = "",
        attributes: Mapping[str, Any] | None = None,
        base_model: str | None = None,
        order: ModelOrder = "name",
    ) -> AsyncListing[ModelInfo]:
        """Lists the models of a space that meet every filter, page by page as they are read.

        Args:
            space: the name of the space.
            tags: only models that carry all of them.
            prefix: only models whose name begins with this.
            text: only models with this text in their name, base model or source.
            attributes: only models with these attributes: texts, numbers, True or False; None for
                any value.
            base_model: only models that declare this base.
            order: ``"name"``; ``"newest"`` or ``"oldest"`` by the last change; ``"largest"`` or
                ``"smallest"`` by the size of the support; ``"most_revised"`` first.
        """
        call = models.list_all(
            space,
            tags,
            prefix=prefix,
            text=text,
            attributes=attributes,
            base_model=base_model,
            order=order,
        )
        return self._listing(call, ModelInfo)

    async def get(self, space: str, model: str) -> ModelInfo:
        """Reads a model.

        Args:
            space: the model's space.
            model: the model's name.

        Raises:
            ApiError: ``model_not_found`` or ``space_not_found``.
        """
        info = await self._connection.run(models.get(space, model))
        return self._support_cache.update(info)

    async def update(
        self,
        space: str,
        model: str,
        *,
        tags: Iterable[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        merge_attributes: Mapping[str, Any] | None = None,
        source: str | Unchanged | None = UNCHANGED,
        base_model: str | Unchanged | None = UNCHANGED,
        base_models: Iterable[str] | Unchanged | None = UNCHANGED,
        base_relation: BaseRelation | Unchanged | None = UNCHANGED,
        if_match: str | None = None,
    ) -> ModelInfo:
        """Changes the given fields of a model. The request is sent once, without retries.

        Args:
            space: the model's space.
            model: the model's name.
            tags: all tags from now on, ``[]`` for none.
            attributes: the attributes that replace the model's; JSON values.
            merge_attributes: attributes to change, while all others stay; None removes one.
            source: the model's origin; None clears it.
            base_model: the model that it derives from; None clears it.
            base_models: all models that it derives from, in place of ``base_model``; ``[]`` for
                none.
            base_relation: what it is of them; None clears it, as other bases do.
            if_match: the ``etag`` of the version to change.

        Raises:
            ApiError: ``model_not_found``; ``precondition_failed`` for another version.
        """
        call = models.update(
            space,
            model,
            tags,
            attributes,
            source,
            base_model,
            if_match,
            merge_attributes,
            base_models,
            base_relation,
        )
        return self._support_cache.update(await self._connection.run(call))

    async def delete(self, space: str, model: str, *, if_match: str | None = None) -> None:
        """Deletes a model with its support, signature and sketch.

        Args:
            space: the model's space.
            model: the model's name.
            if_match: the ``etag`` of the version to delete.

        Raises:
            ApiError: ``model_not_found``; ``precondition_failed`` for another version.
        """
        await self._connection.run(models.delete(space, model, if_match))

    async def acknowledge(
        self, space: str, model: str, *, note: str | None = None
    ) -> LineageFinding:
        """Acknowledges what an audit finds about a model, so that nobody has to look at it again.

        It holds as long as the verdict and the base that it is about stay the same.

        Args:
            space: the model's space.
            model: the model's name.
            note: why, for others; up to 500 characters.

        Raises:
            ApiError: ``model_not_found``; ``invalid_parameter`` where it is no finding.
        """
        return await self._connection.run(kinship.acknowledge(space, model, note))

    async def withdraw_acknowledgement(self, space: str, model: str) -> None:
        """Has the finding about a model open again.

        Args:
            space: the model's space.
            model: the model's name.

        Raises:
            ApiError: ``model_not_found``.
        """
        await self._connection.run(kinship.withdraw(space, model))

    async def put_weights(
        self, space: str, model: str, weights: Weights, *, revision: int | None = None
    ) -> StatedWeights:
        """States the digests of the weights that a model's support was made from.

            checkpoint = open_checkpoint("model.safetensors")
            info = await client.put_support("zoo", "org/copy", select_from_checkpoint(checkpoint))
            await client.models.put_weights("zoo", "org/copy", weights_of(checkpoint))

        They tell exact copies, and say nothing of the values; but who has a public file can see
        that this is it.

        Args:
            space: the model's space.
            model: the model's name.
            weights: the result of ``modelkin.checkpoints.weights_of``.
            revision: the revision of the model that has this support; by default the present one.

        Raises:
            ApiError: ``model_not_found``; ``conflict`` where the model has another revision.
        """
        return await self._connection.run(models.put_weights(space, model, weights, revision))

    async def weights(self, space: str, model: str) -> StatedWeights:
        """Reads the digests of the weights that a model's support was made from.

        Args:
            space: the model's space.
            model: the model's name.

        Raises:
            ApiError: ``model_not_found``; ``weights_not_found`` where nobody stated them.
        """
        return await self._connection.run(models.get_weights(space, model))

    def duplicates(
        self, space: str | None = None, model: str | None = None
    ) -> AsyncListing[DuplicateWeights]:
        """Lists the weights that several models have, each with its models from all spaces.

            async for copies in client.models.duplicates():
                print([item.says for item in copies if item.says])

        Args:
            space: only weights of which a model of this space has one.
            model: only the weights of this model of that space.

        Raises:
            ApiError: ``space_not_found``, ``model_not_found``.
        """
        return self._listing(models.duplicates(space, model), DuplicateWeights)
