"""Relatives: the models that have lines in common with one, the least likely by chance first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

from modelkin._printing import MAX_ROWS, Table, excerpt
from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.core.fingerprints.relations.relation import Relation
from modelkin.core.fingerprints.sources import words_of
from modelkin.types.anatomies.anatomy import AWAY, MORE
from modelkin.types.search import Ranking
from modelkin.types.vocabulary import EdgeReason, LineVerdict, StatedBy

__all__ = ["Relative", "Relatives"]

_COLUMNS: Final = ("model", "what the checkpoint is", "lines", "of its lines", "P", "stated by")


@dataclass(frozen=True, slots=True)
class Relative:
    """A model with lines in common.

    Attributes:
        model: its name.
        revision: of its fingerprint.
        stated_by: ``hub`` where the service read the file itself; a client may state anything.
        base_models: what it declares itself, unchecked.
        license: as declared.
        published_at: as declared.
        edge: why it is drawn as a base of the checkpoint; see :class:`KnownModel`.
        verdict: what the checkpoint is to it: ``copy``, ``part``, ``derived``, ``reuses`` or
            ``related``; None where chance is not excluded, and nothing is said.
        share_of_lines: of the checkpoint's lines, those that it has.
        share_of_model: of its own lines, those that the checkpoint has.
        share_of_parameters: by the share of each tensor; None without a verdict.
        keys: the lines in common.
        expected: how many strangers would have, at most.
        log10_p: the decimal logarithm of the probability of so many by chance.
        log10_e: that of how many strangers would have so many, of all models that were asked.
        relations: what the checkpoint is to it, each in a sentence.
    """

    model: str
    revision: int
    stated_by: StatedBy
    base_models: tuple[str, ...]
    license: str | None
    published_at: datetime | None
    edge: EdgeReason | None
    verdict: LineVerdict | None
    share_of_lines: float
    share_of_model: float
    share_of_parameters: float | None
    keys: int
    expected: float
    log10_p: float
    log10_e: float
    relations: tuple[Relation, ...]

    @property
    def words(self) -> str:
        """The verdict in words for people."""
        return "nothing beyond chance" if self.verdict is None else words_of(self.verdict)

    @property
    def sentence(self) -> str:
        """What the checkpoint is to it, in English, without a full stop."""
        return "; ".join(each.sentence for each in self.relations)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Relatives(Ranking[Relative]):
    """The models with lines in common, the least likely by chance first.

    Attributes:
        items: they; the object itself is a sequence of them too.
        model: the checkpoint's name; None of a fingerprint that is not stored.
        note: what equal lines mean; None where there are none.
        compared: how many stored models were asked.
        common: keys that three or more models have which share nothing else.
        truncated: whether others may be kin as well.
        degraded: whether the service's index was away, wholly or in part.
    """

    _row: ClassVar[type[Any]] = Relative

    items: tuple[Relative, ...]
    model: str | None
    note: str | None
    compared: int
    common: int
    truncated: bool
    degraded: bool = False

    def _table(self) -> Table:
        shown = self.items[:MAX_ROWS]
        rows = tuple(
            (
                excerpt(each.model),
                each.words,
                f"{each.share_of_lines:.1%}",
                f"{each.share_of_model:.1%}",
                power_of_ten(each.log10_p),
                "" if each.stated_by == "hub" else "a client",
            )
            for each in shown
        )
        whose = "" if self.model is None else f" of {excerpt(self.model)}"
        stored = f"{self.compared:,} stored model{'' if self.compared == 1 else 's'}"
        return Table(
            f"Relatives{whose}, {len(self.items):,} of {stored}",
            (),
            _COLUMNS,
            rows,
            (False, False, True, True, True, False),
            len(self.items) - len(shown),
            (
                *((("note", self.note),) if self.note else ()),
                *((("more", MORE),) if self.truncated else ()),
                *((("index", AWAY),) if self.degraded else ()),
            ),
        )
