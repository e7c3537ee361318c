"""The values that the client returns: sequences, tables, matrices."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from modelkin.errors import MissingExtra
from modelkin.types.kinship import Donor, DonorExplanation, Donors
from modelkin.types.models import ModelInfo
from modelkin.types.paging import UNCHANGED
from modelkin.types.search import Neighbor, Neighbors, Overlap, SimilarityMatrix
from modelkin.types.spaces import TensorOverlap

B = Neighbor("b", 0.5, 1 / 3, "exact", 0.0, 2)
C = Neighbor("c", 0.25, 1 / 7, "signature", 0.04, None)
FOUND = Neighbors(items=(B, C), model="a", method="exact", candidates=2, degraded=False)


def test_neighbors_are_a_sequence() -> None:
    """Neighbours iterate, count, index and slice like a tuple of their items."""
    assert list(FOUND) == [B, C]
    assert (len(FOUND), FOUND[0], FOUND[1:], C in FOUND) == (2, B, (C,), True)
    assert not dataclasses.replace(FOUND, items=())


@pytest.mark.parametrize("value", [FOUND, B, Donors(items=(), target=None, method="similarity")])
def test_results_are_frozen_values(value: Any) -> None:
    """Results hash, compare, pickle and refuse to be changed."""
    assert value == pickle.loads(pickle.dumps(value))
    assert isinstance(hash(value), int)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, "other")


def test_a_model_hashes_whatever_its_attributes() -> None:
    """Attributes hold lists and objects, and a model is hashable nonetheless."""
    now = datetime.now(UTC)
    model = ModelInfo(
        space="s",
        model="m",
        kind="support",
        support_size=3,
        revision=1,
        version=1,
        tags=(),
        attributes={"a": [1]},
        verified=True,
        created_at=now,
        updated_at=now,
        etag="e",
    )
    assert model in {dataclasses.replace(model, etag=None)}


def test_neighbors_become_a_table() -> None:
    """A row each in order, the fields as columns, no shared indices where they are estimated."""
    frame = FOUND.to_pandas()
    columns = ["model", "similarity", "jaccard", "estimate", "standard_error", "shared_indices"]
    columns += ["expected", "kappa", "ordered_similarity", "covered"]
    columns += ["unrelated", "log10_p", "identical"]
    assert columns == list(frame.columns)
    assert ["b", 0.5, 1 / 3, "exact", 0.0, 2.0] == list(frame.loc[0])[:6]
    assert [False, True] == list(frame.shared_indices.isna())


def test_empty_tables_keep_their_columns() -> None:
    """No donor and no layout still make tables of the right columns."""
    donors = Donors(items=(), target="a", method="similarity").to_pandas()
    tensors = Overlap("a", "b", 0, 0.0, 0.0, None).to_pandas()
    reasons = [f.name for f in dataclasses.fields(DonorExplanation)]
    own = [f.name for f in dataclasses.fields(Donor) if f.name != "why"]
    assert [*own, *reasons] == list(donors.columns)
    assert [f.name for f in dataclasses.fields(TensorOverlap)] == list(tensors.columns)
    assert (0, 0) == (len(donors), len(tensors))


def test_a_matrix_becomes_a_named_table() -> None:
    """The names label rows and columns."""
    frame = SimilarityMatrix(("a", "b"), np.array([[1.0, 0.25], [0.25, 1.0]]), ()).to_pandas()
    assert (["a", "b"], ["a", "b"]) == (list(frame.index), list(frame.columns))
    assert 0.25 == frame.loc["a", "b"]


def test_a_matrix_is_copied_out() -> None:
    """Writing to what to_numpy gives does not change the result."""
    matrix = SimilarityMatrix(("a", "b"), np.eye(2), ())
    matrix.to_numpy()[0, 1] = 0.5
    assert np.array_equal(np.eye(2), matrix.values)


def test_missing_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pandas a table is an ImportError that names the extra."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'modelkin\[pandas\]'"):
        FOUND.to_pandas()


def test_unchanged_is_not_none() -> None:
    """The default of update_model differs from None, which clears, and reads as what it is."""
    assert UNCHANGED is not None
    assert "UNCHANGED" == repr(UNCHANGED)
