"""LoRA adapters on disk: differences by name, formed block by block, and their supports."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import modelkin
from modelkin.checkpoints import (
    Adapter,
    importance_chunks,
    open_checkpoint,
    select_from_checkpoint,
    weights_digest,
    write_support,
)
from modelkin.core.importance import Importance
from modelkin.core.selection.rule import SelectionRule
from modelkin.errors import InvalidCheckpoint, InvalidParameter, SpaceMismatch
from tests.sdk.adapters.folders import adapter_folder, difference, factors, random_factors
from tests.sdk.cli.files import save


def importance_of(folder: Path) -> Any:
    """All of an adapter's importance, which the product never has at once."""
    return np.concatenate([chunk.copy() for chunk in importance_chunks(open_checkpoint(folder))()])


def test_an_adapter_is_the_differences_of_its_targets(tmp_path: Path) -> None:
    """Its tensors have the names and shapes that they have in the base, sorted by name."""
    adapter = open_checkpoint(adapter_folder(tmp_path / "a", factors(random_factors(0))))
    assert isinstance(adapter, Adapter)
    assert [
        ("layers.0.q_proj.weight", (24, 16)),
        ("layers.0.v_proj.weight", (8, 16)),
        ("mlp.down.weight", (16, 40)),
    ] == [(tensor.name, tensor.shape) for tensor in adapter.layout.tensors]
    assert 24 * 16 + 8 * 16 + 16 * 40 == adapter.num_parameters
    assert "'org/base'" in adapter.notes[0]


@pytest.mark.parametrize("adapter", ["", "default"])
def test_the_importance_is_the_product_of_the_factors(tmp_path: Path, adapter: str) -> None:
    """It is |α/r BA| in float64, rounded to float32, by PEFT's names in files and in models."""
    pairs = random_factors(1)
    folder = adapter_folder(tmp_path / "a", factors(pairs, adapter))
    np.testing.assert_array_max_ulp(
        difference(pairs, 16 / 4).astype("f4"), importance_of(folder), maxulp=1
    )


@settings(max_examples=30)
@given(data=st.data())
def test_blocks_show_in_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Shapes, ranks, types, transposition and block sizes lead to the oracle's entries."""
    rank = data.draw(st.integers(1, 9), label="rank")
    shapes = {
        f"m{number}": (data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40)))
        for number in range(data.draw(st.integers(1, 3), label="modules"))
    }
    dtype = data.draw(st.sampled_from(["f2", "f4", "f8"]), label="dtype")
    pairs = {
        module: (a.astype(dtype), b.astype(dtype))
        for module, (a, b) in random_factors(rank, shapes, rank).items()
    }
    turned = data.draw(st.booleans(), label="fan_in_fan_out")
    folder = adapter_folder(
        tmp_path_factory.mktemp("a"),
        factors(pairs),
        r=rank,
        lora_alpha=1,
        fan_in_fan_out=turned,
        target_modules=sorted(shapes),
    )
    expected = {m: (b.T, a.T) for m, (a, b) in pairs.items()} if turned else pairs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("modelkin.core.adapters.updates.BLOCK_SIZE", data.draw(st.integers(1, 200)))
        patch.setattr("modelkin.core.adapters.updates.STRIPE_SIZE", data.draw(st.integers(1, 200)))
        found = importance_of(folder)
    oracle = difference(expected, 1 / rank).astype("f4")
    np.testing.assert_allclose(oracle, found, rtol=1e-6, atol=1e-12 if dtype == "f8" else 1e-7)


def test_an_embedding_has_its_rows_first(tmp_path: Path) -> None:
    """A is (r, tokens) and B is (width, r), and the base's weight is (tokens, width)."""
    a, b = random_factors(3)["mlp.down"]
    tensors = {
        "base_model.model.embed.lora_embedding_A": a,
        "base_model.model.embed.lora_embedding_B": b,
    }
    folder = adapter_folder(tmp_path / "a", tensors, target_modules=["embed"])
    assert [("embed.weight", (40, 16))] == [
        (tensor.name, tensor.shape) for tensor in open_checkpoint(folder).tensors
    ]
    oracle = difference({"embed": (b.T, a.T)}, 4.0).astype("f4")
    np.testing.assert_array_max_ulp(oracle, importance_of(folder), maxulp=1)


def test_ranks_and_alphas_of_modules_count(tmp_path: Path) -> None:
    """The scale is α/r with the module's own, or α/√r with rsLoRA."""
    wide = random_factors(4, {"layers.0.q_proj": (24, 16)}, rank=8)
    narrow = random_factors(5, {"mlp.down": (16, 40)}, rank=4)
    own: dict[str, Any] = {
        "rank_pattern": {"q_proj": 8},
        "alpha_pattern": {r"^layers\.\d+\.(q|k)_proj": 2},
    }
    for stable, scales in ((False, (2 / 8, 16 / 4)), (True, (2 / 8**0.5, 16 / 4**0.5))):
        folder = adapter_folder(
            tmp_path / str(stable), factors({**wide, **narrow}), use_rslora=stable, **own
        )
        oracle = np.concatenate([difference(wide, scales[0]), difference(narrow, scales[1])])
        np.testing.assert_array_max_ulp(oracle.astype("f4"), importance_of(folder), maxulp=1)


@pytest.mark.parametrize(
    ("fields", "alphas"),
    [
        ({"target_modules": "all-linear"}, (16, 16, 16)),
        ({"target_modules": r".*\.(q_proj|v_proj)|.*down"}, (16, 16, 16)),
        ({"target_modules": "all-linear", "exclude_modules": ["lm_head"]}, (16, 16, 16)),
        ({"layers_to_transform": [0], "layers_pattern": "layers"}, (16, 16, 16)),
        ({"alpha_pattern": {"^q_proj": 8}}, (16, 16, 16)),
        ({"alpha_pattern": {"^layers.0.q_proj": 8}}, (8, 16, 16)),
        ({"alpha_pattern": {"q_proj": 8, "layers.0.q_proj": 4}}, (8, 16, 16)),
        ({"alpha_pattern": {"layers.0.q_proj": 4, "q_proj": 8}}, (4, 16, 16)),
        ({"alpha_pattern": {"(q|v)_proj": 8}}, (8, 8, 16)),
    ],
)
def test_patterns_are_those_of_peft(
    tmp_path: Path, fields: dict[str, Any], alphas: tuple[int, ...]
) -> None:
    """The first pattern counts that a name ends with, or is; targets may be named in any way."""
    pairs = random_factors(6)
    oracle = np.concatenate(
        [
            difference({module: pairs[module]}, alpha / 4)
            for module, alpha in zip(sorted(pairs), alphas, strict=True)
        ]
    )
    folder = adapter_folder(tmp_path / "a", factors(pairs), **fields)
    np.testing.assert_array_max_ulp(oracle.astype("f4"), importance_of(folder), maxulp=1)


def test_an_adapter_under_another_name_and_one_below(tmp_path: Path) -> None:
    """The one nearest to the top is read, under any name, with an editor's mark before its
    configuration; the other one is given by its own folder.
    """
    folder = adapter_folder(tmp_path / "a", factors(random_factors(7)))
    below = adapter_folder(folder / "second", factors(random_factors(8)))
    expected = importance_of(folder), importance_of(below)
    (folder / "adapter_model.safetensors").rename(folder / "mine.safetensors")
    config = folder / "adapter_config.json"
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes())
    np.testing.assert_equal(expected, (importance_of(folder), importance_of(below)))


def test_rotated_factors_have_the_same_support(tmp_path: Path) -> None:
    """(A, B) and (RA, BR⁻¹) are one difference: the factors' supports differ, the adapters' not."""
    pairs = random_factors(6)
    rotation = np.linalg.qr(np.random.default_rng(7).normal(size=(4, 4)))[0]
    turned = {
        module: ((rotation @ a).astype("f4"), (b @ rotation.T).astype("f4"))
        for module, (a, b) in pairs.items()
    }
    folders = [adapter_folder(tmp_path / n, factors(p)) for n, p in (("a", pairs), ("b", turned))]
    rule = SelectionRule.of(1152, fraction=0.1)
    products = [select_from_checkpoint(open_checkpoint(folder), rule=rule) for folder in folders]
    assert modelkin.similarity(*products) >= 0.999
    flat = [np.concatenate([f.reshape(-1) for f in factors(p).values()]) for p in (pairs, turned)]
    by_factors = [modelkin.select_support(np.abs(values), fraction=0.1) for values in flat]
    assert modelkin.similarity(*by_factors) < 0.5


def test_the_difference_is_never_whole(tmp_path: Path) -> None:
    """A support of 8 million differences takes a few megabytes beside the selection's own."""
    small = open_checkpoint(adapter_folder(tmp_path / "small", factors(random_factors(8))))
    select_from_checkpoint(small)  # what is loaded at the first use is not counted
    pairs = random_factors(8, {"q_proj": (4096, 2048)})
    adapter = open_checkpoint(adapter_folder(tmp_path / "a", factors(pairs)))
    rule = SelectionRule.of(adapter.num_parameters, fraction=0.01)
    tracemalloc.start()
    try:
        select_from_checkpoint(adapter, rule=rule)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 25e6 < 4 * adapter.num_parameters


@pytest.mark.slow
def test_the_processor_does_not_show() -> None:
    """OpenBLAS sums in another order for every processor, which no difference may depend on."""
    code = (
        "import hashlib, numpy as np\n"
        "from modelkin.core.adapters import ArrayFactor, LowRankUpdate\n"
        "draw = np.random.default_rng(0).standard_normal\n"
        "a, b = (ArrayFactor(draw(shape, 'f4')) for shape in ((64, 400), (400, 64)))\n"
        "whole = np.concatenate(list(LowRankUpdate('w', a, b, 0.25, False).magnitudes()))\n"
        "print(hashlib.sha256(whole).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for core, threads in (("Nehalem", "1"), ("Haswell", "2"))
    }
    assert 1 == len(digests)


def test_a_file_of_the_support_is_that_in_memory(tmp_path: Path) -> None:
    """Writing streams the indices; both have one digest."""
    adapter = open_checkpoint(adapter_folder(tmp_path / "a", factors(random_factors(9))))
    rule = SelectionRule.of(adapter.num_parameters, fraction=0.1)
    written = write_support(tmp_path / "a.mksp", adapter, rule=rule)
    assert select_from_checkpoint(adapter, rule=rule).digest == written.digest


def test_tensors_of_the_base_are_excluded_by_name(tmp_path: Path) -> None:
    """Patterns name what the base has, not the factors."""
    folder = adapter_folder(tmp_path / "a", factors(random_factors(10)))
    kept = open_checkpoint(folder, ["layers.*"])
    assert ["mlp.down.weight"] == [tensor.name for tensor in kept.tensors]
    with pytest.raises(InvalidCheckpoint, match="exclude leaves out all 3 tensors"):
        open_checkpoint(folder, ["*"])


def test_a_base_must_have_the_targets(tmp_path: Path) -> None:
    """A base must fit by name and shape, and changes nothing in the support."""
    adapter = open_checkpoint(adapter_folder(tmp_path / "a", factors(random_factors(11))))
    whole = {"layers.0.q_proj.weight": (24, 16), "layers.0.v_proj.weight": (8, 16), "norm": (3,)}
    weights = {name: torch.ones(shape) for name, shape in whole.items()}
    lacking = open_checkpoint(save(tmp_path / "lacking.safetensors", weights))
    with pytest.raises(SpaceMismatch, match=r"targets 'mlp.down.weight', which its base lacking"):
        select_from_checkpoint(adapter, lacking)
    weights["mlp.down.weight"] = torch.ones(40, 16)
    turned = open_checkpoint(save(tmp_path / "turned.safetensors", weights))
    with pytest.raises(SpaceMismatch, match="fan_in_fan_out the wrong way round"):
        select_from_checkpoint(adapter, turned)
    weights["mlp.down.weight"] = torch.ones(16, 40)
    base = open_checkpoint(save(tmp_path / "base.safetensors", weights))
    plain, held = select_from_checkpoint(adapter), select_from_checkpoint(adapter, base)
    assert plain == held
    assert Importance("delta") == plain.origin.importance  # type: ignore[union-attr]
    assert Importance("delta", weights_digest(base, adapter.layout)) == held.origin.importance  # type: ignore[union-attr]


def test_an_adapter_is_no_base(tmp_path: Path) -> None:
    """It has differences, and nothing can be subtracted from them."""
    adapter = open_checkpoint(adapter_folder(tmp_path / "a", factors(random_factors(12))))
    with pytest.raises(InvalidParameter, match="a is an adapter, and a base has weights: give"):
        select_from_checkpoint(adapter, adapter)
    with pytest.raises(InvalidParameter, match="a is an adapter"):
        weights_digest(adapter)
