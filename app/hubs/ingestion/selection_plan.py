"""The plan for the supports of a model: their sizes, and how they are selected.

This module has the rules. It downloads nothing, and selects from the checkpoints that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from app.hubs.ingestion.files.checkpoint_fetcher import Counter
from app.infra.db.database import Reader
from app.models.spaces.records import SpaceRecord
from app.models.spaces.support_sizes import SupportSizeService
from modelkin.checkpoints import Checkpoint, select_from_checkpoint
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.selection.streaming import Floats
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter

__all__ = ["PlannedSize", "Sizes", "select"]

_PASSES: Final = 3
"""The most times that a checkpoint is read."""


@dataclass(frozen=True, slots=True)
class PlannedSize:
    """How many indices a support gets.

    Attributes:
        rule: the rule for K.
        usual: the K that clients would choose by default, if this service selects fewer.
    """

    rule: SelectionRule
    usual: int | None = None

    def k_for(self, share: float) -> int:
        """The K of a checkpoint that has a share of the parameters: so much of the whole K."""
        return max(1, round(share * self.rule.k))

    @property
    def note(self) -> str | None:
        """A sentence for people if the service selects fewer indices than clients."""
        if self.usual is None:
            return None
        return (
            f"its support has {self.rule.k} indices at most (MODELKIN_MAX_INGESTED_INDICES), where "
            f"clients select {self.usual} of such a model by default"
        )


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of supports.

    Attributes:
        service: the service with the support size of each space.
        most: the most indices of a support. It bounds memory, however large checkpoints are.
    """

    service: SupportSizeService
    most: int

    def rule(
        self,
        session: Reader,
        space: SpaceRecord | None,
        num_parameters: int,
        *,
        fixed: int | None = None,
        fraction: float | None = None,
    ) -> PlannedSize:
        """The rule of a space: its fixed or agreed K, else a share of M.

        Args:
            space: None if it does not exist yet.
            num_parameters: M.
            fixed: the K of a space that does not exist yet; None without one.
            fraction: the share of M by default; None for that of weights and differences.

        Raises:
            InvalidParameter: the K of the space exceeds the limit of this service.
        """
        k = fixed
        if space is not None:
            free = space.support_size.policy == "free"
            k = None if free else self.service.current(session, space).k
        if k is None:
            k = _default_k(num_parameters, fraction)
            if k > self.most:
                return PlannedSize(SelectionRule(self.most, Fraction(1)), usual=k)
        if k > self.most:
            where = "its space" if space is None else f"space {space.name!r}"
            raise InvalidParameter(
                f"{where} requires supports of {k} indices, but this service selects "
                f"at most {self.most} (MODELKIN_MAX_INGESTED_INDICES)",
                field="support_size",
            )
        # All the mass, but at most K entries: a model with fewer positive ones has a smaller K.
        return PlannedSize(SelectionRule(k, Fraction(1)))


def _default_k(num_parameters: int, fraction: float | None) -> int:
    if fraction is None:
        return SelectionRule.default(num_parameters).k
    return SelectionRule.default(num_parameters, fraction).k


def select(adapter: Checkpoint, rule: SelectionRule, count: Counter) -> Support:
    """Select the support of the differences that an adapter makes.

    Args:
        adapter: the adapter, with the tensors of its space, in their order.
        rule: the rule for K.
        count: a function of the number of values read, and of the most there may be.

    Raises:
        InvalidCheckpoint: a factor is not finite.
        InvalidImportance: it changes nothing.
    """
    done, total = 0, _PASSES * adapter.num_parameters

    def watch(chunks: Iterable[Floats]) -> Iterator[Floats]:
        nonlocal done
        for chunk in chunks:
            yield chunk
            done += chunk.size
            count(min(done, total), total)

    return select_from_checkpoint(adapter, None, rule, watch)
