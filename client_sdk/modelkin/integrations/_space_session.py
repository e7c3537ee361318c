"""``SpaceSession``: one space of a service, as those who push to it need it.

It makes the space where there is none, asks it for its K, and stores supports. Every call is
blocking and may raise what :class:`modelkin.Client` raises: see ``_pusher`` for who minds.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from modelkin.client import Client
from modelkin.core.layout import Layout
from modelkin.core.support import Support
from modelkin.errors import ApiError, SpaceMismatch

__all__ = ["SpaceSession"]


class SpaceSession:
    """A space and a client of its service.

    Args:
        client: stays the caller's, to close.
        space: the name.
        num_parameters: M of what will be stored.
        layout: of the models, for a space that has to be made.
    """

    def __init__(
        self, client: Client, space: str, num_parameters: int, layout: Layout | None = None
    ) -> None:
        self._client = client
        self._space = space
        self._num_parameters = num_parameters
        self._layout = layout
        self._open = False
        self._agrees = False
        self.k: int | None = None
        """The K that supports should have, as the space told last; None where each chooses."""
        self.asked = threading.Event()
        """Set once the space was asked for the first time, whatever came of it."""

    def open(self) -> None:
        """Finds the space, or makes it, and asks for its K; nothing where that is done already.

        Raises:
            SpaceMismatch: the space there is of another number of parameters.
        """
        try:
            if not self._open:
                self._ask()
        finally:
            self.asked.set()

    def put(
        self,
        model: str,
        support: Support,
        told: tuple[str, int],
        tags: Sequence[str],
        attributes: Mapping[str, Any],
    ) -> None:
        """Stores a support, with what is said about it.

        Args:
            model: the name.
            support: as selected.
            told: to a space whose clients agree on K: who tells, once each, and the K that its
                coverage would choose.
            tags: replace the model's.
            attributes: join those the model has.
        """
        self.open()
        if self._agrees:
            who, k_star = told
            self.k = self._client.agree_support_size(self._space, k_star, client=who).k
        info = self._client.put_support(self._space, model, support, tags=tags)
        if attributes:
            joined = {**info.attributes, **attributes}
            self._client.update_model(self._space, model, attributes=joined)

    def _ask(self) -> None:
        found = self._found_or_made()
        if found.num_parameters != self._num_parameters:
            raise SpaceMismatch(
                f"space {self._space!r} is of models with {found.num_parameters} parameters, this "
                f"one has {self._num_parameters}: name another space"
            )
        size = self._client.support_size(self._space)
        self._agrees, self.k = size.policy == "agreed", size.k
        self._open = True

    def _found_or_made(self) -> Any:
        try:
            return self._client.space(self._space)
        except ApiError as error:
            if error.problem_code != "space_not_found":
                raise
        return self._client.ensure_space(
            self._space,
            layout=self._layout,
            num_parameters=None if self._layout else self._num_parameters,
        )
