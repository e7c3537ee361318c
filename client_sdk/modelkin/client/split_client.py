"""``SplitClient``: supports in parts at several services, none of which sees a whole one.

Overlaps of the parts add up exactly, so that similarities are those of whole supports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin._processes import PerProcess
from modelkin.client._sync.client import Client
from modelkin.client.split_parts import Mark, PartTable
from modelkin.core.layout import Layout
from modelkin.core.sketching.signature import Signature
from modelkin.core.splitting import Splitting, merged_signature
from modelkin.core.support import Support
from modelkin.errors import (
    ConnectionFailed,
    InvalidParameter,
    NotFoundError,
    ServerError,
    SpaceMismatch,
)
from modelkin.types.search import Neighbor, Neighbors, Overlap, SimilarityMatrix

__all__ = ["SplitClient"]

_MOST: Final = 1_000
"""The most models that one matrix compares."""

_T = TypeVar("_T")


class SplitClient:
    """A client of several services, each of which keeps one part of every support.

        with SplitClient([Client(url) for url in urls], key) as split:
            split.ensure_space("wards", layout=layout)
            split.put_support("wards", "ward-1", support)
            split.neighbors("wards", "ward-1")

    A service learns its own indices, how many of them models share, and the names of models. The
    client may be used from several threads.

    Args:
        services: 2 to 64 clients, in the same order at each use. They are closed with this one.
        key: a key of :meth:`modelkin.Blinding.new_key`, the same at each use, which no service has.

    Raises:
        InvalidParameter: there are fewer or more services, or the key is malformed.
    """

    def __init__(self, services: Sequence[Client], key: str | bytes) -> None:
        self._services = tuple(services)
        self._key = key
        Splitting(key, 2, len(self._services))
        self._threads = PerProcess(self._open)

    def ensure_space(
        self,
        name: str,
        *,
        layout: Layout | None = None,
        num_parameters: int | None = None,
        **options: Any,
    ) -> None:
        """Creates the space at each service; see :meth:`modelkin.Client.ensure_space`.

        Raises:
            InvalidParameter: ``ordered`` is set: ranks are those of a whole support.
        """
        if options.get("ordered"):
            raise InvalidParameter(
                "a split space is not ordered: a part has no ranks of its own. Leave ordered out, "
                "or use one service",
                field="ordered",
            )
        self._everywhere(
            lambda at: self._services[at].ensure_space(
                name, layout=layout, num_parameters=num_parameters, **options
            )
        )

    def put_support(
        self,
        space: str,
        model: str,
        support: Support,
        *,
        attributes: Mapping[str, Any] | None = None,
        **metadata: Any,
    ) -> None:
        """Stores each part of a support at its service; see :meth:`modelkin.Client.put_support`.

        Parts that are stored already change nothing, so call again after an error.

        Raises:
            SpaceMismatch: the support has another M or other tensors than the space, or the
                services have spaces that differ.
            InvalidParameter: the support has too few indices for so many services.
            ConnectionFailed: a service does not answer; says which. Until the call succeeds, the
                model is left out of answers.
        """
        splitting = self._splitting(space)
        parts, content = splitting.split(support), splitting.content(support)

        def put(at: int) -> None:
            mark = Mark(splitting.check, at, support.k, content)
            self._services[at].put_support(
                space, model, parts[at], attributes=mark.attributes(attributes), **metadata
            )

        self._everywhere(put)

    def delete(self, space: str, model: str) -> None:
        """Deletes the parts of a model; a missing part is no error."""

        def delete(at: int) -> None:
            try:
                self._services[at].models.delete(space, model)
            except NotFoundError as error:
                if error.problem_code != "model_not_found":
                    raise

        self._everywhere(delete)

    def overlap(self, space: str, a: str, b: str, *, lower_bound: bool = False) -> Overlap:
        """Compares two models exactly.

        Args:
            space: the name of the space, the same in every service.
            a, b: the models' names.
            lower_bound: whether to answer with the sum over the reachable services, if one does
                not answer; ``note`` says so.

        Raises:
            ConnectionFailed: a service does not answer; says which.
            SpaceMismatch: the parts of a model are not of one support: put it again.
        """
        table = self._table(space, lower_bound=lower_bound)
        shared, values = self._compare(space, [a, b], table)
        s = float(values[0, 1])
        note = table.note(everything=False)
        return Overlap(a, b, int(shared[0, 1]), s, s / (2 - s), note=note)

    def neighbors(
        self, space: str, model: str, *, k: int = 10, lower_bound: bool = False
    ) -> Neighbors:
        """Finds the models most similar to one, exactly, best first and ties by name.

        Models with a missing part are left out, and counted in ``note``.

        Args:
            space: a space of up to 1,000 models.
            model: the name of a model in the space.
            k: the number of models.
            lower_bound: see :meth:`overlap`.

        Raises:
            ConnectionFailed, SpaceMismatch: see :meth:`overlap`.
            InvalidParameter: the space has more models, or k is below 1.
        """
        if k < 1:
            raise InvalidParameter(f"k must be 1 or more, not {k}", field="k")
        table = self._table(space, lower_bound=lower_bound)
        table.require_whole([model])
        names = sorted(table.whole)
        shared, values = self._compare(space, names, table)
        row = names.index(model)
        items = [
            Neighbor(name, s, s / (2 - s), "exact", 0.0, int(count))
            for name, s, count in zip(names, values[row].tolist(), shared[row], strict=True)
            if count and name != model
        ]
        items.sort(key=lambda each: (-each.similarity, each.model))
        return Neighbors(
            items=tuple(items[:k]),
            model=model,
            method="exact",
            candidates=len(names) - 1,
            degraded=None in table.parts,
            note=table.note(everything=True),
        )

    def similarity(
        self, space: str, models: Iterable[str] | None = None, *, lower_bound: bool = False
    ) -> SimilarityMatrix:
        """Compares all pairs of up to 1,000 models exactly.

        Args:
            space: the name of the space, the same in every service.
            models: the models' names; by default all whole models, by name.
            lower_bound: see :meth:`overlap`.

        Raises:
            ConnectionFailed, SpaceMismatch: see :meth:`overlap`.
            InvalidParameter: there are more than 1,000 models.
        """
        table = self._table(space, lower_bound=lower_bound)
        names = sorted(table.whole) if models is None else list(models)
        _, values = self._compare(space, names, table)
        note = table.note(everything=models is None)
        return SimilarityMatrix(tuple(names), values, (), note=note)

    def signature(self, space: str, model: str) -> Signature:
        """Merges the signatures of a model's parts to that of its whole support.

        Raises:
            ConnectionFailed, SpaceMismatch: see :meth:`overlap`.
        """
        self._table(space, lower_bound=False).require_whole([model])
        return merged_signature(
            self._everywhere(lambda at: self._services[at].signatures.get(space, model))
        )

    def close(self) -> None:
        """Closes the clients of all services."""
        threads = self._threads.made()
        if threads is not None:
            threads.shutdown()
        for service in self._services:
            service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(len(self._services), thread_name_prefix="split")

    def _splitting(self, space: str, *, lower_bound: bool = False) -> Splitting:
        """The splitting of a space, which must be the same at all services."""
        answers = self._everywhere(
            lambda at: self._services[at].spaces.get(space), lower_bound=lower_bound
        )
        found = [info for info in answers if info is not None]
        kinds = {(info.num_parameters, info.layout_digest, info.blinding) for info in found}
        if len(kinds) != 1:
            raise SpaceMismatch(f"the services have different spaces {space!r}: create one of them")
        layout = found[0].layout
        size = found[0].num_parameters if layout is None else layout
        return Splitting(self._key, size, len(self._services))

    def _table(self, space: str, *, lower_bound: bool) -> PartTable:
        listed = self._everywhere(
            lambda at: list(self._services[at].models.list(space)), lower_bound=lower_bound
        )
        return PartTable(space, self._splitting(space, lower_bound=lower_bound).check, listed)

    def _compare(
        self, space: str, names: Sequence[str], table: PartTable
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Compare all pairs: the number of shared indices and the similarity, ``(n, n)`` each."""
        table.require_whole(names)
        if len(names) > _MOST:
            raise InvalidParameter(
                f"a SplitClient compares up to {_MOST:,} models at once, and {space!r} has "
                f"{len(names):,}: name them",
                field="models",
            )

        def read(at: int) -> npt.NDArray[np.int64] | int:
            if table.parts[at] is None:
                return 0
            matrix, sizes = self._services[at].similarity(space, names), table.sizes(at, names)
            return np.rint(matrix.values * (sizes[:, None] + sizes) / 2).astype(np.int64)

        shared = np.zeros((len(names), len(names)), np.int64) + sum(self._everywhere(read))
        wholes = table.wholes(names)
        values = 2 * shared / (wholes[:, None] + wholes)
        np.fill_diagonal(values, 1.0)
        values.flags.writeable = False
        return shared, values

    def _everywhere(self, ask: Callable[[int], _T], *, lower_bound: bool = False) -> list[Any]:
        """Ask all services at once; None stands for a service that does not answer, if allowed."""
        asked = [self._threads.get().submit(ask, at) for at in range(len(self._services))]
        answers: list[Any] = []
        for at, future in enumerate(asked):
            try:
                answers.append(future.result())
            except (ConnectionFailed, ServerError) as error:
                if not lower_bound:
                    raise ConnectionFailed(
                        f"service {at + 1} of {len(self._services)} does not answer: {error}"
                    ) from error
                answers.append(None)
        if lower_bound and all(answer is None for answer in answers):
            raise ConnectionFailed("no service answers")
        return answers
