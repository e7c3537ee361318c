"""Anatomies that a service makes: those of ``modelkin.anatomy``, with what it knows of parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from modelkin._printing import Table, excerpt
from modelkin.core.fingerprints.anatomy import Anatomy
from modelkin.types.vocabulary import EdgeReason, StatedBy

__all__ = ["AWAY", "MORE", "KnownModel", "ModelAnatomy", "TensorPairs", "stated_by_clients"]

_NAMED: Final = 3
"""Models that a note names."""

MORE: Final = (
    "others may be kin as well, beside those that are named: the relatives of these lead to them"
)
"""What an answer says that is truncated."""
AWAY: Final = (
    "the index that machines share is away, wholly or in part: some kin may be missing until it is "
    "back"
)
"""What an answer says that is degraded."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What a service knows of a model with lines in common.

    Attributes:
        model: its name.
        revision: of its fingerprint.
        stated_by: ``hub`` where the service read the file itself; a client may state anything.
        base_models: what it declares itself, unchecked.
        license: as declared.
        published_at: as declared.
        edge: why it is drawn as a base of the checkpoint: ``declared``, a ``copy`` or ``part``, or
            5% of ``lines`` and the older date; None where lines alone say no direction.
        share_of_model: of its own lines, those that the checkpoint has.
    """

    model: str
    revision: int
    stated_by: StatedBy
    base_models: tuple[str, ...]
    license: str | None
    published_at: datetime | None
    edge: EdgeReason | None
    share_of_model: float


@dataclass(frozen=True, repr=False)
class ModelAnatomy(Anatomy):
    """Where a checkpoint comes from, among all models of a service.

    It is an :class:`Anatomy`: it prints, and is drawn, as one that was made without a service.

    Attributes:
        model: the checkpoint's name; None of a fingerprint that is not stored.
        models: what the service knows of its parents, by name.
        compared: how many stored models were asked.
        common: keys that three or more models have which share nothing else, such as the same
            random seed: they make nobody kin.
        truncated: whether others may be kin as well.
        degraded: whether the service's index was away, wholly or in part.
    """

    model: str | None
    models: Mapping[str, KnownModel]
    compared: int
    common: int
    truncated: bool
    degraded: bool = False

    def to_json(self) -> dict[str, Any]:
        """All of it in JSON's types."""
        known = {name: asdict(each) for name, each in self.models.items()}
        for each in known.values():
            date = each["published_at"]
            each["published_at"] = None if date is None else date.isoformat()
            each["base_models"] = list(each["base_models"])
        return {
            **super().to_json(),
            "model": self.model,
            "models": known,
            "compared": self.compared,
            "common": self.common,
            "truncated": self.truncated,
            "degraded": self.degraded,
        }

    def _table(self) -> Table:
        found = super()._table()
        stated = [name for name, each in self.models.items() if each.stated_by == "client"]
        notes = (
            *found.notes,
            *((("stated", stated_by_clients(stated)),) if stated else ()),
            ("compared", f"with {self.compared:,} stored model{'' if self.compared == 1 else 's'}"),
            *((("more", MORE),) if self.truncated else ()),
            *((("index", AWAY),) if self.degraded else ()),
        )
        whose = "" if self.model is None else f" of {excerpt(self.model)}"
        title = found.title.replace("Anatomy", f"Anatomy{whose}", 1)
        return replace(found, title=title, notes=notes)


@dataclass(frozen=True, repr=False)
class TensorPairs(Anatomy):
    """Two stored models compared tensor by tensor: the anatomy of one beside the other alone.

    Attributes:
        model: the name of the one.
        other: that of the other.
        share_of_lines: of its lines, those that the other one has.
        share_of_other: of the other one's lines.
        keys: the lines in common.
        expected: how many strangers would have, at most.
        log10_p: the decimal logarithm of the probability of so many by chance.
    """

    model: str
    other: str
    share_of_lines: float
    share_of_other: float
    keys: int
    expected: float
    log10_p: float

    def to_json(self) -> dict[str, Any]:
        """All of it in JSON's types."""
        names = ("model", "other", "share_of_lines", "share_of_other", "keys", "expected")
        more = {name: getattr(self, name) for name in (*names, "log10_p")}
        return {**super().to_json(), **more}


def stated_by_clients(names: Sequence[str]) -> str:
    """What is said of models whose files the service has not read itself."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    listed = ", ".join(excerpt(name) for name in names[:_NAMED])
    return f"by clients, who may state anything: {listed}{more}"
