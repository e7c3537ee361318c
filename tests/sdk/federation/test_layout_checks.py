"""One check of the arrays of a model, and one bound of whole numbers and weights."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import app
import modelkin
from modelkin.federation.layouts import MOST_EXACT, holds, misfit, other_layout

MODEL = {"w": np.zeros((2, 3), np.float32), "n": np.array(4)}


def test_the_bound_is_where_float64_begins_to_skip() -> None:
    """All whole numbers up to it are there, and the next one is not."""
    assert float(MOST_EXACT - 1) + 1 == float(MOST_EXACT) == MOST_EXACT
    assert float(MOST_EXACT + 1) != MOST_EXACT + 1
    assert not holds(np.dtype(np.int64), np.array([2.0**63]))
    assert holds(np.dtype(np.int64), np.array([float(MOST_EXACT)]))


def test_the_bound_is_written_once() -> None:
    """Everything that weighs clients imports it."""
    folders = [Path(str(each.__file__)).parent for each in (app, modelkin)]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    written = [p.name for p in paths if re.search(r"\b2(\.0)? ?\*\* ?53\b", p.read_text())]
    assert ["layouts.py"] == written


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"x": np.ones(1)}, "the model does not have 'x'"),
        ({"w": np.ones((3, 2))}, r"'w' has the shape \[3, 2\], not \[2, 3\]"),
        ({"w": np.full((2, 3), "a")}, "'w' is of <U1, not of numbers"),
    ],
)
def test_a_layout_is_names_shapes_and_numbers(change: dict[str, np.ndarray], why: str) -> None:
    """What has another layout is in no mean, with the same words."""
    found = other_layout({**MODEL, **change}, MODEL)
    assert found is not None
    assert re.search(why, found)
    assert found == misfit({**MODEL, **change}, MODEL)


def test_values_are_no_part_of_a_layout() -> None:
    """NaN is of the same layout, and in no mean."""
    broken = {**MODEL, "w": np.full((2, 3), np.nan)}
    assert other_layout(broken, MODEL) is None
    assert "NaN" in (misfit(broken, MODEL) or "")
