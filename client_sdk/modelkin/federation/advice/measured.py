"""Federations of 20 clients, trained in every way: structures and accuracies.

``python -m benchmarks.federation.advice`` has written this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MEASURED", "Measured"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A federation whose clients were trained in every way; figures are means over seeds.

    Attributes:
        name: how its clients differ.
        kappa: the mean similarity of two clients beyond chance.
        silhouette: of the groups that supports show; 0 without.
        groups: how many groups, over the number of clients.
        one_model: the accuracy of one model for all.
        alone: that of each client alone.
        by_groups: that of a model for each group, whose number is known.
        mixed: that of a quarter of the group's model in the common one; None if not measured.
        personal: that of one model with heads of the clients' own; None if not measured.
        beside: that of the best plain way, trained as the two before; None if not measured.
    """

    name: str
    kappa: float
    silhouette: float
    groups: float
    one_model: float
    alone: float
    by_groups: float
    mixed: float | None
    personal: float | None
    beside: float | None

    @property
    def hides_groups(self) -> bool:
        """Whether a model for each group is better, and groups hardly show."""
        return self.by_groups > self.one_model + 0.05 and self.silhouette < 0.1


MEASURED: Final = (
    Measured("labels in four groups", 0.481, 0.662, 0.2, 0.628, 0.978, 0.988, 0.959, 0.964, 0.988),
    Measured(
        "labels in four groups, beside 40% of any",
        0.626,
        0.516,
        0.233,
        0.812,
        0.694,
        0.753,
        0.858,
        0.662,
        0.819,
    ),
    Measured(
        "labels that mean other things in four groups",
        0.798,
        0.293,
        0.2,
        0.306,
        0.809,
        0.905,
        0.38,
        0.806,
        0.902,
    ),
    Measured("two of ten labels swapped", 0.837, 0.0, 0.05, 0.763, 0.816, 0.865, None, None, None),
    Measured("images turned in four ways", 0.619, 0.677, 0.1, 0.54, 0.817, 0.905, 0.656, 0.7, 0.9),
    Measured("images in four styles", 0.513, 0.735, 0.2, 0.473, 0.671, 0.788, None, None, None),
    Measured(
        "few labels each, Dir(0.1)", 0.442, 0.384, 0.5, 0.818, 0.948, 0.853, 0.905, 0.943, 0.945
    ),
    Measured(
        "mixed labels, Dir(0.3)", 0.55, 0.136, 0.233, 0.903, 0.898, 0.888, 0.915, 0.895, 0.903
    ),
    Measured("even labels, IID", 0.821, 0.0, 0.05, 0.925, 0.821, 0.908, None, None, None),
)
