"""``select_support``: from an importance to the indices of its K largest positive entries.

It owns the rules of a selection: how K is asked for, what an importance must be, and that ties go
to the lower index. Where the selection ends is found by ``radix``; how an importance is made of a
model is ``modelkin.torch``'s business. It never imports torch: a tensor is recognised by what it
can do.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from numbers import Rational
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core import radix
from modelkin.core.kernels.choice import kernels
from modelkin.core.support import Support
from modelkin.errors import InvalidImportance, InvalidParameter, SpaceMismatch

__all__ = ["SelectionRule", "SmallSupportWarning", "coverage_of", "select_support"]

DEFAULT_COVERAGE = 0.8
DEFAULT_K_MAX = 0.2

Bits = npt.NDArray[np.uint32]


class SmallSupportWarning(UserWarning):
    """Fewer entries are positive than were asked for; zeros never enter a support."""


@dataclass(frozen=True, slots=True)
class SelectionRule:
    """How K was asked for, checked and resolved against M.

    Attributes:
        k: the number of entries wanted, or the cap of a coverage.
        coverage: the share of the mass wanted, exact; None where K itself was asked for.
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
    ) -> SelectionRule:
        """The rule of :func:`select_support`'s arguments, which are described there.

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
            return cls(_count(k, "k", num_parameters), None)
        if fraction is not None:
            return cls(_share(fraction, "fraction", num_parameters), None)
        tau = _ratio(DEFAULT_COVERAGE if coverage is None else coverage, "coverage")
        return cls(_cap(DEFAULT_K_MAX if k_max is None else k_max, num_parameters), tau)


def select_support(
    importance: Any,
    *,
    k: int | None = None,
    fraction: float | None = None,
    coverage: float | None = None,
    k_max: float | None = None,
) -> Support:
    """The K largest positive entries of an importance, ties to the lower index (section 3.2).

    Give one of ``k``, ``fraction`` and ``coverage``; with none of them, ``coverage=0.8``. The
    answer is exact and does not depend on the machine: masses are summed as integers.

    Args:
        importance: one-dimensional floats, shape ``(M,)``, finite and not negative: a numpy array
            or a torch tensor. float32 on the CPU is read where it lies; half precisions are
            widened, float64 is rounded to float32.
        k: K itself, 1 to M.
        fraction: K as a share of M, in (0, 1]: ``floor(fraction * M)``, at least 1, where a float
            means the decimal that it prints as, so that 0.3 of 10 is 3.
        coverage: in (0, 1]: the smallest K whose entries sum to this share of all (Algorithm 1); a
            float means its exact binary value.
        k_max: the most that ``coverage`` may choose: a share of M as a float in (0, 1] (rounded
            like ``fraction``), or a count as an int. Default 0.2.

    Returns:
        K indices out of M. Fewer, with a :class:`SmallSupportWarning`, where fewer entries are
        positive.

    Raises:
        InvalidImportance: an entry is NaN, infinite or negative, none is positive, or it is no
            vector of floats.
        InvalidParameter: see :meth:`SelectionRule.of`.
    """
    bits = _bits(importance)
    rule = SelectionRule.of(bits.size, k=k, fraction=fraction, coverage=coverage, k_max=k_max)
    threshold = _locate(bits, rule)
    if threshold is None:
        raise InvalidImportance(
            f"all {bits.size} entries of the importance are zero, and a support takes only "
            f"positive ones",
            field="importance",
        )
    if rule.coverage is None and threshold.k < rule.k:
        warnings.warn(
            f"only {threshold.k} of {bits.size} entries are positive: the support has these, "
            f"not the {rule.k} asked for",
            SmallSupportWarning,
            stacklevel=2,
        )
    ties = threshold.ties if threshold.partial else bits.size
    return Support(kernels().emit(bits, threshold.bits, ties, threshold.k), bits.size)


def coverage_of(importance: Any, support: Support) -> float:
    """The share of an importance's mass that lies on a support, the C(K) of Algorithm 1.

    Args:
        importance: as for :func:`select_support`, shape ``(M,)``.
        support: of the same M.

    Raises:
        SpaceMismatch: the support is of another number of parameters.
        InvalidImportance: as for :func:`select_support`.
    """
    bits = _bits(importance)
    if support.num_parameters != bits.size:
        raise SpaceMismatch(
            f"the support is of {support.num_parameters} parameters, the importance of {bits.size}"
        )
    counts, low = kernels().histogram_mass(bits)
    _check(bits, counts)
    total = radix.total_mass(counts, low)
    if total == 0:
        raise InvalidImportance(
            f"all {bits.size} entries of the importance are zero", field="importance"
        )
    return radix.total_mass(*kernels().histogram_mass(bits[support.indices])) / total


def _locate(bits: Bits, rule: SelectionRule) -> radix.Threshold | None:
    within: Callable[[int], radix.Counts] = partial(kernels().histogram_within, bits)
    if rule.coverage is None:
        counts = kernels().histogram(bits)
        _check(bits, counts)
        return radix.locate_count(counts, rule.k, within)
    counts, low = kernels().histogram_mass(bits)
    _check(bits, counts)
    return radix.locate_coverage(counts, low, rule.coverage, rule.k, within)


def _bits(importance: Any) -> Bits:
    """The float32 bits of an importance, in place where they are float32 already."""
    array = _array(importance)
    if array.ndim != 1 or array.size == 0:
        raise InvalidImportance(
            f"an importance is a vector with an entry for each parameter, "
            f"this has shape {array.shape}",
            field="importance",
        )
    if array.dtype.kind != "f":
        raise InvalidImportance(
            f"an importance holds floats, this holds {array.dtype}", field="importance"
        )
    if array.dtype.itemsize > 4 and (array < 0).any():
        raise _refusal(array)  # before rounding can make a zero of it
    with np.errstate(over="ignore"):  # what overflows is refused as infinite
        return np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)


def _array(importance: Any) -> npt.NDArray[Any]:
    if not (hasattr(importance, "detach") and hasattr(importance, "cpu")):
        return np.asarray(importance)
    try:
        tensor = importance.detach().cpu()
        if tensor.is_floating_point() and tensor.element_size() < 4:
            tensor = tensor.float()  # exact, and numpy has no bfloat16
        array: npt.NDArray[Any] = tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise InvalidImportance(
            f"the importance is no plain tensor: {error}", field="importance"
        ) from error
    return array


def _check(bits: Bits, counts: radix.Counts) -> None:
    """Refuses what the histogram shows to be NaN, infinite or negative; -0.0 is zero."""
    suspect = counts[radix.INVALID :].copy()
    zeros = 0x8000 - radix.INVALID  # the bin of -0.0 and of the least negative denormals
    if suspect[zeros]:
        suspect[zeros] -= kernels().histogram_within(bits, 0x8000)[0]
    if suspect.any():
        raise _refusal(bits.view(np.float32))


def _refusal(array: npt.NDArray[Any]) -> InvalidImportance:
    first, count = -1, 0
    for at in range(0, array.size, 1 << 20):
        block = array[at : at + (1 << 20)]
        bad = np.flatnonzero(~((block >= 0) & (block < np.inf)))
        if bad.size and first < 0:
            first = at + int(bad[0])
        count += bad.size
    return InvalidImportance(
        f"importance[{first}] = {array[first]}: entries must be finite and not negative, "
        f"{count} of {array.size} are not",
        field="importance",
    )


def _count(value: Any, name: str, most: int | None) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise InvalidParameter(f"{name} must be an integer, not {value!r}", field=name) from None
    if isinstance(value, bool) or count < 1 or (most is not None and count > most):
        raise InvalidParameter(f"{name} must be 1 to {most or 'M'}, not {value!r}", field=name)
    return count


def _share(value: Any, name: str, num_parameters: int) -> int:
    """``floor(value * M)``, at least 1, of a float as the decimal that it prints as."""
    _ratio(value, name)
    written = value if isinstance(value, Rational | Decimal) else Decimal(str(float(value)))
    return max(1, math.floor(Fraction(written) * num_parameters))


def _ratio(value: Any, name: str) -> Fraction:
    """A number in (0, 1] as the exact rational that it is."""
    try:
        if isinstance(value, bool | str):
            raise TypeError
        ratio = Fraction(value if isinstance(value, Rational | Decimal) else float(value))
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(
            f"{name} must be a number in (0, 1], not {value!r}", field=name
        ) from None
    if not 0 < ratio <= 1:
        raise InvalidParameter(f"{name} must be in (0, 1], not {value!r}", field=name)
    return ratio


def _cap(value: Any, num_parameters: int) -> int:
    if isinstance(value, int) or hasattr(value, "__index__"):
        return min(_count(value, "k_max", None), num_parameters)
    return _share(value, "k_max", num_parameters)
