"""``WantedModels``: the clients that are sent the common model beside their cluster's, or instead.

A client asks for it in its replies. No other client is sent a second model.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast, get_args

from modelkin.federation.mixing import Wants
from modelkin.integrations.federation.client_names import ClientNames

__all__ = ["WantedModels"]

log = logging.getLogger("modelkin.integrations")


class WantedModels:
    """The models that clients want, and the share of their cluster's that each took last.

    Args:
        sends: whether clients are sent what they want, and not only their cluster's model.
        names: the clients' names.
    """

    def __init__(self, sends: bool, names: ClientNames) -> None:
        self._sends, self._names = sends, names
        self._wants: dict[int, Wants] = {}
        self.shares: dict[int, float] = {}
        """The share of the cluster's model in the last one that each client mixed, by node."""

    def of(self, node: int) -> Wants:
        """The models that a client is sent, once its cluster has one."""
        return self._wants.get(node, "cluster") if self._sends else "cluster"

    def note(self, server_round: int, said: Mapping[int, Mapping[str, Any] | None]) -> float | None:
        """Note what clients that answered want; return the mean share of those that mixed.

        Args:
            server_round: the round's number.
            said: what each client said: ``wants``, and its ``share`` where it mixed two models;
                None from a client that says nothing, and so wants its cluster's model.
        """
        mixed: dict[int, float] = {}
        for node, values in said.items():
            self._wants.pop(node, None)
            if values is None:
                continue
            wants, share = values.get("wants"), values.get("share", 1.0)
            if wants not in get_args(Wants) or not _is_share(share):
                log.warning(
                    "round %d: client %s gets its cluster's model: it asked for none that there is",
                    server_round,
                    self._names.of(node),
                )
                continue
            self._wants[node] = cast(Wants, wants)
            if "share" in values:
                mixed[node] = float(share)
        self.shares = dict(sorted({**self.shares, **mixed}.items()))
        if not mixed:
            return None
        mean = sum(mixed.values()) / len(mixed)
        log.info(
            "round %d: models of %d clients have %.2f of their cluster's on average",
            server_round,
            len(mixed),
            mean,
        )
        return mean


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1
