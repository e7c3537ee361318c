"""Constants are known by two strangers, or by several; nothing that was trained is one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from modelkin import Layout, Support, select_support
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.chance import tensor_sizes
from modelkin.core.similarity.constants import ConstantFinder, Witness
from modelkin.core.similarity.regularity import is_regular
from modelkin.core.similarity.tensor_probe import POSITIONS, TensorProbe
from tests.support.models.planted_tables import TABLES, drifted, network, support_of
from tests.support.models.planted_tensors import CONSTANTS, LAYOUT, children, strangers

Floats = npt.NDArray[np.float64]


def named(
    supports: Sequence[Support],
    layout: Layout = LAYOUT,
    families: Sequence[Hashable] | None = None,
    positions: int = POSITIONS,
) -> set[str]:
    """The tensors that the models show to be constant; each is of a family of its own."""
    probe = TensorProbe.of(tensor_sizes(layout), positions)
    witnesses: Mapping[Hashable, Witness] = {
        place: Witness(probe.read(PackedSupport.pack(each)), (families or range(99))[place])
        for place, each in enumerate(supports)
    }
    constant = ConstantFinder(probe).find(witnesses, lambda: layout.shapes).tolist()
    return {t.name for t, looks in zip(layout.tensors, constant, strict=True) if looks}


def of(*networks: Mapping[str, Floats]) -> tuple[list[Support], Layout]:
    """The supports of networks, and their layout."""
    layout = Layout.of((name, weights.shape) for name, weights in networks[0].items())
    return [support_of(each, layout) for each in networks], layout


@pytest.mark.parametrize(
    "table",
    [each if each == "mask" else pytest.param(each, marks=pytest.mark.slow) for each in TABLES],
)
def test_two_strangers_show_a_regular_table(table: str) -> None:
    """Masks, sinusoids, bases, windows and one-hot tables, and nothing else, and no kin show it."""
    one, other = (network(seed, table) for seed in (1, 2))
    assert {"table"} == named(*of(one, other))
    child = drifted(one, 3)
    assert set() == named(*of(one, child))
    assert {"table"} == named(*of(one, child, other))


def test_two_strangers_show_a_table_of_another_precision() -> None:
    """Sinusoids in half precision beside those in single precision have nearly the same indices."""
    one, other = (network(seed, "sinusoids") for seed in (1, 2))
    half = {**other, "table": other["table"].astype(np.float16).astype(np.float64)}
    assert {"table"} == named(*of(one, half))


@pytest.mark.parametrize("table", ["mask", "one-hot", "identity"])
def test_a_sample_of_a_large_layout_shows_it(table: str) -> None:
    """Of a layout that is larger than what is looked at, a stretch of each tensor is enough."""
    one, other = (network(seed, table) for seed in (1, 2))
    assert {"table"} == named(*of(one, other), positions=1 << 13)


def test_what_is_trained_and_frozen_is_no_constant() -> None:
    """Embeddings that a child keeps, or a family, while all else is new; and a bias in common."""
    base = network(1)
    family = [{**network(seed), "embed": base["embed"]} for seed in (2, 3, 4, 5, 6, 7)]
    assert set() == named(*of(base, family[0]))
    supports, layout = of(base, *family)
    assert set() == named(supports, layout, families=["base"] * 7)
    apart = [network(seed) for seed in (1, 2, 3, 4, 5, 6)]
    for each in apart:
        each["bias"][7] = 9.0
    assert set() == named(*of(*apart))


@pytest.mark.parametrize("constants", [CONSTANTS[:1], CONSTANTS[1:], CONSTANTS, ()])
def test_strangers_show_a_table_without_order(constants: Sequence[str]) -> None:
    """Five models of five families, and not four, nor any that declare one base."""
    for seed in range(5):
        models = strangers(np.random.default_rng(seed), 6, constants)
        assert set(constants) == named(models[:5])
        assert set() == named(models[:4])
        assert set() == named(models, families=["acme"] * 6)


def test_a_constant_is_named_where_thresholds_differ() -> None:
    """The more indices a model takes elsewhere, the fewer of the constant: nested sets, S of .8."""
    models = strangers(np.random.default_rng(6), 6, ["stft.basis"])
    cut = [
        Support.from_indices(np.delete(m.indices, np.arange(0, 10 * place)), m.num_parameters)
        for place, m in enumerate(models)
    ]
    assert {"stft.basis"} == named(cut)


@pytest.mark.parametrize(
    "trained", [["head"], ["conv1", "head"], ["conv1", "conv2", "norm", "head"], ["conv2"]]
)
def test_frozen_tensors_of_a_family_are_not_named(trained: Sequence[str]) -> None:
    """Fine-tunes that freeze some tensors are kin elsewhere, or their frozen half makes them so."""
    for seed in range(5):
        assert set() == named(children(np.random.default_rng(seed), 6, trained))


def test_a_new_head_on_a_frozen_backbone_names_nothing() -> None:
    """Heads at chance on a shared backbone, which is more than half of the parameters."""
    rng = np.random.default_rng(1)
    backbone = ["stft.basis", "conv1", "position", "conv2", "norm"]
    assert set() == named(strangers(rng, 6, backbone))


def test_constants_are_named_beside_a_family() -> None:
    """In a space of kin and strangers the pairs of strangers decide."""
    base, *others = strangers(np.random.default_rng(2), 8, CONSTANTS[:1])
    assert {"stft.basis"} == named([*[base] * 4, *others])


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(300, 64), (64, 3, 7, 7), (300,), (64, 64)])
@pytest.mark.parametrize("share", [0.03, 0.3, 0.9])
def test_what_was_trained_has_no_order(shape: tuple[int, ...], share: float) -> None:
    """The top entries of random weights, also of columns of unlike scales, are not regular."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        weights = np.abs(rng.normal(size=shape))
        for values in (weights, weights * np.exp(rng.normal(size=shape[-1]))):
            bits = (values >= np.quantile(values, 1 - share)).ravel()
            assert not is_regular(bits, shape)


def test_a_probe_reads_what_lists_and_bitmaps_hold() -> None:
    """Stretches of a sparse and of a dense support have the counts of the indices in them."""
    layout = Layout.of(
        [("a", (40, 50)), ("none", (0,)), ("b", (3000,)), ("c", (7,)), ("d", (2, 9999))]
    )
    probe = TensorProbe.of(tensor_sizes(layout), 4000)
    assert (probe.sizes < [tensor.size for tensor in layout.tensors]).any()
    rng = np.random.default_rng(1)
    for k in (100, 12_000):
        indices = np.sort(rng.choice(layout.num_parameters, k, replace=False))
        support = Support.from_indices(indices, layout.num_parameters)
        probed = probe.read(PackedSupport.pack(support))
        ends = probe.begins + probe.sizes
        inside = [
            indices[(indices >= begin) & (indices < end)]
            for begin, end in zip(probe.begins, ends, strict=True)
        ]
        assert [each.size for each in inside] == probed.counts.tolist()
        for tensor, each in enumerate(inside):
            bits = np.flatnonzero(probe.bits(probed, tensor))
            assert (each - probe.begins[tensor]).tolist() == bits.tolist()


def test_the_choice_of_indices_is_that_of_a_selection() -> None:
    """The planted supports are what the SDK selects."""
    made = network(1, "mask")
    [support], layout = of(made)
    flat = np.abs(np.concatenate([w.ravel() for w in made.values()]))
    assert support == select_support(flat, kind="weight", layout=layout)
