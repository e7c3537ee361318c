"""The part of the client that compares models."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.flows import run_flow
from modelkin.client._async.listing import AsyncListing
from modelkin.client._protocol import kinship, search
from modelkin.client._protocol.calls.flows import Flow
from modelkin.client._protocol.calls.requests import Query
from modelkin.client._protocol.models import list_all
from modelkin.client._protocol.uploads.tensor_order import LayoutCache, in_order, one_call
from modelkin.types.kinship import Donors
from modelkin.types.lineages import FingerprintLineage, Lineage
from modelkin.types.reports.audits import LineageFinding, LineageTotals
from modelkin.types.search import Neighbors, Overlap, SimilarityMatrix
from modelkin.types.vocabulary import (
    Compare,
    DonorMethod,
    DonorWeights,
    LineageVerdict,
    Measure,
    NeighborMeasure,
    SearchMethod,
)

__all__ = ["AsyncQueries"]


class AsyncQueries:
    """The reading half of :class:`modelkin.AsyncClient`."""

    _connection: AsyncConnection
    _layouts: LayoutCache

    async def neighbors(
        self,
        space: str,
        query: Query,
        *,
        k: int = 10,
        min_similarity: float | None = None,
        min_kappa: float | None = None,
        method: SearchMethod = "auto",
        tags: Iterable[str] = (),
        compare: Compare | None = None,
        measure: NeighborMeasure = "similarity",
    ) -> Neighbors:
        """Finds the models most similar to one, best first.

        Args:
            space: the name of the space; a stored ``query`` is a model of it.
            query: the name of a stored model; or a support, signature or subspace, which is not
                stored.
                A support whose layout is known is put in the order of the space's tensors.
            k: the number of models, 1 to 1,000.
            min_similarity: only models of this S or more, 0 to 1.
            min_kappa: only models of this kappa or more among the ``k`` nearest, -1 to 1; the space
                needs a layout. A model without a kappa is left out.
            method: the method of the search; ``"auto"`` takes the fastest that is exact enough.
            tags: only models that carry all of them.
            compare: for data subspaces, ``"classes"`` or ``"whole"``; by default the space's own.
            measure: ``"ordered"`` ranks by the ordered similarity, in an ordered space. All methods
                but ``"exact"`` rank only models that share the most indices.

        Raises:
            SpaceMismatch: the support has other tensors than the space; names the first.
            ApiError: ``model_not_found``, ``space_not_found`` or ``space_mismatch``.
        """

        def ask(value: Query) -> Flow[Neighbors]:
            return one_call(
                search.neighbors(
                    space,
                    value,
                    k,
                    min_similarity,
                    method,
                    tags,
                    min_kappa,
                    compare,
                    measure,
                )
            )

        flow = in_order(self._layouts, space, query, ask)
        return await run_flow(flow, self._connection.run, heavy=True)

    async def donors(
        self,
        space: str,
        target: Query,
        *,
        method: DonorMethod = "similarity",
        k: int = 10,
        tags: Iterable[str] = (),
        min_similarity: float | None = None,
        exclude: Iterable[str] = (),
        weights: DonorWeights | None = None,
        label: str | None = None,
        target_label: Any = None,
        metric: str | None = None,
        neighbors: int | None = None,
        include_unrelated: bool = False,
        compare: Compare | None = None,
    ) -> Donors:
        """Ranks the models that a target may learn from, with reasons and weights that sum to 1.

        Args:
            space: the name of the space; donors are models of it.
            target: the name of a stored model; or a support or signature, which is not stored.
                A support whose layout is known is put in the order of the space's tensors.
            method: ``"similarity"`` ranks by S. ``"idf"`` weights shared indices by how rare they
                are in the space. ``"cover"`` takes the model that adds most to the coverage of the
                donors before. ``"knn_shapley"`` values donors by the label or metric of the
                target's neighbourhood.
            k: the number of models, 1 to 1,000.
            tags: only models that carry all of them.
            min_similarity: only models of this S or more, 0 to 1.
            exclude: names of models that may not be donors; the target never is.
            weights: ``"zscore"``, proportional to exp of the z-score of S over the space;
                ``"similarity"``, to S; ``"score"``, to the score of the method. By default
                ``"score"`` for ``"cover"``, else ``"zscore"``.
            label: for ``"knn_shapley"``, the attribute that should equal the target's.
            target_label: the target's label, where no attribute of it has one.
            metric: for ``"knn_shapley"``, the attribute that should be large, in place of a label.
            neighbors: for ``"knn_shapley"``, the number of nearest models that count; 5 by default.
            include_unrelated: whether donors as near as two models are by chance count, too.
            compare: see :meth:`neighbors`; data subspaces have the method ``"similarity"``.

        Raises:
            SpaceMismatch: the support has other tensors than the space; names the first.
            ApiError: ``model_not_found``, ``space_not_found`` or ``space_mismatch``.
        """

        def ask(value: Query) -> Flow[Donors]:
            return one_call(
                kinship.donors(
                    space,
                    value,
                    tags,
                    exclude,
                    method=method,
                    k=k,
                    min_similarity=min_similarity,
                    weights=weights,
                    label=label,
                    target_label=target_label,
                    metric=metric,
                    neighbors=neighbors,
                    include_unrelated=include_unrelated or None,
                    compare=compare,
                )
            )

        flow = in_order(self._layouts, space, target, ask)
        return await run_flow(flow, self._connection.run, heavy=True)

    async def overlap(
        self, space: str, a: str, b: str, *, compare: Compare | None = None
    ) -> Overlap:
        """Compares two models exactly, tensor by tensor where the space has a layout.

        Data subspaces have the principal angles of each block that both have.

        Args:
            space: the name of the space that has both models.
            a: the name of one model.
            b: the name of the other model.
            compare: see :meth:`neighbors`.

        Raises:
            ApiError: ``model_not_found``; ``support_missing`` for a model without a support.
        """
        return await self._connection.run(search.overlap(space, a, b, compare))

    async def similarity(
        self,
        space: str,
        models: Iterable[str] | None = None,
        *,
        measure: Measure = "similarity",
        compare: Compare | None = None,
    ) -> SimilarityMatrix:
        """Compares all pairs of up to 1,000 models.

        Args:
            space: the name of the space that has all of them.
            models: the models' names, in the order of the rows; by default all models, by name.
            measure: ``"kappa"`` answers the similarity beyond chance, in a space with a layout;
                ``"ordered"`` the ordered similarity, in an ordered space.
            compare: see :meth:`neighbors`.

        Raises:
            InvalidParameter: no names are given, and the space has more than 1,000 models.
            ApiError: ``model_not_found`` or ``space_not_found``.
        """
        if models is None:
            models = []
            async for info in self._connection.rows(list_all(space)):
                models.append(info.model)
                search.check_matrix_size(space, len(models))
        return await self._connection.run(search.similarity(space, models, measure, compare))

    async def lineage(self, space: str, model: str) -> Lineage:
        """Compares the declared base of a model with its measured similarities.

        Similarity has no direction: it may contradict a declared base, and never proves one.

        Args:
            space: the model's space.
            model: the model's name.

        Raises:
            ApiError: ``model_not_found`` or ``space_not_found``.
        """
        return await self._connection.run(kinship.lineage(space, model))

    async def fingerprint_lineage(self, model: str) -> FingerprintLineage:
        """Compares the declared bases of a fingerprint with the lines in common.

        It needs no space and no common layout. Lines in common confirm a base, and that there are
        none proves nothing.

        Args:
            model: the name of a model that has a fingerprint.

        Raises:
            ApiError: ``fingerprint_not_found``.
        """
        return await self._connection.run(kinship.fingerprint_lineage(model))

    def lineages(
        self,
        space: str,
        *,
        verdict: LineageVerdict | Iterable[LineageVerdict] = (),
        base_model: str | None = None,
        acknowledged: bool | None = None,
    ) -> AsyncListing[LineageFinding]:
        """Lists the verdicts on the models of a space, what matters first, page by page as read.

            await client.lineages("wards", verdict="mismatch").read()

        A model without a declared base is listed if another one stands out near it. The service
        judges models some seconds after a change; see :meth:`lineage_totals` for those that wait.

        Args:
            space: the name of the space whose models are checked.
            verdict: only findings of this verdict, or of one of these verdicts.
            base_model: only models that declare this base.
            acknowledged: only findings that are acknowledged, or are not; by default all.

        Raises:
            ApiError: ``space_not_found``, once the first row is read.
        """
        call = kinship.lineages(space, verdict, base_model, acknowledged)
        return AsyncListing(partial(self._connection.rows, call), LineageFinding)

    async def lineage_totals(self, space: str, *, base_model: str | None = None) -> LineageTotals:
        """Counts the findings of a space by verdict, and the models that are not judged yet.

        Args:
            space: the name of the space.
            base_model: only models that declare this base.

        Raises:
            ApiError: ``space_not_found``.
        """
        return await self._connection.run(kinship.lineage_totals(space, base_model))
