"""Blinding in torch operations is that of numpy's kernels, bit for bit; here on CPU tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from modelkin import Blinding, Layout, Support
from modelkin.errors import InvalidSupport
from modelkin.torch import blind_indices, signature_of


@pytest.mark.parametrize("m", [1, 2, 97, 65_537, 2**32, 2**40, 2**63 - 1])
def test_indices_on_a_device_are_blinded_alike(m: int) -> None:
    """Indices, and the signature of the result, are those of the support, blinded on the host."""
    blinding = Blinding("5a" * 32, m)
    drawn = np.random.default_rng(1).integers(0, m, 700, dtype=np.uint64)
    support = Support(np.unique(drawn), m)
    expected = blinding.blind(support)
    actual = blind_indices(torch.from_numpy(support.indices.astype(np.int64)), blinding)
    assert np.array_equal(expected.indices, actual.numpy())
    assert expected.signature(16) == signature_of(actual, m, num_perm=16)


def test_tensors_in_another_order_are_moved_first() -> None:
    """Where a layout is not sorted by name, the indices are put in that order, as on the host."""
    layout = Layout.of([("b", (50,)), ("a", (30, 10))])
    blinding, indices = Blinding("5a" * 32, layout), np.arange(3, 340, 5)
    expected = blinding.blind(Support(indices, 350))
    assert np.array_equal(expected.indices, blind_indices(torch.from_numpy(indices), blinding))


def test_indices_of_another_space_are_refused() -> None:
    """An index of M or more is named."""
    with pytest.raises(InvalidSupport, match="out of range for 5 parameters"):
        blind_indices(torch.tensor([1, 5]), Blinding("5a" * 32, 5))
