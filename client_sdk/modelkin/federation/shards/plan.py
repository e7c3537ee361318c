"""``Plan``: the terms on which all parties of an average agree before any value is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from modelkin.core.indices import MAX_PARAMETERS
from modelkin.errors import InvalidParameter

__all__ = [
    "CHECK_WORDS",
    "MAX_ATTEMPT",
    "MIN_MEMBERS",
    "PIECE_VALUES",
    "RULES",
    "Plan",
    "default_shards",
]

CHECK_WORDS: Final = 4
"""Zeros at the end of a concealed cell: where pairwise masks do not cancel, the sum shows it in
these words, but for one case in 2^128."""

MAX_ATTEMPT: Final = 1
"""The last attempt of a concealed round, without the members that the first attempt lost."""

MIN_MEMBERS: Final = 3
"""The default least number of members: each of two would know the values of the other."""
_MOST_DEFAULT_SHARDS: Final = 4
_LEAST_DEFAULT_SHARDS: Final = 2
"""Who holds the only shard holds a whole update, if it lies."""

RULES: Final = ("mean", "median", "trimmed_mean")
"""How an aggregator combines values; see ``modelkin.federation.shards.combine``."""

PIECE_VALUES: Final = 2**22
"""Values of a shard that travel in one cell: 16 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The terms by which updates are cut, compressed, concealed and combined.

    Args:
        num_parameters: M, values of an update.
        shards: A, and as many aggregators.
        conceal: whether aggregators see sums alone, by pairwise masks.
        one_in: c; of c values of a shard one is sent.
        masks: ``"one"`` if all members keep the same values in a round; ``"own"`` if each keeps
            others, relative to its shift.
        quantize: ``"int8"`` rounds at random what is sent; None sends float32.
        rule: the rule of the aggregators: ``"mean"``, ``"median"`` or ``"trimmed_mean"``.
        min_members: fewer members are not averaged.
        replicas: how many aggregators compute each shard; more than half must give equal results,
            and all of them where masks are each member's own.
        piece_values: values of a shard in one cell, before c.

    Raises:
        InvalidParameter: an argument is out of its range, or two of them exclude each other.
    """

    num_parameters: int
    shards: int = 1
    conceal: bool = True
    one_in: int = 1
    masks: str = "one"
    quantize: str | None = None
    rule: str = "mean"
    min_members: int = MIN_MEMBERS
    replicas: int = 1
    piece_values: int = PIECE_VALUES

    def __post_init__(self) -> None:
        _check_range("num_parameters", self.num_parameters, 1, MAX_PARAMETERS)
        _check_range("shards", self.shards, 1, min(self.num_parameters, 2**16))
        _check_range("one_in", self.one_in, 1, min(self.num_parameters // self.shards, 2**31))
        _check_range("min_members", self.min_members, 1, 2**16)
        _check_range("replicas", self.replicas, 1, self.shards)
        _check_range("piece_values", self.piece_values, 1, PIECE_VALUES)
        if type(self.conceal) is not bool:
            raise InvalidParameter("conceal must be true or false", field="conceal")
        _check_choice("masks", self.masks, ("one", "own"))
        _check_choice("quantize", self.quantize, (None, "int8"))
        _check_choice("rule", self.rule, RULES)
        self._check_together()

    def _check_together(self) -> None:
        if self.rule != "mean" and (self.one_in > 1 or self.quantize is not None):
            raise InvalidParameter(
                f"rule {self.rule!r} compares the members' values, so all of them are sent: "
                f"one_in=1 and quantize=None",
                field="rule",
            )
        if not self.conceal:
            return
        reasons = {
            "rule": (self.rule != "mean", "a sum hides the values that this rule compares"),
            "masks": (self.masks != "one", "the members' cells must be of the same coordinates"),
            "quantize": (self.quantize is not None, "pairwise masks are added to 32-bit numbers"),
        }
        for field, (wrong, why) in reasons.items():
            if wrong:
                message = f"{field}={getattr(self, field)!r} needs conceal=False: {why}"
                raise InvalidParameter(message, field=field)

    @property
    def blocks(self) -> int:
        """Blocks of A parameters, each with one value of every shard; the last may be short."""
        return -(-self.num_parameters // self.shards)

    @property
    def piece_blocks(self) -> int:
        """Blocks of a piece: whole blocks of c, so that any pieces draw the same values."""
        return max(1, self.piece_values // self.one_in) * self.one_in

    @property
    def pieces(self) -> int:
        """How many pieces each shard has."""
        return -(-self.blocks // self.piece_blocks)

    @property
    def shifted(self) -> bool:
        """Whether members send differences to shifts: with masks of their own."""
        return self.masks == "own" and self.one_in > 1

    def stretch(self, piece: int) -> tuple[int, int]:
        """The parameters whose values are in this piece of any shard: from, and before which.

        Raises:
            InvalidParameter: no such piece.
        """
        _check_range("piece", piece, 0, self.pieces - 1)
        start = piece * self.piece_blocks * self.shards
        return start, min(start + self.piece_blocks * self.shards, self.num_parameters)

    def to_json(self) -> dict[str, Any]:
        """The plan as an object of all its fields, by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, fields: Any) -> Plan:
        """The plan of :meth:`to_json`.

        Raises:
            InvalidParameter: not an object of these fields, or their values make no plan.
        """
        if not isinstance(fields, dict) or set(fields) != set(cls.__slots__):
            raise InvalidParameter("not an object with the fields of a plan", field="plan")
        return cls(**fields)


def default_shards(members: int, min_members: int, num_parameters: int) -> int:
    """A where nobody names it: so many that one member may be away, if ``min_members`` lets it."""
    least = max(_LEAST_DEFAULT_SHARDS, min_members)
    return min(_MOST_DEFAULT_SHARDS, members, num_parameters, max(least, members - 1))


def _check_range(field: str, value: Any, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InvalidParameter(
            f"{field} must be a whole number from {least} to {most}, not {value!r}", field=field
        )


def _check_choice(field: str, value: Any, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise InvalidParameter(f"{field} must be one of {names}, not {value!r}", field=field)
