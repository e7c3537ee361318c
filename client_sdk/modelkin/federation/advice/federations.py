"""``Measured``: a federation that was trained in every way, with what its supports show."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Measured"]


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
