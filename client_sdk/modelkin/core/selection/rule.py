"""``SelectionRule``: how many entries a selection takes, checked and resolved for M parameters.

It defines what k, fraction, coverage, k_max and budgets mean as numbers, in exact rationals. It
never reads an importance.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any, Final

from modelkin.core.layout import Layout, TensorSpec
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = ["LEAST_SHARE", "MAX_DEFAULT_K", "Budget", "SelectionRule", "budgets_of", "ratio"]

DEFAULT_COVERAGE = 0.8
DEFAULT_K_MAX = 0.2

LEAST_SHARE = 1000
"""The parameters for each index of the smallest useful support: smaller ones say little."""

DEFAULT_FRACTION = 0.05
MAX_DEFAULT_K: Final = 1 << 25
"""The most entries that a share of M takes by default, those of 671 million parameters at 5%.

A service that follows a hub holds them in memory, and its supports have to compare with those that
the command line and the SDK select of the same files.
"""
DENSE_KINDS = frozenset({"weight", "delta"})
"""Kinds of importance of which nearly every entry is positive and of one size, so that a coverage
of 0.8 would always end at its cap of 20%, where unrelated models share a fifth of their indices.
For these K is 5% of M by default, at most :data:`MAX_DEFAULT_K`."""


@dataclass(frozen=True, slots=True)
class SelectionRule:
    """The requested K or coverage, checked and resolved for M parameters.

    Attributes:
        k: the requested number of entries, or the cap of a coverage.
        coverage: the requested share of the mass, exact; None if K itself was requested.
    """

    k: int
    coverage: Fraction | None

    @classmethod
    def of(
        cls,
        num_parameters: int,
        *,
        k: Any = None,
        fraction: Any = None,
        coverage: Any = None,
        k_max: Any = None,
        kind: str | None = None,
    ) -> SelectionRule:
        """The rule for the arguments of ``select_support``, which describes them.

        Args:
            num_parameters: M.
            k: as in ``select_support``.
            fraction: as in ``select_support``.
            coverage: as in ``select_support``.
            k_max: as in ``select_support``.
            kind: the kind of importance, which decides where nothing else is given: 5% of M for
                ``"weight"`` and ``"delta"``, at most :data:`MAX_DEFAULT_K`, else a coverage of 0.8
                capped at 20% of M.

        Raises:
            InvalidParameter: more than one way to choose K, a cap without a coverage, a number out
                of range.
        """
        ways = {"k": k, "fraction": fraction, "coverage": coverage}
        given = [name for name, value in ways.items() if value is not None]
        if len(given) > 1:
            raise InvalidParameter(
                f"give one of k, fraction and coverage, not {' and '.join(given)}"
            )
        if k_max is not None and given in (["k"], ["fraction"]):
            raise InvalidParameter(
                "k_max caps a coverage; leave it out with k or fraction", field="k_max"
            )
        if k is not None:
            return cls(_count(k, "k", 1, num_parameters), None)
        if fraction is not None:
            return cls(_share(fraction, "fraction", num_parameters), None)
        if kind in DENSE_KINDS and coverage is None and k_max is None:
            return cls.default(num_parameters)
        tau = ratio(DEFAULT_COVERAGE if coverage is None else coverage, "coverage")
        return cls(_cap(DEFAULT_K_MAX if k_max is None else k_max, num_parameters), tau)

    @classmethod
    def default(cls, num_parameters: int, fraction: float = DEFAULT_FRACTION) -> SelectionRule:
        """The rule for M weights, differences or products where nothing else is asked for.

        Args:
            num_parameters: M.
            fraction: the share of M; at most :data:`MAX_DEFAULT_K` entries are taken.
        """
        return cls(min(_share(fraction, "fraction", num_parameters), MAX_DEFAULT_K), None)


@dataclass(frozen=True, slots=True)
class Budget:
    """The ``k`` entries that one tensor gives, out of ``[begin, end)`` of the whole importance."""

    name: str
    begin: int
    end: int
    k: int


def budgets_of(layout: Any, budgets: Any, num_parameters: int) -> tuple[Budget, ...]:
    """The budgets of ``select_support``, which describes them: one for each tensor, or 0.

    Raises:
        InvalidParameter: no layout, a name that is not in it, a count or share out of range, or
            budgets of 0 only.
        SpaceMismatch: the layout is of another number of parameters.
    """
    if not isinstance(layout, Layout):
        raise InvalidParameter(
            f"budgets need the layout that the importance is in, not {layout!r}: "
            f"pass layout=modelkin.layout_of(model)",
            field="layout",
        )
    if layout.num_parameters != num_parameters:
        raise SpaceMismatch(
            f"the layout has {layout.num_parameters} parameters, the importance {num_parameters}"
        )
    wanted = _by_name(layout, budgets)
    found, begin = [], 0
    for tensor in layout.tensors:
        k = _budget(wanted[tensor.name], tensor) if tensor.name in wanted and tensor.size else 0
        if tensor.size:
            found.append(Budget(tensor.name, begin, begin + tensor.size, k))
        begin += tensor.size
    if not any(budget.k for budget in found):
        raise InvalidParameter("the budgets take no entry of any tensor", field="budgets")
    return tuple(found)


def _by_name(layout: Layout, budgets: Any) -> Mapping[str, Any]:
    if not isinstance(budgets, Mapping):
        if _is_count(budgets):
            raise InvalidParameter(
                f"budgets={budgets!r} is a count, and tensors differ in size: give a share of each "
                f"as a float, or a count for each as {{name: count}}",
                field="budgets",
            )
        return dict.fromkeys((tensor.name for tensor in layout.tensors), budgets)
    names = {tensor.name for tensor in layout.tensors}
    unknown = [str(name) for name in budgets if name not in names]
    if unknown:
        raise InvalidParameter(
            f"budgets name {len(unknown)} tensors that are not in the layout: "
            f"{', '.join(unknown[:5])}{', ...' if len(unknown) > 5 else ''}",
            field="budgets",
        )
    return budgets


def _budget(value: Any, tensor: TensorSpec) -> int:
    name = f"budgets[{tensor.name!r}]"
    return (
        _count(value, name, 0, tensor.size)
        if _is_count(value)
        else _share(value, name, tensor.size)
    )


def _count(value: Any, name: str, minimum: int, maximum: int | None) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise InvalidParameter(f"{name} must be an integer, not {value!r}", field=name) from None
    if isinstance(value, bool) or count < minimum or (maximum is not None and count > maximum):
        raise InvalidParameter(
            f"{name} must be {minimum} to {maximum or 'M'}, not {value!r}", field=name
        )
    return count


def _share(value: Any, name: str, size: int) -> int:
    """``floor(value * size)``, at least 1, of a float as the decimal that it prints as."""
    ratio(value, name)
    written = value if isinstance(value, Rational | Decimal) else Decimal(str(float(value)))
    return max(1, math.floor(Fraction(written) * size))


def ratio(value: Any, name: str) -> Fraction:
    """A number in (0, 1] as an exact rational, or :class:`InvalidParameter`."""
    try:
        if isinstance(value, bool | str):
            raise TypeError
        exact = Fraction(value if isinstance(value, Rational | Decimal) else float(value))
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(
            f"{name} must be a number in (0, 1], not {value!r}", field=name
        ) from None
    if not 0 < exact <= 1:
        raise InvalidParameter(f"{name} must be in (0, 1], not {value!r}", field=name)
    return exact


def _is_count(value: Any) -> bool:
    return isinstance(value, int) or hasattr(value, "__index__")


def _cap(value: Any, num_parameters: int) -> int:
    if _is_count(value):
        return min(_count(value, "k_max", 1, None), num_parameters)
    return _share(value, "k_max", num_parameters)
