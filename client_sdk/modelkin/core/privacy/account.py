"""``PrivacyAccount``: what the private supports of one client's samples have spent together.

Composition of Gaussian mechanisms is exact: noise of sigma_1, sigma_2, ... for a sensitivity of 1
shows together what one noise of ``(sum of sigma_i^-2)^-1/2`` shows (Dong, Roth and Su, "Gaussian
differential privacy", 2019, Corollary 3.3), and its epsilon at a delta is Balle and Wang's. Nothing
that holds can be tighter, so it is never above basic or advanced composition. It also holds where
each epsilon is chosen after the earlier supports were seen (Smith and Thakurta, "Fully adaptive
composition for Gaussian differential privacy", 2022).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from modelkin.core.privacy.gaussian import gaussian_delta, gaussian_sigma
from modelkin.errors import InvalidParameter, PrivacyBudgetExceeded

__all__ = ["ATTRIBUTE", "PrivacyAccount"]

ATTRIBUTE: Final = "privacy"
"""The attribute of a model that has its account."""

_STEPS: Final = 100
_MOST: Final = 700.0
"""Beyond this epsilon e^epsilon leaves float64."""


@dataclass(frozen=True, slots=True)
class PrivacyAccount:
    """A budget, and the private supports that were paid from it.

    Keep it where you keep the samples: **you are the one who must count**. The copy beside the
    model can be changed by every key that may write there, and goes with the model.

    Attributes:
        epsilon: the budget: the epsilon of all supports together, at ``delta``.
        delta: the probability with which ``epsilon`` may fail, above 0 and below 1.
        spent: epsilon and delta of each support so far.

    Raises:
        InvalidParameter: an epsilon or a delta is out of its range.
        PrivacyBudgetExceeded: what is spent is more than the budget.
    """

    epsilon: float
    delta: float
    spent: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        gaussian_sigma(self.epsilon, self.delta)  # checks both
        if self.spent and gaussian_delta(self._sigma(), self.epsilon) > self.delta * (1 + 1e-9):
            raise PrivacyBudgetExceeded(
                f"{len(self.spent)} private supports spend epsilon {self.epsilon_spent:.4g} at "
                f"delta {self.delta:g}, and the budget is {self.epsilon:g}"
            )

    def spend(self, epsilon: float, delta: float) -> PrivacyAccount:
        """The account with one more support paid; call it before the support is made.

        Args:
            epsilon: what this support spends, as it was asked of ``private_support``.
            delta: the probability with which this epsilon may fail.

        Raises:
            InvalidParameter: out of their ranges.
            PrivacyBudgetExceeded: the budget has no room for it; nothing was spent.
        """
        return replace(self, spent=(*self.spent, (float(epsilon), float(delta))))

    @property
    def epsilon_spent(self) -> float:
        """The epsilon of all supports together at the budget's delta; 0 where there are none."""
        if not self.spent:
            return 0.0
        sigma, low, high = self._sigma(), 0.0, _MOST
        if gaussian_delta(sigma, low) <= self.delta:
            return 0.0
        for _ in range(_STEPS):
            middle = (low + high) / 2.0
            if gaussian_delta(sigma, middle) > self.delta:
                low = middle
            else:
                high = middle
        return high

    def _sigma(self) -> float:
        """The sigma of the one noise that shows as much as all supports together."""
        return 1.0 / math.hypot(*(1.0 / gaussian_sigma(*each) for each in self.spent))

    def to_attribute(self) -> dict[str, Any]:
        """The account as JSON values, for the attribute of a model."""
        spent = [list(each) for each in self.spent]
        return {"epsilon": self.epsilon, "delta": self.delta, "spent": spent}

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, Any]) -> PrivacyAccount | None:
        """The account among the attributes of a model; None where there is none.

        Raises:
            InvalidParameter: the attribute is not an account.
        """
        if ATTRIBUTE not in attributes:
            return None
        try:
            read = attributes[ATTRIBUTE]
            spent = tuple((float(epsilon), float(delta)) for epsilon, delta in read["spent"])
            return cls(float(read["epsilon"]), float(read["delta"]), spent)
        except (TypeError, KeyError, ValueError) as error:
            raise InvalidParameter(
                f"the attribute {ATTRIBUTE!r} is not a PrivacyAccount: {error}", field=ATTRIBUTE
            ) from None
