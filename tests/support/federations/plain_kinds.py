"""Sites of two kinds without a network: what each trains and finds important, in plain numpy.

Odd sites are of one kind, and even ones of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Model", "draws", "importance", "initial", "trained"]

Model = dict[str, np.ndarray[Any, Any]]


def initial() -> Model:
    """The weights that a federation begins with."""
    rng = np.random.default_rng(0)
    return {
        "body.w": rng.normal(size=(20, 9)).astype(np.float32),
        "head.b": rng.normal(size=20).astype(np.float32),
    }


def draws(name: str) -> tuple[np.random.Generator, np.random.Generator]:
    """What a site's kind has in common, and what is its own."""
    number = int(name.removeprefix("site-"))
    return np.random.default_rng(number % 2), np.random.default_rng(100 + number)


def importance(name: str) -> np.ndarray[Any, Any]:
    """What a site finds important at any weights."""
    common, own = draws(name)
    return np.asarray(common.random(200) ** 4 + 0.05 * own.random(200), np.float32)


def trained(params: Mapping[str, np.ndarray[Any, Any]], name: str) -> Model:
    """A step towards what the site's kind has in common, and some of its own."""
    common, own = draws(name)
    found = {}
    for array, values in sorted(params.items()):
        step = 0.3 * common.normal(size=values.shape) + 0.01 * own.normal(size=values.shape)
        found[array] = np.asarray(values + step).astype(values.dtype)
    return found
