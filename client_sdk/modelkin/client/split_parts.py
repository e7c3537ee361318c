"""Marks on the parts of split supports, which show the models that are whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from modelkin.errors import SpaceMismatch
from modelkin.types.models import ModelInfo

__all__ = ["MARK", "Mark", "PartTable"]

MARK: Final = "modelkin.split"
"""The attribute of a part's model that holds its mark."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a part.

    Attributes:
        check: a check value of the key, the layout and the number of services.
        shard: the number of the part, from 0.
        whole: K of the whole support.
        content: a value that is equal in all parts of one support.
    """

    check: str
    shard: int
    whole: int
    content: str

    @classmethod
    def of(cls, info: ModelInfo) -> Self | None:
        """The mark of a stored model; None if it is not a part."""
        try:
            return cls(**info.attributes[MARK])
        except (KeyError, TypeError):
            return None

    def attributes(self, own: Mapping[str, Any] | None) -> dict[str, Any]:
        """The attributes of a part: the caller's, and this mark."""
        return {**(own or {}), MARK: asdict(self)}


class PartTable:
    """The parts of all models of a space, by service.

    Args:
        space: the space's name.
        check: the check value of the splitting that the parts must be of.
        listed: the models of each service; None for a service that does not answer.

    Raises:
        SpaceMismatch: a service has parts of another service or key; says which.
    """

    def __init__(
        self, space: str, check: str, listed: Sequence[Sequence[ModelInfo] | None]
    ) -> None:
        self._space = space
        self.parts: list[dict[str, Mark] | None] = []
        self._sizes: list[dict[str, int]] = []
        for at, infos in enumerate(listed):
            found = {info.model: mark for info in infos or () if (mark := Mark.of(info))}
            self.parts.append(None if infos is None else found)
            self._sizes.append({info.model: info.support_size for info in infos or ()})
            for name, mark in found.items():
                self._require(at, name, mark, check)

    @cached_property
    def whole(self) -> frozenset[str]:
        """The models with a part of one support at all services that answer."""
        held = [own for own in self.parts if own is not None]
        return frozenset(
            name
            for name in self._names
            if all(name in own for own in held) and len({own[name].content for own in held}) == 1
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for own in self.parts if own is not None for name in own)

    def require_whole(self, names: Sequence[str]) -> None:
        """Raise :class:`SpaceMismatch` for the first model that is not whole."""
        for name in names:
            if name not in self._names:
                raise SpaceMismatch(
                    f"no service has a part of {name!r} in {self._space!r}: put it first"
                )
            if name not in self.whole:
                lacking = [
                    self.service(at)
                    for at, own in enumerate(self.parts)
                    if own is not None and name not in own
                ]
                why = f"{' and '.join(lacking)} lacks its part" if lacking else "they differ"
                raise SpaceMismatch(
                    f"the parts of {name!r} in {self._space!r} are not of one support, {why}: put "
                    "it again"
                )

    def wholes(self, names: Sequence[str]) -> Integers:
        """K of the whole supports of some models."""
        held = next(own for own in self.parts if own is not None)
        return np.array([held[name].whole for name in names], np.int64)

    def sizes(self, at: int, names: Sequence[str]) -> Integers:
        """The number of indices in some models' parts at one service."""
        return np.array([self._sizes[at][name] for name in names], np.int64)

    def note(self, *, everything: bool) -> str | None:
        """A note on missing parts or services in an answer, or None.

        Args:
            everything: whether the answer is about all models.
        """
        silent = [self.service(at) for at, own in enumerate(self.parts) if own is None]
        words = [f"a lower bound: {' and '.join(silent)} did not answer"] if silent else []
        left_out = len(self._names) - len(self.whole)
        if everything and left_out:
            words.append(f"models of which a part is missing were left out: {left_out}")
        return "; ".join(words) or None

    def service(self, at: int) -> str:
        """The name of a service in messages."""
        return f"service {at + 1} of {len(self.parts) or 1}"

    def _require(self, at: int, name: str, mark: Mark, check: str) -> None:
        if mark.check != check:
            raise SpaceMismatch(
                f"{name!r} in {self._space!r} was split under another key, or for another number "
                "of services"
            )
        if mark.shard != at:
            raise SpaceMismatch(
                f"the service at place {at + 1} has part {mark.shard + 1} of {name!r} in "
                f"{self._space!r}: give the services in the order of the first use"
            )
