"""Fit the subspace of a client's samples.

Source: DFL2G, Eq. 10, and PACFL (Vahidian et al., AAAI 2023), with two corrections that the
measurements ask for: weights by energy, and a constant behind each sample. See docs/starting.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.privacy.gaussian import gaussian_sigma
from modelkin.core.subspaces.basis import Floats, top_of_moment, top_of_rows, unit_rows
from modelkin.core.subspaces.noise import noisy_moment, without_noise
from modelkin.core.subspaces.subspace import (
    CONSTANT,
    MAX_FEATURES,
    WHOLE,
    Block,
    Subspace,
    Weighting,
)
from modelkin.errors import InvalidParameter

__all__ = ["SAMPLES_PER_DIRECTION", "FewSamplesWarning", "fit_subspace"]

SAMPLES_PER_DIRECTION: Final = 20
"""Samples for one direction: with fewer, it shows who was among them (AUC .6 at the limit)."""

_CLASS_RANK: Final = 3
_WHOLE_RANK: Final = 10
_MAX_LABEL: Final = 2**31 - 1

Labels = npt.NDArray[np.int64]
_Found = tuple[int | None, Floats, Floats]
"""A label, directions as columns, and their energies."""


class FewSamplesWarning(UserWarning):
    """A class has too few samples for a direction, and was left out."""


@dataclass(frozen=True, slots=True)
class _Noise:
    """Noise on the moment of a block, and its source."""

    sigma: float
    rng: np.random.Generator


def fit_subspace(
    x: Any,
    labels: Any = None,
    *,
    rank: int = _CLASS_RANK,
    whole_rank: int = _WHOLE_RANK,
    constant: float = CONSTANT,
    weighting: Weighting = "spectrum",
    samples_per_direction: int = SAMPLES_PER_DIRECTION,
    epsilon: float | None = None,
    delta: float = 1e-5,
    classes: Iterable[int] | None = None,
    rng: np.random.Generator | None = None,
) -> Subspace:
    """The first directions of samples, of all together and of each class.

    What it shows of the samples, and to whom, is in docs/starting.md.

    Args:
        x: samples, shape ``(n, ...)``; what follows n is flattened to m features, 2 to 65,535. Use
            the same features everywhere: raw pixels, or a common encoder's output.
        labels: a class of each sample, 0 to 2^31 - 1; None for no blocks of classes.
        rank: the most directions of a class.
        whole_rank: the most directions of all samples.
        constant: appended to each sample at length 1, 0 to 100; 0 appends nothing. As the space has
            it.
        weighting: ``"spectrum"`` for weights by energy, ``"flat"`` for equal ones; as the space has
            it.
        samples_per_direction: so many samples allow one direction. A class with fewer is left out,
            with a warning. 1 allows all, and shows single samples.
        epsilon: adds noise that makes this differentially private in one sample more or less; half
            of it is for all samples and half for the classes where there are labels. Ranks follow
            no counts then. None adds no noise.
        delta: the probability with which ``epsilon`` may fail, above 0 and below 1.
        classes: all classes that may occur; needed with epsilon and labels, because which of them
            occur would show.
        rng: the generator of the noise; None for the system's entropy. A seed that others know
            undoes it.

    Raises:
        InvalidParameter: no samples, or too few; values that are not finite, or all zero; labels
            that are not as many integers; any other argument out of its range.
    """
    rows, codes = _check_rows(x, labels)
    _check_ranks(rank, whole_rank, samples_per_direction)
    if not 0.0 <= constant <= 100.0:
        raise InvalidParameter(f"constant must be 0 to 100, not {constant!r}", field="constant")
    if weighting not in ("spectrum", "flat"):
        message = f"weighting must be spectrum or flat, not {weighting!r}"
        raise InvalidParameter(message, field="weighting")
    if codes is None and classes is not None:
        raise InvalidParameter("classes need labels", field="classes")
    num_features = rows.shape[1]
    units = unit_rows(rows, float(np.float32(constant)))
    if epsilon is None:
        whole, by_class = _without_noise(units, codes, rank, whole_rank, samples_per_direction)
    else:
        declared = _declared_classes(codes, classes)
        share = 1 if declared is None else 2
        rng = np.random.default_rng() if rng is None else rng
        noise = _Noise(gaussian_sigma(epsilon / share, delta / share), rng)
        whole, by_class = _with_noise(units, codes, declared, rank, whole_rank, noise)
    blocks = (*_weigh(whole, weighting), *_weigh(by_class, weighting))
    noisy = epsilon is not None
    return Subspace(
        num_features,
        constant,
        weighting,
        blocks,
        epsilon if noisy else None,
        delta if noisy else None,
    )


def _without_noise(
    units: Floats, codes: Labels | None, rank: int, whole_rank: int, per_direction: int
) -> tuple[list[_Found], list[_Found]]:
    count = units.shape[0]
    if count < per_direction:
        raise InvalidParameter(
            f"{count} samples are too few: with fewer than {per_direction} a reader of the "
            f"fingerprint can see which samples were among them. Give more, add noise by epsilon, "
            f"or accept that by samples_per_direction=1",
            field="samples_per_direction",
        )
    whole: list[_Found] = [
        (WHOLE, *top_of_rows(units, min(whole_rank, count // per_direction))),
    ]
    if codes is None:
        return whole, []
    by_class: list[_Found] = []
    left_out = []
    for label in np.unique(codes).tolist():
        own = units[codes == label]
        allowed = min(rank, own.shape[0] // per_direction)
        if allowed:
            by_class.append((label, *top_of_rows(own, allowed)))
        else:
            left_out.append(label)
    if left_out:
        named = ", ".join(map(str, left_out[:10])) + (", ..." if len(left_out) > 10 else "")
        warnings.warn(
            f"{len(left_out)} classes have fewer than {per_direction} samples and are left out: "
            f"{named}",
            FewSamplesWarning,
            stacklevel=3,
        )
    return whole, by_class


def _with_noise(
    units: Floats,
    codes: Labels | None,
    declared: Sequence[int] | None,
    rank: int,
    whole_rank: int,
    noise: _Noise,
) -> tuple[list[_Found], list[_Found]]:
    whole: list[_Found] = [(WHOLE, *_noisy_top(units, whole_rank, noise))]
    if not whole[0][2].size:
        raise InvalidParameter("the noise leaves no direction: raise epsilon", field="epsilon")
    if codes is None or declared is None:
        return whole, []
    found = [(label, *_noisy_top(units[codes == label], rank, noise)) for label in declared]
    return whole, [each for each in found if each[2].size]


def _noisy_top(rows: Floats, rank: int, noise: _Noise) -> tuple[Floats, Floats]:
    columns, energies = top_of_moment(noisy_moment(rows, noise.sigma, noise.rng), rank)
    energies = without_noise(energies, noise.sigma, rows.shape[1])
    return columns[:, : energies.size], energies


def _declared_classes(codes: Labels | None, classes: Iterable[int] | None) -> list[int] | None:
    if codes is None:
        return None
    if classes is None:
        raise InvalidParameter(
            "epsilon with labels needs classes, all that may occur: which of them do would show",
            field="classes",
        )
    declared = sorted({_check_class(label) for label in classes})
    unknown = sorted(set(codes.tolist()) - set(declared))
    if unknown:
        raise InvalidParameter(f"class {unknown[0]} is not among classes", field="classes")
    return declared


def _check_class(label: Any) -> int:
    if isinstance(label, bool) or not isinstance(label, (int, np.integer)):
        raise InvalidParameter(f"a class is an integer, not {label!r}", field="classes")
    if not 0 <= label <= _MAX_LABEL:
        raise InvalidParameter(f"a class is 0 to {_MAX_LABEL}, not {label}", field="classes")
    return int(label)


def _weigh(found: Sequence[_Found], weighting: Weighting) -> tuple[Block, ...]:
    """Make blocks whose squared weights sum to 1 over all of them."""
    if not found:
        return ()
    total = sum(float(energies.sum()) for _, _, energies in found)
    count = sum(energies.size for _, _, energies in found)
    blocks = []
    for label, directions, energies in found:
        share = np.full(energies.size, 1.0 / count) if weighting == "flat" else energies / total
        columns = np.ascontiguousarray(directions.T, np.float32)
        # Shares below the smallest float32 would be weights of zero.
        weights = np.maximum(np.sqrt(share), 1e-12).astype(np.float32)
        blocks.append(Block(label, columns, weights))
    return tuple(blocks)


def _check_rows(x: Any, labels: Any) -> tuple[Floats, Labels | None]:
    """Return the rows in float64 without those that are zero, and their labels."""
    given = np.asarray(x)
    if given.ndim < 2 or given.dtype.kind not in "fiub":
        message = f"x must be numbers of shape (n, ...), not {given.dtype} of {given.shape}"
        raise InvalidParameter(message, field="x")
    if given.shape[0] == 0:
        raise InvalidParameter("x has no samples", field="x")
    features = math.prod(given.shape[1:])
    if not 2 <= features <= MAX_FEATURES:
        message = f"a sample must have 2 to {MAX_FEATURES} features, not {features}"
        raise InvalidParameter(message, field="x")
    rows = given.reshape(given.shape[0], features).astype(np.float64)
    if not np.isfinite(rows).all():
        at = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise InvalidParameter(f"sample {at} of x has a value that is not finite", field="x")
    codes = None if labels is None else _check_labels(labels, given.shape[0])
    kept = rows.any(axis=1)
    if not kept.any():
        raise InvalidParameter("all samples of x are zero", field="x")
    return rows[kept], None if codes is None else codes[kept]


def _check_labels(labels: Any, count: int) -> Labels:
    given = np.asarray(labels)
    if given.shape != (count,):
        message = f"labels must have shape ({count},), not {given.shape}"
        raise InvalidParameter(message, field="labels")
    if given.dtype.kind not in "iu":
        raise InvalidParameter(f"labels must be integers, not {given.dtype}", field="labels")
    if given.min() < 0 or given.max() > _MAX_LABEL:
        raise InvalidParameter(f"a label is 0 to {_MAX_LABEL}", field="labels")
    return given.astype(np.int64)


def _check_ranks(rank: int, whole_rank: int, per_direction: int) -> None:
    for name, value in (
        ("rank", rank),
        ("whole_rank", whole_rank),
        ("samples_per_direction", per_direction),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidParameter(
                f"{name} must be an integer from 1 on, not {value!r}", field=name
            )
