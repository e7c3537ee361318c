"""``client.supports``, ``client.signatures`` and ``client.sketches``: the contents of models."""

from __future__ import annotations

from modelkin._validation import check_model_name
from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.resource import AsyncResource
from modelkin.client._protocol import supports
from modelkin.client._protocol.uploads.patches import SupportCache
from modelkin.client._protocol.uploads.tensor_order import LayoutCache
from modelkin.core.blinding import Blinding
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.support import Support
from modelkin.types.models import ModelInfo

__all__ = ["AsyncSignatures", "AsyncSketches", "AsyncSupports"]


class AsyncSupports(AsyncResource):
    """Supports. ``client.put_support`` stores them.

    Args:
        connection: the client's connection.
        support_cache: the client's cache of supports.
        layouts: the client's cache of layouts, with the M of spaces.
    """

    def __init__(
        self, connection: AsyncConnection, support_cache: SupportCache, layouts: LayoutCache
    ) -> None:
        super().__init__(connection)
        self._support_cache = support_cache
        self._layouts = layouts

    async def get(self, space: str, model: str, *, revision: int | None = None) -> Support:
        """Reads the support of a model.

        Args:
            space: the model's space.
            model: the model's name.
            revision: the model's revision; by default the present one.

        Raises:
            ApiError: ``support_missing`` for a model with only a signature;
                ``revision_not_found`` for a revision that is not kept.
            PayloadTooLarge: the answer is longer than a support of the space's M can be, as this
                client knows it; or it takes more than the client's ``max_answer_bytes``.
        """
        known = self._layouts.get(space)
        m = None if known is None else known.num_parameters
        bound = supports.SupportBound(m, self._connection.max_answer_bytes)
        call = supports.get_support(space, model, revision, bound)
        support, etag = await self._connection.run(call)
        if revision is None:
            self._support_cache.put(space, check_model_name(model), support, etag)
        return support


class AsyncSignatures(AsyncResource):
    """Signatures. ``client.put_signature`` stores them."""

    async def get(self, space: str, model: str) -> Signature:
        """Reads the signature of a model, stored alone or computed by the service.

        Args:
            space: the model's space.
            model: the model's name.

        Raises:
            ApiError: ``model_not_found`` or ``space_not_found``.
        """
        return await self._connection.run(supports.get_signature(space, model))


class AsyncSketches(AsyncResource):
    """Sketches, which sharpen the estimates of models with only a signature."""

    async def put(
        self,
        space: str,
        model: str,
        sketch: Sketch,
        *,
        if_match: str | None = None,
        blinding: Blinding | None = None,
    ) -> ModelInfo:
        """Stores the sketch of a model beside its signature.

        Args:
            space: the model's space, whose M must be the sketch's.
            model: the model's name.
            sketch: the sketch of the signed support, from ``support.sketch()``. The service deletes
                it when another signature is stored.
            if_match: the ``etag`` of the version to change.
            blinding: the blinding of a blinded space: the sketch must be of the blinded support, as
                its signature is. A sketch itself does not say so.

        Raises:
            ApiError: ``support_exists`` for a model with a support, since the service then computes
                the sketch itself; ``precondition_failed`` for another version.
        """
        stated = None if blinding is None else blinding.check
        return await self._connection.run(
            supports.put_sketch(space, model, sketch, if_match, stated)
        )

    async def get(self, space: str, model: str) -> Sketch:
        """Reads the sketch of a model.

        Args:
            space: the model's space.
            model: the model's name.

        Raises:
            ApiError: ``sketch_missing`` for a model that sent a signature without a sketch.
        """
        return await self._connection.run(supports.get_sketch(space, model))
