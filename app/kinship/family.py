"""The declarations around a model: its chain of bases, and the models they make its relatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.infra.db.database import Reader
from app.kinship.repository import declared_bases, ids_declaring
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.records import SpaceRecord
from modelkin.types.vocabulary import Relation

__all__ = ["Family"]

_MAX_CHAIN_LENGTH = 32
"""Links of a chain of declared bases that are followed."""


@dataclass(frozen=True, slots=True)
class Family:
    """The declarations around a model.

    Attributes:
        declared: its declared base.
        bases: the declared base of every model that was read, by name.
        chain: the model and its base, the base and its base, and so on.
        cycle: whether the chain returns to a model that it has passed.
    """

    name: str
    declared: str | None
    bases: Mapping[str, str | None]
    chain: tuple[tuple[str, str], ...]
    cycle: bool

    @classmethod
    def of(
        cls,
        session: Reader,
        space: SpaceRecord,
        name: str,
        declared: str | None,
        near: Sequence[str],
    ) -> Family:
        """Read the declared bases of the model and of near models, as far back as known."""
        bases: dict[str, str | None] = {name: declared}
        wanted = {*near, *([] if declared is None else [declared])} - bases.keys()
        for _ in range(_MAX_CHAIN_LENGTH):
            found = declared_bases(session, space, sorted(wanted))
            bases.update(found)
            wanted = {base for base in found.values() if base is not None} - bases.keys()
            if not wanted:
                break
        chain, cycle = _chain(name, bases)
        return cls(name, declared, bases, tuple(chain), cycle)

    def relatives(self, session: Reader, space: SpaceRecord) -> list[int]:
        """Return the ids of the declared relatives: ancestors, siblings and derivatives.

        All models that declare the model itself or its base are found, other relatives only if they
        were read.
        """
        direct = [self.name, *([] if self.declared is None else [self.declared])]
        read = [each for each in self.bases if self.relation(each) is not None]
        found = {candidate.id for candidate in candidates_by_name(session, space, read)}
        return sorted(found.union(ids_declaring(session, space, direct)))

    def derivatives(self, session: Reader, space: SpaceRecord) -> list[int]:
        """The ids of the models that are declared to be made from the model."""
        read = [each for each in self.bases if self.relation(each) == "derivative"]
        found = {candidate.id for candidate in candidates_by_name(session, space, read)}
        return sorted(found.union(ids_declaring(session, space, [self.name])))

    def relation(self, other: str) -> Relation | None:
        """The declared relation of another model to this one; None if there is none declared."""
        if other == self.declared:
            return "base"
        ancestors = {base for _, base in self.chain}
        if other in ancestors and other != self.name:
            return "ancestor"
        chain, _ = _chain(other, self.bases)
        back = {base for _, base in chain}
        if self.name in back:
            return "derivative"
        return "sibling" if self.declared is not None and self.declared in back else None


def _chain(name: str, bases: Mapping[str, str | None]) -> tuple[list[tuple[str, str]], bool]:
    """The links from a model back, and whether they return to a model that they have passed."""
    chain: list[tuple[str, str]] = []
    seen, at = {name}, name
    while len(chain) < _MAX_CHAIN_LENGTH:
        base = bases.get(at)
        if base is None:
            return chain, False
        chain.append((at, base))
        if base in seen:
            return chain, True
        seen.add(base)
        at = base
    return chain, False
