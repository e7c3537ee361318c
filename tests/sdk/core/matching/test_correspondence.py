"""Tensors of two layouts that are the same under other names, and those that are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from modelkin import Layout, Support, select_support
from modelkin.core.importance import Origin
from modelkin.core.matching.correspondence import correspond
from modelkin.core.matching.names import plain_names
from modelkin.errors import SpaceMismatch

Shapes = dict[str, tuple[int, ...]]

BLOCK: Shapes = {
    "wte.weight": (50, 8),
    "h.0.ln_1.weight": (8,),
    "h.0.ln_1.bias": (8,),
    "h.0.attn.weight": (8, 24),
    "h.1.attn.weight": (8, 24),
    "ln_f.weight": (8,),
}
EXPERTS: Shapes = {
    f"model.layers.0.mlp.experts.{i}.{part}.weight": (4, 8) if part != "down_proj" else (8, 4)
    for i in range(3)
    for part in ("down_proj", "gate_proj", "up_proj")
}
STACKS: Shapes = {
    "layers.0.mlp.experts.gate_up_proj": (3, 8, 8),
    "layers.0.mlp.experts.down_proj": (3, 8, 4),
}
SAME: dict[str, tuple[Shapes, Callable[[str], str]]] = {
    "prefix": (BLOCK, lambda name: f"model.{name}"),
    "two prefixes": (BLOCK, lambda name: f"base_model.model.transformer.{name}"),
    "data parallel": (BLOCK, lambda name: f"module.{name}"),
    "a prefix that no table has": (BLOCK, lambda name: f"0.auto_model.{name}"),
    "compiled": (BLOCK, lambda name: f"_orig_mod.{name}"),
    "compiled blocks": (BLOCK, lambda name: name.replace("h.0.", "h.0._orig_mod.")),
    "lightning": (BLOCK, lambda name: f"_forward_module.{name}"),
    "differential privacy": (BLOCK, lambda name: f"_module.{name}"),
    "tensorflow": (
        BLOCK,
        lambda name: name.replace("ln_1.weight", "ln_1.gamma").replace("ln_1.bias", "ln_1.beta"),
    ),
    "the other tied name": (BLOCK, lambda name: name.replace("wte.", "lm_head.")),
    "vision": (
        {"vit.layers.0.attention.q_proj.weight": (8, 8), "vit.layers.0.mlp.fc2.bias": (8,)},
        lambda name: name.replace("layers.0", "encoder.layer.0")
        .replace("attention.q_proj", "attention.attention.query")
        .replace("mlp.fc2", "output.dense"),
    ),
}  # fmt: skip


def layout(shapes: Shapes) -> Layout:
    return Layout.of(shapes.items())


@pytest.mark.parametrize("case", SAME)
def test_one_network_by_two_spellings_is_itself(case: str) -> None:
    """Values follow their tensors from one spelling, sorted by name, to the other and back."""
    shapes, spell = SAME[case]
    source = layout(dict(sorted((spell(name), shape) for name, shape in shapes.items())))
    target = layout(shapes)
    tensors = {name: np.random.default_rng(hash(name) % 97).random(s) for name, s in shapes.items()}
    by_spelling = {spell(name): values for name, values in tensors.items()}
    written = np.concatenate([by_spelling[t.name].ravel() for t in source.tensors])
    living = np.concatenate([tensors[t.name].ravel() for t in target.tensors])
    expected = select_support(living, fraction=0.1, layout=target)
    assert correspond(source, target).equal
    assert expected == select_support(written, fraction=0.1, layout=source, order=target)
    moved = select_support(written, fraction=0.1, layout=source).reordered(target)
    assert expected == moved
    assert target.digest == moved.origin.layout.digest  # type: ignore[union-attr]


@pytest.mark.parametrize("split_first", [True, False])
def test_experts_are_found_in_their_stacks(split_first: bool) -> None:
    """A stack has each expert's gate before its rest; both ways round no index is lost."""
    split, stacked = layout(dict(sorted(EXPERTS.items()))), layout(STACKS)
    source, target = (split, stacked) if split_first else (stacked, split)
    found = correspond(source, target)
    assert found.equal
    every = np.arange(source.num_parameters, dtype=np.uint32)
    assert every.tolist() == found.translated(every).tolist()
    up = [t.name for t in split.tensors].index("model.layers.0.mlp.experts.2.up_proj.weight")
    place = int(split.ends[up]) - 32
    one = Support([place], split.num_parameters, origin=Origin(layout=split))
    assert [2 * 64 + 32] == one.reordered(stacked).indices.tolist()


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"model.a.weight": (4, 5)}, {"a.weight": (5, 4)}),
        ({"model.a.weight": (20,)}, {"a.weight": (4, 5)}),
        ({"net.a.weight": (20,)}, {"a.weight": (4, 5)}),
        ({"net.a.weight": (4, 5), "a.bias": (21,)}, {"a.weight": (4, 5)}),
        ({"one.a.weight": (4, 5)}, {"two.a.weight": (4, 5)}),
        ({"model.a.weight": (4, 5), "module.a.weight": (4, 5)}, {"a.weight": (4, 5)}),
        ({"a.weight": (4, 5)}, {"model.a.weight": (4, 5), "transformer.a.weight": (4, 5)}),
        ({"lm_head.weight": (6, 4), "shared.weight": (6, 4)}, {"wte.weight": (6, 4)}),
        ({"lm_head.weight": (6, 4)}, {"wte.weight": (6, 5)}),
        ({"mlp.experts.3.gate_proj.weight": (4, 8)}, {"mlp.experts.gate_up_proj": (3, 8, 8)}),
        ({"mlp.experts.0.gate_proj.weight": (8, 4)}, {"mlp.experts.gate_up_proj": (3, 8, 8)}),
    ],
)  # fmt: skip
def test_nothing_else_is_joined(mine: Shapes, theirs: Shapes) -> None:
    """Tensors of other shapes, two for one, and experts that a stack has not, have no piece."""
    found = correspond(layout(mine), layout(theirs))
    assert () == found.pieces
    with pytest.raises(SpaceMismatch):
        found.require_equal()


def test_a_body_is_found_in_a_network_with_heads() -> None:
    """Most of a network's parameters lie under one name, beside heads that the other lacks."""
    heads = {"v_head.weight": (1, 8), "v_head.bias": (1,)}
    source = layout({f"my_net.body.{name}": shape for name, shape in BLOCK.items()} | heads)
    for found in (correspond(source, layout(BLOCK)), correspond(layout(BLOCK), source)):
        assert len(BLOCK) == len(found.pieces)
        assert found.fits
        assert {spec.name for spec in (*found.beyond, *found.missing)} == heads.keys()


def test_a_second_copy_and_a_buffer_do_not_count() -> None:
    """The source may have the other copy of a tied table, and buffers that no network trains."""
    more = BLOCK | {"lm_head.weight": (50, 8), "final_logits_bias": (1, 50)}
    assert correspond(layout(more), layout(BLOCK)).equal
    assert not correspond(layout(BLOCK), layout(more)).equal
    assert not correspond(layout(BLOCK | {"head.weight": (50, 8)}), layout(BLOCK)).equal


def test_all_tensors_that_differ_are_named() -> None:
    """The words have shapes, what one lacks and what the other lacks."""
    mine = {"a": (2, 3), "b": (4,), "c": (5, 2), "only.mine": (1,)}
    theirs = {"a": (3, 2), "b": (4,), "c": (7, 2), "only.theirs": (1,)}
    assert (
        "tensor 'c' has shape [5, 2] in X and [7, 2] in Y; tensor 'a' has shape [2, 3] in X and "
        "[3, 2] in Y; tensor 'only.theirs' [1] is only in Y; tensor 'only.mine' [1] is only in X"
    ) == correspond(layout(mine), layout(theirs)).difference("X", "Y")


def test_wrappers_are_left_out_of_names() -> None:
    """Unless two tensors would have one name."""
    assert ["a.b", "c"] == plain_names(["module._orig_mod.a.b", "module.c"])
    assert ["_orig_mod.a", "a"] == plain_names(["_orig_mod.a", "a"])
