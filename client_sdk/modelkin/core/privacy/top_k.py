"""``private_support``: the K largest of noised sums, differentially private in a single sample.

Noise is added once, to the sums over the samples, and the K largest of what comes out are the
support. One sample more or less moves the sums by its own vector, whose length is at most the
clip. So Gaussian noise makes the noised sums (epsilon, delta)-private (Balle and Wang, "Improving
the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8: necessary and sufficient).
What is computed from these alone, such as their K largest, is as private (Dwork and Roth, "The
algorithmic foundations of differential privacy", 2014, Proposition 2.1). The noise does not grow
with K, and it leaves nothing else of the sums.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.importance import origin_of
from modelkin.core.indices import index_dtype
from modelkin.core.privacy.gaussian import gaussian_sigma
from modelkin.core.privacy.noise import Draws
from modelkin.core.support import Support
from modelkin.errors import InvalidImportance, InvalidParameter

__all__ = ["private_support"]

Floats = npt.NDArray[np.float64]

_MAX_SUM = 2.0**31
"""The largest sum of integers to which noise and tie breaks are added without rounding."""


def private_support(
    sums: Any,
    k: int,
    epsilon: float,
    delta: float,
    clip: float,
    *,
    samples: int | None = None,
    seed: int | None = None,
) -> Support:
    """The K largest of noised sums over samples: (epsilon, delta)-private in one sample.

    Private means: with one sample more or less, every set of supports is at most e^epsilon times
    as likely, plus delta. It holds if each sample's vector depends on no other sample and has an
    L2 norm of at most ``clip``, and if k and clip do not come from these samples. There is no
    usual epsilon: what some cost in neighbours found is in docs/privacy.md.

    The support always has K indices; a parameter that no sample moves may be among them. Equal
    sums are ordered by chance. No noised number leaves, so there are no low bits to read
    (Mironov, CCS 2012). Of integer sums, such as votes, the noise is rounded to integers, which is
    as private as the exact noise; only the likelihoods of these integers are of float64's
    precision. Of other sums, their own rounding is not counted, some 2^-53 a sample.

    Args:
        sums: over the samples, of the vector of each, shape ``(M,)``: an array or a tensor, such
            as :func:`modelkin.torch.vote_counts` gives it.
        k: 1 to M.
        epsilon: above 0, at most 100.
        delta: above 0 and below 1; well below 1 over the number of samples.
        clip: the most that the L2 norm of a sample's vector can be; for V votes, ``V ** 0.5``.
        samples: n, to find sums that cannot be of n such vectors; it is not part of the result.
        seed: the seed of the noise, for tests. **It voids the claim**: who knows the seed knows the
            noise.

    Raises:
        InvalidImportance: the sums are not a vector of finite numbers, or are longer than
            ``samples * clip``.
        InvalidParameter: another argument is out of its range.

    Source: the papers named in the module, in one shot as Durfee and Rogers (NeurIPS 2019) and
    Qiao, Su and Zhang (ICML 2021) have it, with Gaussian noise in place of Gumbel's or Laplace's.
    """
    values, whole = _check_sums(sums)
    k = _check_count("k", k, values.size)
    if isinstance(clip, bool) or not isinstance(clip, (int, float)) or not 0 < clip < math.inf:
        raise InvalidParameter(f"clip must be a number above 0, not {clip!r}", field="clip")
    if samples is not None:
        _check_length(values, _check_count("samples", samples), clip)
    sigma = clip * gaussian_sigma(epsilon, delta)
    if whole and not sigma * 9 + np.abs(values).max() < _MAX_SUM:
        raise InvalidParameter(
            "integer sums with noise exceed 2^31: raise epsilon or lower the clip", field="clip"
        )
    noised = _add_noise(values, sigma, Draws(seed), whole)
    chosen: Any = np.sort(np.argpartition(noised, -k)[-k:]).astype(index_dtype(values.size))
    return Support.trusted(chosen, values.size, origin=origin_of(sums))


def _add_noise(values: Floats, sigma: float, draws: Draws, whole: bool) -> Floats:
    noise = draws.gaussian(values.size, sigma)
    if not whole:
        return values + noise
    # An integer plus rounded noise is the rounded sum of both: a function of what is private.
    return values + np.rint(noise) + draws.tie_breaks(values.size)


def _check_sums(sums: Any) -> tuple[Floats, bool]:
    """Check sums; return them in float64, and whether they are integers."""
    if hasattr(sums, "detach") and hasattr(sums, "cpu"):  # a tensor, without torch
        sums = sums.detach().cpu().numpy()
    array = np.asarray(sums)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iuf":
        raise InvalidImportance(
            f"sums are a vector of numbers, not {array.dtype} of shape {array.shape}", field="sums"
        )
    values = array.astype(np.float64)
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InvalidImportance(f"sums[{at}] = {values[at]} is not finite", field="sums")
    return values, array.dtype.kind in "iu"


def _check_count(name: str, value: Any, most: int | None = None) -> int:
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or (most is not None and number > most):
        until = "" if most is None else f" to {most}"
        raise InvalidParameter(
            f"{name} must be an integer from 1{until}, not {value!r}", field=name
        )
    return number


def _check_length(values: Floats, samples: int, clip: float) -> None:
    length = float(np.linalg.norm(values))
    if length > samples * clip * (1 + 1e-6):
        raise InvalidImportance(
            f"sums of length {length:g} are not of {samples} vectors of at most {clip:g} each: "
            f"some vector was not clipped, or samples or clip is another's",
            field="sums",
        )
