"""Float formats, and the least change of a base that explains a value which was rounded to one.

A model is often trained in float32 and stored in half precision. Its difference from a float32 base
is then mostly rounding, which is alike in all models of that base. Rounding moves a value by half a
step of its format at most. So a difference up to that says nothing, and what is beyond is training.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["FLOAT_FORMATS", "FloatFormat", "is_rounded", "least_changes"]

_EXPONENT: Final = 0x7F800000
"""The bits of a float32's exponent; as a float32 they are the power of two below its value."""


_BLOCK_SIZE: Final = 1 << 14
"""Values at a time: few enough for all that is computed of them to stay in the cache."""


class FloatFormat(NamedTuple):
    """A binary floating-point format.

    Attributes:
        mantissa: the bits of the mantissa, without the one that is not stored.
        least: the exponent of the least normal value.
    """

    mantissa: int
    least: int


FLOAT_FORMATS: Final = {
    "F64": FloatFormat(52, -1022),
    "F32": FloatFormat(23, -126),
    "F16": FloatFormat(10, -14),
    "BF16": FloatFormat(7, -126),
    "F8_E4M3": FloatFormat(3, -6),
    "F8_E5M2": FloatFormat(2, -14),
    "F8_E4M3FNUZ": FloatFormat(3, -7),
    "F8_E5M2FNUZ": FloatFormat(2, -15),
}
"""The formats of tensors, by their names in safetensors."""


def is_rounded(base: FloatFormat, stored: FloatFormat) -> bool:
    """Whether values of one format may be rounded where they are stored in another."""
    return (
        base.mantissa > stored.mantissa
        or base.least - base.mantissa < stored.least - stored.mantissa
    )


def least_changes(
    values: npt.NDArray[np.float32],
    base: npt.NDArray[np.float32] | npt.NDArray[np.float64],
    stored: FloatFormat,
    of_base: FloatFormat,
) -> npt.NDArray[np.float32]:
    """The least ``|d|`` for which ``base + d`` is stored as each value; 0 for what rounding does.

    Args:
        values: the stored values, all of them in the format ``stored``.
        base: the base's values, in the format ``of_base``.
        stored: the format of ``values``; float32 or smaller.
        of_base: the format of ``base``. Where it has no value between two of ``stored``, the
            difference is exact, and nothing is taken from it.
    """
    changes = np.empty(values.size, np.float32)
    for at in range(0, values.size, _BLOCK_SIZE):
        part = slice(at, at + _BLOCK_SIZE)
        _change(changes[part], values[part], base[part], stored, of_base)
    return changes


def _change(
    changes: npt.NDArray[np.float32],
    values: npt.NDArray[np.float32],
    base: npt.NDArray[np.float32] | npt.NDArray[np.float64],
    stored: FloatFormat,
    of_base: FloatFormat,
) -> None:
    bits = np.abs(values).view(np.uint32)
    bits -= np.abs(base) < bits.view(np.float32)  # below a power of two the step is the smaller one
    bits &= np.uint32(_EXPONENT)
    powers = bits.view(np.float32)
    steps = _steps(powers, stored)
    steps[_steps(powers, of_base) >= steps] = 0
    steps *= np.float32(0.5)
    changes[:] = np.abs(values - base)
    changes -= steps
    np.maximum(changes, 0, out=changes)


def _steps(powers: npt.NDArray[np.float32], form: FloatFormat) -> npt.NDArray[np.float32]:
    """The distance of a format's values beside each power of two."""
    least = np.float32(2.0 ** max(form.least, -126))
    steps: npt.NDArray[np.float32] = np.maximum(powers, least)
    steps *= np.float32(2.0**-form.mantissa)
    return steps
