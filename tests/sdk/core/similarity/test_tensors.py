"""Overlaps by tensor over pairs: constants are named, and nothing that was trained."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import Layout, Support
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity import overlap, tensors
from modelkin.core.similarity.chance import tensor_sizes
from tests.support.models.planted_tensors import CONSTANTS, LAYOUT, children, strangers

M = 700
INDICES = st.sets(st.integers(0, M - 1), min_size=1, max_size=40)
DENSE = st.sets(st.integers(0, M - 1), min_size=200, max_size=500)


def agreement(supports: Sequence[Support]) -> tensors.TensorAgreement:
    """The agreement of all pairs."""
    pairs = list(itertools.combinations(supports, 2))
    a, b = (np.stack([LAYOUT.counts(pair[i].indices) for pair in pairs]) for i in (0, 1))
    shared = np.stack([LAYOUT.counts(overlap.intersection(*pair)) for pair in pairs])
    return tensors.agreement(tensor_sizes(LAYOUT), a, b, shared)


def named(supports: Sequence[Support]) -> set[str]:
    """The tensors that look constant over all pairs."""
    constant = agreement(supports).constant.tolist()
    return {t.name for t, looks in zip(LAYOUT.tensors, constant, strict=True) if looks}


@pytest.mark.slow
@settings(max_examples=40)
@given(INDICES | DENSE, INDICES | DENSE, st.sets(st.integers(0, M), max_size=6), st.integers(1, 9))
def test_shared_indices_are_counted_tensor_by_tensor(
    one: set[int], other: set[int], cuts: set[int], block: int
) -> None:
    """Of lists, bitmaps and one of each, in blocks of any size, the counts are those of sets."""
    edges = [0, *sorted(cuts), M]
    layout = Layout.of((f"t{i}", [b - a]) for i, (a, b) in enumerate(itertools.pairwise(edges)))
    expected = [len(one & other & set(range(a, b))) for a, b in itertools.pairwise(edges)]
    packed = [PackedSupport.pack(Support.from_indices(sorted(s), M)) for s in (one, other)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "_BLOCK_WORDS", block)
        assert expected == tensors.shared_by_tensor(packed[0], packed[1], layout).tolist()


@pytest.mark.parametrize("constants", [CONSTANTS[:1], CONSTANTS[1:], CONSTANTS, ()])
def test_constants_of_strangers_are_named(constants: Sequence[str]) -> None:
    """One or several, and no tensor that is trained or held whole; they fake kinship."""
    for seed in range(5):
        models = strangers(np.random.default_rng(seed), 6, constants)
        assert set(constants) == named(models)
    found = agreement(models)
    within = dict(zip((t.name for t in LAYOUT.tensors), found.similarity.tolist(), strict=True))
    assert all(within[name] == 1.0 for name in constants)
    assert within["conv2"] < 0.2


def test_a_constant_is_named_where_thresholds_differ() -> None:
    """The more indices a model takes elsewhere, the fewer of the constant: nested sets, S of .8."""
    rng = np.random.default_rng(6)
    models = strangers(rng, 6, ["stft.basis"])
    cut = [
        Support.from_indices(np.delete(m.indices, np.arange(0, 10 * place)), m.num_parameters)
        for place, m in enumerate(models)
    ]
    assert {"stft.basis"} == named(cut)
    assert 0.75 < agreement(cut).similarity[0] < 0.95


@pytest.mark.parametrize(
    "trained", [["head"], ["conv1", "head"], ["conv1", "conv2", "norm", "head"], ["conv2"]]
)
def test_frozen_tensors_of_a_family_are_not_named(trained: Sequence[str]) -> None:
    """Fine-tunes that freeze some tensors are kin elsewhere, or their frozen half makes them so."""
    for seed in range(5):
        assert not named(children(np.random.default_rng(seed), 6, trained))


def test_a_new_head_on_a_frozen_backbone_names_nothing() -> None:
    """Heads at chance on a shared backbone, which is more than half of the parameters."""
    rng = np.random.default_rng(1)
    assert not named(strangers(rng, 6, ["stft.basis", "conv1", "position", "conv2", "norm"]))


def test_constants_are_named_beside_a_family() -> None:
    """In a space of kin and strangers the pairs of strangers decide."""
    rng = np.random.default_rng(2)
    base, *others = strangers(rng, 8, CONSTANTS[:1])
    copies = [base] * 4
    assert {"stft.basis"} == named([*copies, *others])


def test_few_pairs_name_nothing() -> None:
    """Two models are one pair: no rule."""
    models = strangers(np.random.default_rng(3), 2, CONSTANTS)
    assert not named(models)
    assert [1] * 3 == agreement(models).strangers[[1, 3, 5]].tolist()


def test_what_is_held_whole_says_nothing() -> None:
    """In a tensor that every support holds whole S is 1 by chance alone: no kappa."""
    found = agreement(strangers(np.random.default_rng(4), 4, ()))
    [norm] = [place for place, tensor in enumerate(LAYOUT.tensors) if tensor.name == "norm"]
    assert 1.0 == found.similarity[norm]
    assert np.isnan(found.kappa[norm])
    assert not found.constant[norm]
    assert 0 == found.strangers[norm]
    assert abs(found.kappa[3]) < 0.05
