"""Anatomies in rows for people: names read as kinds and layers, and few rows for many tensors."""

from __future__ import annotations

import numpy as np
import pytest

from modelkin.core.fingerprints.anatomy import Anatomy, anatomy
from modelkin.core.fingerprints.fingerprint import Fingerprint, NotComparable
from modelkin.core.fingerprints.labels import NumberedName, label, ranges, short_kinds
from modelkin.core.fingerprints.rows import slices
from tests.sdk.core.fingerprints.planted import DERIVED, LAYERS, Tensors, fingerprint, model

LABELS = {
    "model.layers.31.self_attn.q_proj.weight": "layers.31.self_attn.q_proj",
    "model.layers.3.mlp.experts.7.up_proj.weight": "layers.3.mlp.experts.7.up_proj",
    "model.embed_tokens.weight": "model.embed_tokens",
    "blocks/12/attn/kernel": "blocks/12/attn/kernel",
    "val_105_q": "val_105_q",
    "resnet.layer1.0.conv1.weight": "layer1.0.conv1",
    "4.weight": "4.weight",
    "weight": "weight",
    "layer.12345678901.w": "layer.12345678901.w",
}


@pytest.mark.parametrize("name", LABELS)
def test_a_name_says_the_layer_and_the_kind(name: str) -> None:
    """Numbers between separators are places; digits of a word, or too many, are not."""
    place = NumberedName.of(name)
    short = short_kinds([place.kind])[place.kind]
    assert LABELS[name] == label(short, [[number] for number in place.numbers])


def test_names_that_would_be_one_keep_all_their_words() -> None:
    """Encoders and decoders have the same kinds."""
    names = ("encoder.block.0.q.weight", "decoder.block.0.q.weight", "encoder.block.0.o.weight")
    places = [NumberedName.of(name) for name in names]
    short = short_kinds(place.kind for place in places)
    assert ["encoder.block.0.q.weight", "decoder.block.0.q.weight", "block.0.o"] == [
        label(short[place.kind], [[0]]) for place in places
    ]


def test_numbers_are_told_as_ranges() -> None:
    """In any order, each once."""
    assert "0-2, 5, 7-8" == ranges([8, 0, 1, 2, 2, 7, 5])


@pytest.fixture(scope="module")
def base() -> Tensors:
    return model(0)


@pytest.fixture(scope="module")
def hub(base: Tensors) -> dict[str, Fingerprint]:
    return {"base": fingerprint(base), "stranger": fingerprint(model(1))}


def told(found: Anatomy) -> list[tuple[str, str | None, str]]:
    return [(row.tensors, row.model, row.sources) for row in found.rows]


def test_the_layers_of_a_kind_share_a_row(base: Tensors, hub: dict[str, Fingerprint]) -> None:
    """Each kind has one, with the share and the weakest P of all its layers."""
    found = anatomy(fingerprint(DERIVED["8 bits"](base), 8), hub)
    kinds = [("layers 0-3 " + kind) for kind in ("q", "k", "v", "o", "up", "down")]
    assert [(kind, "base", kind) for kind in ["embed", *kinds]] == told(found)
    made = found.rows
    assert [1] + [LAYERS] * 6 == [row.count for row in made]
    assert all(row.same and row.share is not None and 0.7 < row.share < 1 for row in made)
    weakest = max(t.sources[0].log10_p for t in found.tensors if t.tensor.name.endswith("up"))
    assert weakest == made[5].log10_p


def test_layers_that_moved_have_rows_of_their_own(
    base: Tensors, hub: dict[str, Fingerprint]
) -> None:
    """An up-scaled model has the layers of its base twice, the second time further on."""
    found = anatomy(fingerprint(DERIVED["up-scaled"](base)), hub)
    assert ("layers 0-2 q", "base", "layers 0-2 q") == told(found)[1]
    assert ("layers 3-5 q", "base", "layers 1-3 q") == told(found)[2]
    assert [True, False] == [row.same for row in found.rows[1:3]]


def test_experts_and_fused_tensors_name_all_their_sources() -> None:
    """Numbers of experts are told as those of layers are, and parts by their common words."""
    draw = np.random.default_rng(0)
    parts = {f"layers.1.{k}.weight": draw.standard_normal((256, 64), np.float32) for k in "qkv"}
    up = draw.standard_normal((256, 64), np.float32)
    child = {"h.1.qkv": np.concatenate([*parts.values()])}
    child |= {f"h.1.experts.{expert}.up": up for expert in range(4)}
    found = anatomy(fingerprint(child), {"base": fingerprint(parts | {"layers.1.up.weight": up})})
    assert [
        ("h.1.qkv", "base", "layers.1.k, q, v"),
        ("h 1 experts 0-3 up", "base", "layers.1.up"),
    ] == told(found)


def test_a_sample_of_fused_tensors_makes_one_row() -> None:
    """Whether all parts of a layer are found, or one of them."""
    draw = np.random.default_rng(0)
    parts = {
        f"layers.{i}.{k}": draw.standard_normal((64, 64), np.float32)
        for i in range(3)
        for k in ("q", "k", "v")
    }
    layers = {i: np.concatenate([parts[f"layers.{i}.{k}"] for k in "qkv"]) for i in range(3)}
    layers[1][64:] = draw.standard_normal((128, 64))  # of this one only q is left
    child = {f"layers.{i}.qkv": values for i, values in layers.items()}
    found = anatomy(fingerprint(child), {"base": fingerprint(parts)})
    single = next(each for each in found.tensors if each.tensor.name == "layers.1.qkv")
    assert ["layers.1.q"] == [source.tensor.name for source in single.sources]
    assert [("layers 0-2 qkv", "base", "layers 0-2 k, q, v")] == told(found)


def test_many_kinds_with_the_same_layers_share_a_row() -> None:
    """Where a row for each kind would not fit on a screen."""
    draw = np.random.default_rng(0)
    kinds = ("q", "k", "v", "o", "up", "down", "gate")
    models = [
        {f"layers.{i}.{kind}": draw.standard_normal((64, 64), np.float32) for kind in kinds}
        for i in range(LAYERS)
    ]
    mixed = {name: values for tensors in models for name, values in tensors.items()}
    of = {f"m{i}": fingerprint(tensors) for i, tensors in enumerate(models)}
    assert [(f"layers.{i}, 7 kinds", f"m{i}", f"layers.{i}") for i in range(LAYERS)] == told(
        anatomy(fingerprint(mixed), of)
    )


def test_a_sibling_does_not_take_the_tensors_of_a_parent(base: Tensors) -> None:
    """Where a sample does not tell which of two is nearer, the first parent is named."""
    draw = np.random.default_rng(3)
    child, sibling = (
        {k: v + np.float32(size) * v.std() * draw.standard_normal(v.shape) for k, v in base.items()}
        for size in (0.05, 0.01)
    )
    relatives = {"base": fingerprint(base), "sibling": fingerprint(sibling)}
    found = anatomy(fingerprint(child, 8), relatives)
    best = {each.sources[0].model for each in found.tensors if each.sources}
    assert {"base", "sibling"} == best
    assert {found.parents[0].model} == {row.model for row in found.rows}


def test_a_source_that_explains_a_tensor_stands_alone() -> None:
    """Experts that began as one are alike, and each comes from itself."""
    draw = np.random.default_rng(0)
    common = draw.standard_normal((256, 64), np.float32)
    experts = {
        f"layers.0.experts.{i}.up": common
        + np.float32(0.05) * draw.standard_normal((256, 64), np.float32)
        for i in range(3)
    }
    found = anatomy(fingerprint(experts), {"base": fingerprint(experts)})
    assert {3} == {len(each.sources) for each in found.tensors}
    [row] = found.rows
    assert ("layers 0 experts 0-2 up", "base", True) == (row.tensors, row.model, row.same)


def test_what_is_not_found_has_no_source(base: Tensors, hub: dict[str, Fingerprint]) -> None:
    """It is told beside what is, kind by kind."""
    found = anatomy(fingerprint(base | {"layers.2.up": model(7)["layers.2.up"]}), hub)
    assert [("layers 0-1, 3 up", "base", "layers 0-1, 3 up"), ("layers.2.up", None, "")] == [
        each for each in told(found) if each[0].endswith("up")
    ]
    assert not any(
        each.share
        for each in slices(found.tensors, [each.model for each in found.parents])
        if each.model is None
    )


def test_what_cannot_be_compared_is_counted_by_reason(base: Tensors) -> None:
    """With its share of all parameters, and one of its names."""
    angles = np.arange(512)[:, None] / 10000 ** (np.arange(64) / 64)
    table = {"positions": np.sin(angles).astype(np.float32)}
    found = anatomy(fingerprint(base | table), {"base": fingerprint(base)})
    structured, short = found.left_out
    assert (NotComparable.STRUCTURED, 1, "positions") == (
        structured.reason,
        structured.count,
        structured.example,
    )
    assert (NotComparable.SHORT, 1, "norm") == (short.reason, short.count, short.example)
    size = sum(values.size for values in (base | table).values())
    assert 512 * 64 / size == pytest.approx(structured.share_of_parameters)
