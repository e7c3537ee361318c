"""The declarations around a model: its bases and theirs, and the models they make its relatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.infra.db.database import Reader
from app.kinship.repository import declared_bases, ids_declaring
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.records import SpaceRecord
from modelkin.types.vocabulary import Relation

__all__ = ["Family"]

_MAX_CHAIN_LENGTH = 32
"""Links of a chain of declared bases that are followed."""
_MAX_ANCESTORS = 1000
"""Ancestors that are read: each merge may name several bases."""


@dataclass(frozen=True, slots=True)
class Family:
    """The declarations around a model.

    Attributes:
        declared: its declared bases.
        bases: the declared bases of every model that was read, by name.
        chain: the model and its base, the base and its base, and so on; of several the first,
            unless another one leads back to the model.
        cycle: whether the chain returns to a model that it has passed.
        ancestors: its bases, theirs, and so on.
    """

    name: str
    declared: tuple[str, ...]
    bases: Mapping[str, tuple[str, ...]]
    chain: tuple[tuple[str, str], ...]
    cycle: bool
    ancestors: frozenset[str]

    @classmethod
    def of(
        cls,
        session: Reader,
        space: SpaceRecord,
        name: str,
        declared: Sequence[str],
        near: Sequence[str],
        beyond: Callable[[Sequence[str]], Mapping[str, tuple[str, ...]]] = lambda _: {},
    ) -> Family:
        """Read the declared bases of the model and of near models, as far back as known.

        Args:
            beyond: the declared bases of models that are not in the space, by name.
        """

        def read(names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
            found = declared_bases(session, space, names)
            missing = [each for each in names if each not in found]
            return {**beyond(missing), **found} if missing else found

        return cls.by(read, name, declared, near)

    @classmethod
    def by(
        cls,
        read: Callable[[Sequence[str]], Mapping[str, tuple[str, ...]]],
        name: str,
        declared: Sequence[str],
        near: Sequence[str] = (),
    ) -> Family:
        """The family of a model, whatever reads declarations.

        Args:
            read: the declared bases of the models among some names that are known, by name.
        """
        bases: dict[str, tuple[str, ...]] = {name: tuple(declared)}
        wanted = {*near, *declared} - bases.keys()
        for _ in range(_MAX_CHAIN_LENGTH):
            found = read(sorted(wanted))
            bases.update(found)
            wanted = {base for each in found.values() for base in each} - bases.keys()
            if not wanted or len(bases) > _MAX_ANCESTORS + len(near):
                break
        chain, cycle = _chain(name, bases)
        back = frozenset(_ancestors(name, bases))
        return cls(name, tuple(declared), bases, tuple(chain), cycle, back)

    @property
    def leads_back(self) -> bool:
        """Whether the declared bases of the model lead back to the model itself."""
        return self.cycle and self.chain[-1][1] == self.name

    def relatives(self, session: Reader, space: SpaceRecord) -> list[int]:
        """Return the ids of the declared relatives: ancestors, siblings and derivatives.

        All models that declare the model itself or one of its bases are found, other relatives only
        if they were read.
        """
        direct = [self.name, *self.declared]
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
        if other in self.declared:
            return "base"
        if other != self.name and other in self.ancestors:
            return "ancestor"
        back = _ancestors(other, self.bases)
        if self.name in back:
            return "derivative"
        return "sibling" if back.keys() & {*self.declared} else None


def _ancestors(name: str, bases: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """All that the declared bases of a model lead back to, each with a model that declares it."""
    found: dict[str, str] = {}
    level = [name]
    for _ in range(_MAX_CHAIN_LENGTH):
        if not level:
            break
        further = []
        for each in level:
            for base in bases.get(each, ()):
                if base not in found:
                    found[base] = each
                    further.append(base)
        level = further
    return found


def _chain(name: str, bases: Mapping[str, tuple[str, ...]]) -> tuple[list[tuple[str, str]], bool]:
    """The links from a model back, and whether they return to a model that they have passed."""
    declaring = _ancestors(name, bases)
    if name in declaring:
        return _way_back(name, declaring), True
    chain: list[tuple[str, str]] = []
    seen, at = {name}, name
    while len(chain) < _MAX_CHAIN_LENGTH and bases.get(at):
        base = bases[at][0]
        chain.append((at, base))
        if base in seen:
            return chain, True
        seen.add(base)
        at = base
    return chain, False


def _way_back(name: str, declaring: Mapping[str, str]) -> list[tuple[str, str]]:
    """The links of a cycle from a model to itself."""
    links = [(declaring[name], name)]
    while links[-1][0] != name:
        links.append((declaring[links[-1][0]], links[-1][0]))
    return links[::-1]
