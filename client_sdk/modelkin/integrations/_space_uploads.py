"""``SpaceUploads``: a space of a service, for the integrations that upload to it.

Uploads create the space where it is missing, read its K, and store supports. Every call blocks
and may raise the errors of :class:`modelkin.Client`; ``_background_uploader`` handles them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from modelkin.client import Client
from modelkin.core.importance import ImportanceKind
from modelkin.core.layout import Layout
from modelkin.core.support import Support
from modelkin.core.tensor_order import TensorOrder
from modelkin.errors import ApiError, SpaceMismatch
from modelkin.types.spaces import SpaceInfo

__all__ = ["SpaceUploads"]


class SpaceUploads:
    """A space and a client of its service.

    Args:
        client: sends the uploads; the caller closes it.
        space: the space's name.
        num_parameters: M of the supports to store; with a layout, before the space leaves any out.
        layout: the models' layout.
        kind: the kind of importance, for a space that has to be created.
    """

    def __init__(
        self,
        client: Client,
        space: str,
        num_parameters: int,
        layout: Layout | None = None,
        kind: ImportanceKind | None = None,
    ) -> None:
        self._client = client
        self._space = space
        self._num_parameters = num_parameters
        self._layout = layout
        self._kind = kind
        self._open = False
        self._agreed = False
        self.k: int | None = None
        """The K that supports should have, as last read from the space; None for a free choice."""
        self.selection: dict[str, Any] = {}
        """The keywords of ``select_support`` that give supports the tensors of the space in its
        order, with octaves where it has them, once it is open."""
        self.opened = threading.Event()
        """Set after the first attempt to open the space, failed or not."""

    def open(self) -> None:
        """Find or create the space and read its K; do nothing if that is done already.

        Raises:
            SpaceMismatch: the existing space is of another number of parameters, or of other
                tensors; names the first that differs.
        """
        try:
            if not self._open:
                self._open_space()
        finally:
            self.opened.set()

    def put(
        self,
        model: str,
        support: Support,
        *,
        reporter: str,
        k_star: int,
        tags: Sequence[str],
        attributes: Mapping[str, Any],
    ) -> None:
        """Store a support with its tags and attributes.

        Args:
            model: the model's name.
            support: the selected support.
            reporter: the name under which a space whose clients agree on K counts ``k_star``.
            k_star: how many indices the support's coverage would choose.
            tags: all tags of the model from now on.
            attributes: attributes that are merged into the model's.
        """
        self.open()
        if self._agreed:
            size = self._client.spaces.report_support_size(
                self._space, k_star, client=reporter, support=support
            )
            self.k = size.k
        info = self._client.put_support(self._space, model, support, tags=tags)
        if attributes:
            merged = {**info.attributes, **attributes}
            self._client.models.update(self._space, model, attributes=merged)

    def _open_space(self) -> None:
        found = self._find_or_create()
        if self._layout is not None and found.layout is not None:
            order = TensorOrder(found.name, found.layout, found.exclude)
            self.selection = order.selection(self._layout)
        elif found.num_parameters != self._num_parameters:
            raise SpaceMismatch(
                f"space {self._space!r} is of models with {found.num_parameters} parameters, this "
                f"one has {self._num_parameters}: name another space"
            )
        if found.ordered:
            self.selection["ordered"] = True
        size = self._client.spaces.support_size(self._space)
        self._agreed, self.k = size.policy == "agreed", size.k
        self._open = True

    def _find_or_create(self) -> SpaceInfo:
        try:
            return self._client.spaces.get(self._space)
        except ApiError as error:
            if error.problem_code != "space_not_found":
                raise
        return self._client.ensure_space(
            self._space,
            layout=self._layout,
            num_parameters=None if self._layout else self._num_parameters,
            importance=self._kind,
        )
