"""``Plan``: how a support is made of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from modelkin.checkpoints.adapters import Adapter
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.importance import PassObserver, select_from_checkpoint
from modelkin.checkpoints.rounding import rounding_note
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.support import Support

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for making a support of a checkpoint.

    Attributes:
        checkpoint: the model.
        base: the checkpoint that the model is compared with; None for a support of weights.
        importance: the kind, with the digest of the base's weights.
        rule: how K is chosen: a share, a count, or a coverage.
        layout: the layout of the space that the support is for, whose tensors the checkpoint has by
            its own names; None without one.
        observe: is told of passes of their own over the files; None for nobody.
    """

    checkpoint: Checkpoint
    base: Checkpoint | None
    importance: Importance
    rule: SelectionRule
    layout: Layout | None = None
    observe: PassObserver | None = field(default=None, compare=False)

    def support(self, k: int | None = None) -> Support:
        """The support, of K indices where K is given."""
        rule = self.rule
        if k is not None:
            rule = SelectionRule.of(self.checkpoint.num_parameters, k=self.share_of(k))
        support = select_from_checkpoint(
            self.checkpoint,
            self.base,
            rule,
            self.observe,
            base_digest=self.importance.base_digest,
        )
        return support if self.layout is None else support.reordered(self.layout)

    def share_of(self, k: int) -> int:
        """How many of K indices of the space the checkpoint has, which may lack a part."""
        mine, whole = self.checkpoint.num_parameters, self.layout
        share = 1 if whole is None else mine / whole.num_parameters
        return min(mine, max(1, round(share * k)))

    def against(self, digest: str) -> Plan:
        """The plan with the digest of its base."""
        importance = Importance.of("delta", digest, self.importance.note)
        return replace(self, importance=importance)

    @property
    def notes(self) -> tuple[str, ...]:
        """The checkpoint's own notes, and one if differences are mostly rounding."""
        mine, base = self.checkpoint, self.base
        if base is None or isinstance(mine, Adapter):
            return mine.notes
        rounding = rounding_note(mine, base)
        return mine.notes if rounding is None else (*mine.notes, rounding)
