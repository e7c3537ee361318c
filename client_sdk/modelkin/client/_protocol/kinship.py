"""The calls about kin beyond neighbours: donors, graphs and lineages.

What is sent is decided here once for both clients; how answers are read is ``_kin_answers``'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from modelkin._validation import check_model_name
from modelkin.client._protocol import requests
from modelkin.client._protocol.decoding import Fields
from modelkin.client._protocol.kin_answers import read_donors, read_graph, read_lineage
from modelkin.client._protocol.spaces import Call, Query
from modelkin.client._sync.resource import AsyncCalling, Calling
from modelkin.client._transport.errors import parse_json
from modelkin.errors import InvalidName
from modelkin.types.kinship import Donors, Graph, Lineage

__all__ = ["AsyncKinCalls", "KinCalls"]


class KinCalls(Calling):
    """Part of :class:`modelkin.Client`."""

    def donors(
        self,
        space: str,
        target: Query,
        *,
        method: str = "similarity",
        k: int = 10,
        tags: Iterable[str] = (),
        min_similarity: float | None = None,
        exclude: Iterable[str] = (),
        weights: str | None = None,
        label: str | None = None,
        target_label: Any = None,
        metric: str | None = None,
        neighbors: int | None = None,
    ) -> Donors:
        """The models that a target may learn from, why, and with weights that sum to 1.

        Args:
            space: where to look.
            target: a stored model's name; or a support or signature, which is not stored.
            method: ``"similarity"`` ranks by S; ``"idf"`` weighs what is shared by how rare it is
                in the space; ``"cover"`` takes whoever adds most to what the donors before hold;
                ``"knn_shapley"`` values donors by the label or metric of the target's
                neighbourhood.
            k: how many, 1 to 1,000.
            tags: only models that carry all of them.
            min_similarity: only models of this S or more, 0 to 1.
            exclude: names of models that may not be donors; the target never is.
            weights: ``"zscore"``, proportional to exp of the z-score of S over the space;
                ``"similarity"``, to S; ``"score"``, to what the method ranks by. By default
                ``"score"`` for ``"cover"``, else ``"zscore"``.
            label: of ``"knn_shapley"``, the attribute that should be the same as the target's.
            target_label: the target's label, where no attribute of it tells.
            metric: of ``"knn_shapley"``, the attribute that should be large, in place of a label.
            neighbors: of ``"knn_shapley"``, how many nearest models count; 5 by default.
        """
        return self._run(
            _donors(
                space,
                target,
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
            )
        )

    def graph(
        self,
        space: str,
        *,
        k: int | None = None,
        threshold: float | None = None,
        tags: Iterable[str] = (),
    ) -> Graph:
        """Which models are near which, all at once.

        Args:
            space: of up to 10,000 models that carry the tags.
            k: edges to the k nearest of each model; 10 where there is no threshold either.
            threshold: or edges between all that have this S or more.
            tags: only models that carry all of them.
        """
        return self._run(_graph(space, k, threshold, tags))

    def lineage(self, space: str, model: str) -> Lineage:
        """What a model declares to be made from, beside what is measured, with a verdict.

        Similarity has no direction: it may contradict a declared base, and never proves one.
        """
        return self._run(_lineage(space, model))


class AsyncKinCalls(AsyncCalling):
    """Part of :class:`modelkin.AsyncClient`."""

    async def donors(
        self,
        space: str,
        target: Query,
        *,
        method: str = "similarity",
        k: int = 10,
        tags: Iterable[str] = (),
        min_similarity: float | None = None,
        exclude: Iterable[str] = (),
        weights: str | None = None,
        label: str | None = None,
        target_label: Any = None,
        metric: str | None = None,
        neighbors: int | None = None,
    ) -> Donors:
        """The models that a target may learn from, why, and with weights that sum to 1."""
        call = await asyncio.to_thread(
            _donors,
            space,
            target,
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
        )
        return await self._run(call)

    async def graph(
        self,
        space: str,
        *,
        k: int | None = None,
        threshold: float | None = None,
        tags: Iterable[str] = (),
    ) -> Graph:
        """Which models are near which, all at once."""
        return await self._run(_graph(space, k, threshold, tags))

    async def lineage(self, space: str, model: str) -> Lineage:
        """What a model declares to be made from, beside what is measured, with a verdict."""
        return await self._run(_lineage(space, model))


def _donors(
    space: str, target: Query, tags: Iterable[str], exclude: Iterable[str], **asked: Any
) -> Call[Donors]:
    if isinstance(exclude, str):
        raise InvalidName("exclude is one string; give a list of model names", field="exclude")
    params = [
        *((name, _text(value)) for name, value in asked.items() if value is not None),
        *requests.tag_params(tags),
        *(
            ("exclude", check_model_name(name, field=f"exclude[{place}]"))
            for place, name in enumerate(exclude)
        ),
    ]
    request = requests.ask(f"{requests.space_path(space)}/donors", "target", target, params)
    return Call(request, lambda r: read_donors(Fields(parse_json(r))))


def _graph(space: str, k: int | None, threshold: float | None, tags: Iterable[str]) -> Call[Graph]:
    asked = {"k": k, "threshold": threshold}
    params = [
        *((name, _text(value)) for name, value in asked.items() if value is not None),
        *requests.tag_params(tags),
    ]
    request = requests.get(f"{requests.space_path(space)}/graph", params)
    return Call(request, lambda r: read_graph(Fields(parse_json(r))))


def _lineage(space: str, model: str) -> Call[Lineage]:
    asked = [("model", check_model_name(model))]
    request = requests.get(f"{requests.space_path(space)}/lineage", asked)
    return Call(request, lambda r: read_lineage(Fields(parse_json(r))))


def _text(value: Any) -> str:
    """A parameter as it stands in a query; labels of ``True`` are spelled as JSON spells them."""
    return str(value).lower() if isinstance(value, bool) else str(value)
