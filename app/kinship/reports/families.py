"""Bases among likenesses: which of the models that share weights with one it is made from.

:mod:`modelkin.core.fingerprints.relations.edges` has the rule. Relatives that a base explains are
no bases: fine-tunes of one base have lines in common through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from app.kinship.reports.known import KnownModel, Likeness
from app.kinship.reports.likenesses import Likenesses
from modelkin.core.fingerprints.relations.edges import edge_reason
from modelkin.core.fingerprints.sources import WHOLE

__all__ = ["Families", "age_of", "is_older"]

_OF_SEVERAL: Final = ("average", "assembled")
_MOST_IN_CHAIN: Final = 200
"""Models after which no further kin are asked for."""


def is_older(one: KnownModel, other: KnownModel) -> bool | None:
    """Whether ``one`` was published before the other; None where their dates do not say."""
    first, second = one.published_at, other.published_at
    return None if first is None or second is None or first == second else first < second


def age_of(model: KnownModel) -> tuple[float, str]:
    """A key that sorts older models first: by their publication, else by when they were stored."""
    return (model.published_at or model.stored_at).timestamp(), model.name


class Families:
    """The bases of models, declared and found.

    Args:
        models: what is known of each, by name.
        likenesses: what they are to each other.
    """

    def __init__(self, models: Mapping[str, KnownModel], likenesses: Likenesses) -> None:
        self._models = models
        self._likenesses = likenesses
        self._undeclared: dict[str, Likeness | None] = {}

    def confirmed(self, model: KnownModel) -> Iterator[Likeness]:
        """The declared bases whose lines the model has."""
        found = (self._likenesses.between(model.name, base) for base in model.declared)
        yield from (each for each in found if each is not None)

    def undeclared(self, model: KnownModel) -> Likeness | None:
        """The base with the greatest share that the model does not name; None without one.

        It is looked for once: three tables ask for it.
        """
        if model.name not in self._undeclared:
            self._undeclared[model.name] = self._found(model)
        return self._undeclared[model.name]

    def bases(self, model: KnownModel) -> tuple[Likeness, ...]:
        """The confirmed bases of a model, and the one that it does not name."""
        found = self.undeclared(model)
        return (*self.confirmed(model), *(() if found is None else (found,)))

    def _found(self, model: KnownModel) -> Likeness | None:
        bases = {each.other for each in self.confirmed(model)}
        kin = self._likenesses.of(model.name)
        found = [each for each in kin if self._is_base(model, each)]
        found.sort(key=self._order)
        return next((each for each in found if not self._is_explained(each, bases)), None)

    def _is_base(self, model: KnownModel, like: Likeness) -> bool:
        """Whether lines alone make the other model a base of one that does not name it."""
        other = self._models.get(like.other)
        if other is None or like.verdict not in WHOLE:
            return False
        if like.other in model.declared or model.name in other.declared:
            return False
        reason = edge_reason(
            like.verdict,
            like.share,
            published_at=model.published_at,
            base_published_at=other.published_at,
        )
        if reason == "copy" and is_older(other, model) is None:
            return age_of(other) < age_of(model)
        return reason is not None

    def _is_explained(self, like: Likeness, bases: set[str]) -> bool:
        """Whether the two have their lines in common through one of the bases.

        Only the nearest kin of a model are stored. So a base and a model of one origin may be
        strangers here, and have others in common: a chain of kin, each of one origin itself.
        """
        if not bases:
            return False
        shared = (e.other for e in self._likenesses.of(like.model) if e.other not in bases)
        chain = [like.other, *(each for each in shared if self._are_kin(like.other, each))]
        met = {like.model, *chain}
        for at, name in enumerate(chain):
            if at and not self._is_of_one(name):
                continue
            if any(self._are_kin(name, base) for base in bases):
                return True
            if len(chain) < _MOST_IN_CHAIN:
                kin = [e.other for e in self._likenesses.of(name) if e.other not in met]
                chain += kin
                met.update(kin)
        return False

    def _are_kin(self, one: str, other: str) -> bool:
        return self._likenesses.has(one, other) or self._likenesses.has(other, one)

    def _is_of_one(self, name: str) -> bool:
        """Whether a model has its weights from one origin, as far as its anatomy says."""
        model = self._models.get(name)
        return model is not None and model.verdict not in _OF_SEVERAL

    def _order(self, like: Likeness) -> tuple[float, tuple[float, str]]:
        return -like.share, age_of(self._models[like.other])
