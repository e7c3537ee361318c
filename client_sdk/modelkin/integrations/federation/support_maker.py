"""``SupportMaker``: the message that a client makes of an importance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.selection.rule import SelectionRule
from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.messages import SupportMessage, check_k_max
from modelkin.selection import resize_support, select_support

__all__ = ["SupportMaker"]


class SupportMaker:
    """Makes supports, or their signatures, of a client's importance.

    Args:
        send: ``"support"``, or ``"signature"``.
        coverage: see ``modelkin.select_support``; unused if the server sends K.
        k_max: the largest share of indices; None for 0.2.
        beta: the share of an average over rounds that remains after each round; None uses only each
            round's importance.
        num_perm: h of the signature.
        seed: 0 to 2^32 - 1; all clients need the same one to be compared.

    Raises:
        InvalidParameter: an argument is out of its range.
    """

    def __init__(
        self,
        send: str = "support",
        *,
        coverage: float | None = None,
        k_max: float | None = None,
        beta: float | None = None,
        num_perm: int = 256,
        seed: int = 1,
    ) -> None:
        if send not in {"support", "signature"}:
            raise InvalidParameter(
                f"send must be 'support' or 'signature', not {send!r}", field="send"
            )
        if beta is not None and not 0 < beta < 1:
            raise InvalidParameter(f"beta must be between 0 and 1, not {beta!r}", field="beta")
        check_k_max(k_max)
        SelectionRule.of(1, coverage=coverage, k_max=k_max)
        self._send, self.beta = send, beta
        self._coverage, self._k_max = coverage, k_max
        self._num_perm, self._seed = num_perm, seed

    def make(
        self, given: Any, k: Any, before: npt.NDArray[np.float32] | None = None
    ) -> tuple[SupportMessage, Any]:
        """Make the message of a round.

        Args:
            given: an importance, see ``modelkin.select_support``; or a
                ``modelkin.torch.GradientMoment``.
            k: the K that the server asks for; the client's own choice where it is no count.
            before: with ``beta``, the average of earlier rounds.

        Returns:
            The message, and the importance to keep as the average for the next round.

        Raises:
            InvalidInput: the importance yields no support, and so must enter no average.
        """
        averaged = getattr(given, "importance", None)  # a GradientMoment
        importance = averaged() if callable(averaged) else given
        if self.beta is not None:
            importance = _average(importance, self.beta, before)
        chosen = select_support(importance, coverage=self._coverage, k_max=self._k_max)
        agreed = k if type(k) is int and 1 <= k <= chosen.num_parameters else None
        support = resize_support(importance, chosen, agreed)
        if self._send == "support":
            return SupportMessage(support, chosen.k), importance
        return SupportMessage(support.signature(self._num_perm, self._seed), chosen.k), importance


def _average(
    importance: Any, beta: float, before: npt.NDArray[np.float32] | None
) -> npt.NDArray[np.float32]:
    """The average with earlier rounds, up to a factor that changes no selection."""
    if hasattr(importance, "detach"):
        importance = importance.detach().float().cpu().numpy()
    summed = np.array(importance, np.float32)
    if before is not None and before.shape == summed.shape:
        summed += np.float32(beta) * before
    return summed
