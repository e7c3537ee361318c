"""Signatures of a selection, without its indices: those of the selected support."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import modelkin
from modelkin.core.layout import Layout
from modelkin.core.selection.entries import HostEntries
from modelkin.core.sketching.probe_tables import Permutations, ProbeTables, Table, make_table
from modelkin.errors import InvalidImportance, InvalidParameter, InvalidSignature

LAYOUT = Layout.of([("a", (600,)), ("b", (1, 150)), ("c", (250,))])
HOW: list[dict[str, Any]] = [
    {"k": 300},
    {"fraction": 0.2},
    {"coverage": 0.7, "k_max": 0.9},
    {"layout": LAYOUT, "budgets": {"a": 0.3, "c": 20}},
    {"layout": LAYOUT, "budgets": 0.5},
    {"layout": LAYOUT, "exclude": ["b"], "fraction": 0.5},
]


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every signature is probed, in tables that hold a member of most permutations."""

    def table_for(self: ProbeTables, drawn: Permutations, k: int, question_work: float) -> Table:
        return make_table(drawn, min(drawn.num_parameters, drawn.depth(k)))

    monkeypatch.setattr(ProbeTables, "table_for", table_for)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW, ids=lambda how: "+".join(how))
@given(
    levels=st.integers(1, 2000),
    zeros=st.floats(0, 0.3),
    seed=st.integers(0, 2**32 - 1),
    num_perm=st.integers(1, 70),
)
@pytest.mark.filterwarnings("ignore::modelkin.SmallSupportWarning")
def test_it_is_the_signature_of_the_selected_support(
    each_kernels: ModuleType,
    probed: None,
    how: dict[str, Any],
    levels: int,
    zeros: float,
    seed: int,
    num_perm: int,
) -> None:
    """For every way to choose K, however many entries tie, and beside zeros of either sign."""
    rng = np.random.default_rng(seed)
    importance = rng.integers(1, levels, 1000, endpoint=True).astype(np.float32)
    importance[rng.random(1000) < zeros] = -0.0
    importance[rng.random(1000) < zeros] = 0.0
    importance[[1, 700]] = 1
    expected = modelkin.select_support(importance, **how).signature(num_perm, seed)
    assert expected == modelkin.select_signature(importance, num_perm=num_perm, seed=seed, **how)


def test_no_index_is_made(probed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tables hold a member of every permutation, entries are read, not listed."""
    importance = np.random.default_rng(0).random(100_000, np.float32)
    expected = modelkin.select_support(importance, fraction=0.2).signature()

    def refuse(*_: object) -> None:
        raise AssertionError("indices were made")

    monkeypatch.setattr(HostEntries, "emit", refuse)
    assert expected == modelkin.select_signature(importance, fraction=0.2)


def test_the_origin_is_kept() -> None:
    """Kind of importance and layout are those of the support."""
    importance = np.arange(1.0, 1001, dtype=np.float32)
    how: dict[str, Any] = {"layout": LAYOUT, "kind": "weight", "k": 10}
    expected = modelkin.select_support(importance, **how).origin
    assert expected is not None
    assert expected == modelkin.select_signature(importance, **how).origin


def test_what_is_wrong_is_said_before_the_work() -> None:
    """h, seed and scheme, the choice of K and the importance are refused as elsewhere."""
    ones = np.ones(9, np.float32)
    with pytest.raises(InvalidSignature, match="num_perm must be 1 to 4096"):
        modelkin.select_signature(-ones, k=1, num_perm=0)
    with pytest.raises(InvalidParameter, match="k must be 1 to 9"):
        modelkin.select_signature(ones, k=10)
    with pytest.raises(InvalidImportance, match="negative"):
        modelkin.select_signature(-ones, k=1)
