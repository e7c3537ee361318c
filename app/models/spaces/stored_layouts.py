"""Layouts as their row holds them: a text, and the sizes of the tensors.

A layout may have 33,000 tensors in a megabyte. As a text it is cheap to store, to show, and to take
from the process that reads long bodies; parsing it into objects would hold up every other thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from pydantic_core import to_json

from modelkin.core.indices import MAX_PARAMETERS
from modelkin.core.layout import Layout, layout_digest
from modelkin.errors import InvalidLayout, ModelkinError

__all__ = [
    "MAX_DIMENSIONS",
    "MAX_TENSORS",
    "MAX_TENSOR_NAME_LENGTH",
    "StoredLayout",
    "layout_or_error",
]

MAX_TENSORS: Final = 100_000
MAX_TENSOR_NAME_LENGTH: Final = 500
"""Characters."""
MAX_DIMENSIONS: Final = 16


@dataclass(frozen=True, slots=True)
class StoredLayout:
    """The layout of a space.

    Attributes:
        tensors: the names and shapes of the tensors in order, ``[{"name": ..., "shape": [...]}]``.
        sizes: the sizes of the tensors, little-endian uint64.
        num_parameters: M, the sum of the sizes.
        digest: the digest of the :class:`Layout`.
    """

    tensors: str
    sizes: bytes
    num_parameters: int
    digest: str

    @classmethod
    def of(cls, layout: Layout) -> StoredLayout:
        """Return the stored form of a layout.

        Raises:
            InvalidLayout: the layout has too many tensors, or a tensor has too long a name or too
                many dimensions.
        """
        tensors = layout.tensors
        return cls._of([t.name for t in tensors], [t.shape for t in tensors], to_json(tensors))

    @classmethod
    def of_tensors(cls, tensors: Sequence[Mapping[str, Any]]) -> StoredLayout:
        """Return the stored form of tensors ``{"name": ..., "shape": [...]}``.

        Raises:
            InvalidLayout: as for :meth:`of`, or the tensors make no :class:`Layout`.
        """
        distinct = {tensor["name"] for tensor in tensors}
        total = sum(prod(tensor["shape"]) for tensor in tensors)
        if len(distinct) < len(tensors) or not 1 <= total <= MAX_PARAMETERS:
            return cls.of(Layout.from_json(tensors))  # which raises the error
        names, shapes = [each["name"] for each in tensors], [each["shape"] for each in tensors]
        return cls._of(names, shapes, to_json(tensors))

    @classmethod
    def _of(
        cls, names: Sequence[str], shapes: Sequence[Sequence[int]], text: bytes
    ) -> StoredLayout:
        _check_size(names, shapes)
        sizes = [*map(prod, shapes)]
        return cls(
            tensors=text.decode(),
            sizes=np.array(sizes, "<u8").tobytes(),
            num_parameters=sum(sizes),
            digest=layout_digest(names, shapes),
        )


def layout_or_error(
    tensors: Sequence[Mapping[str, Any]], exclude: Sequence[str]
) -> StoredLayout | ModelkinError:
    """Return a layout, or its error, which is raised once the caller is known to be allowed."""
    try:
        if exclude:
            return StoredLayout.of(Layout.from_json(tensors).without(exclude))
        return StoredLayout.of_tensors(tensors)
    except ModelkinError as error:
        return error


def _check_size(names: Sequence[str], shapes: Sequence[Sequence[int]]) -> None:
    """Limit the layout, because every answer that shows the space contains it."""
    if len(names) > MAX_TENSORS:
        raise InvalidLayout(
            f"a layout has at most {MAX_TENSORS} tensors, this one {len(names)}", field="layout"
        )
    longest, most = max(map(len, names)), max(map(len, shapes))
    if longest <= MAX_TENSOR_NAME_LENGTH and most <= MAX_DIMENSIONS:
        return
    at = next(
        at
        for at, (name, shape) in enumerate(zip(names, shapes, strict=True))
        if len(name) > MAX_TENSOR_NAME_LENGTH or len(shape) > MAX_DIMENSIONS
    )
    raise InvalidLayout(
        f"layout[{at}]: a tensor has a name of at most {MAX_TENSOR_NAME_LENGTH} characters "
        f"and at most {MAX_DIMENSIONS} dimensions",
        field="layout",
    )
