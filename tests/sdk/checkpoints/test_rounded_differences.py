"""Differences of checkpoints of less precision than their base compare training, not rounding."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from modelkin import Support, select_support, similarity
from modelkin.checkpoints import (
    CheckpointValues,
    open_checkpoint,
    rounding_note,
    select_from_checkpoint,
    weights_digest,
)
from modelkin.errors import InvalidImportance

Tensors = dict[str, torch.Tensor]
SIZE = 1 << 16
CHANCE = 0.05


def normal(seed: int, scale: float) -> torch.Tensor:
    return scale * torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def saved(path: Path, tensor: torch.Tensor) -> Path:
    save_file({"layer.weight": tensor}, path)
    return path


def support(folder: Path, tuned: torch.Tensor, base: torch.Tensor) -> Support:
    before = open_checkpoint(saved(folder / "base.safetensors", base))
    return select_from_checkpoint(open_checkpoint(saved(folder / "a.safetensors", tuned)), before)


def kappa(a: Support, b: Support) -> float:
    return (similarity(a, b) - CHANCE) / (1 - CHANCE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:only .* entries are positive")
def test_the_figures_of_the_page(tmp_path: Path) -> None:
    """Kappa, and the share of what moved most, are those of docs/method.md within .03."""
    page = Path(__file__).parents[3] / "docs" / "method.md"
    rows = re.findall(r"^\| (0\.0\d+) \| (.+) \|$", page.read_text(), re.MULTILINE)
    assert 4 == len(rows)
    base = normal(0, 0.03)
    for drift, written in rows:
        moves = [normal(seed, float(drift)) for seed in (1, 2)]
        children = [(base + move).bfloat16() for move in moves]
        found = [support(tmp_path, child, base) for child in children]
        plain = [select_support((c.float() - base).abs().numpy(), kind="delta") for c in children]
        truth = select_support(moves[0].abs().numpy(), kind="delta")
        pairs = ((plain[0], plain[1]), (found[0], found[1]), (plain[0], truth), (found[0], truth))
        measured = [kappa(*pair) for pair in pairs]
        assert pytest.approx([float(x) for x in written.split(" | ")], abs=0.03) == measured


ROUNDED = [
    # The regime of published models: weights of .02 or .03, and how far training moved them.
    pytest.param(torch.bfloat16, 0.02, 2e-5, id="BF16"),
    pytest.param(torch.float16, 0.02, 2e-6, id="F16"),
    pytest.param(torch.bfloat16, 0.03, 1e-4, id="BF16, far"),
    pytest.param(torch.bfloat16, 0.03, 1e-5, id="BF16, near"),
    pytest.param(torch.float16, 0.03, 1e-5, id="F16, far"),
    pytest.param(torch.float8_e4m3fn, 0.5, 2e-2, id="F8"),
    pytest.param(torch.float32, 0.02, 2e-5, id="F32"),
]


@pytest.mark.parametrize(("dtype", "scale", "drift"), ROUNDED)
def test_unrelated_fine_tunes_of_one_base_are_not_kin(
    tmp_path: Path, dtype: torch.dtype, scale: float, drift: float
) -> None:
    """Kappa of two that share their F32 base alone is below .3, where it was up to .98; and each
    has more of what its own training moved most than it had of it.
    """
    base = normal(0, scale)
    moves = [normal(seed, drift) for seed in (1, 2)]
    children = [(base + move).to(dtype) for move in moves]
    found = [support(tmp_path, child, base) for child in children]
    plain = [(child.float() - base).abs().topk(found[0].k).indices for child in children]
    assert kappa(*found) < 0.3
    for move, mine, before in zip(moves, found, plain, strict=True):
        truth = move.abs().topk(mine.k).indices.numpy()
        kept, was = (np.isin(truth, at).mean() for at in (mine.indices, before.numpy()))
        assert kept >= was - 0.02


def test_a_model_trained_in_half_precision_keeps_its_changes(tmp_path: Path) -> None:
    """One that began at the rounded base is compared by what moved, and unrelated ones are not."""
    base = normal(0, 0.03)
    moves = [normal(seed, 3e-5) for seed in (1, 2)]
    found = [support(tmp_path, (base.bfloat16() + m).bfloat16(), base) for m in moves]
    assert kappa(*found) < 0.3
    truth = moves[0].abs().topk(found[0].k).indices.numpy()
    assert np.isin(truth, found[0].indices).mean() > 0.4


@pytest.mark.parametrize(
    ("stored", "of_base"),
    [
        (torch.float16, torch.bfloat16),
        (torch.bfloat16, torch.float16),
        (torch.float8_e5m2, torch.bfloat16),
        (torch.float16, torch.float64),
    ],
)
def test_a_copy_in_another_precision_does_not_differ(
    tmp_path: Path, stored: torch.dtype, of_base: torch.dtype
) -> None:
    """A base that was only stored in another dtype is no derivative of itself."""
    base = normal(0, 0.03).to(of_base)
    with pytest.raises(InvalidImportance, match="are zero"):
        support(tmp_path, base.float().to(stored), base)


def test_a_finer_child_is_compared_exactly(tmp_path: Path) -> None:
    """A child that can hold every value of its base differs by what it differs."""
    base = normal(0, 0.03).bfloat16()
    tuned = base.float() + normal(1, 1e-5)
    expected = select_support((tuned - base.float()).abs().numpy(), kind="delta")
    assert expected == support(tmp_path, tuned, base)


def test_the_base_stays_itself(tmp_path: Path) -> None:
    """Its digest is that of its own values, and an average adds differences with their rounding."""
    base, child = normal(0, 0.03), (normal(0, 0.03) + normal(1, 1e-4)).bfloat16()
    model = open_checkpoint(saved(tmp_path / "a.safetensors", child))
    before = open_checkpoint(saved(tmp_path / "base.safetensors", base))
    origin = select_from_checkpoint(model, before).origin
    assert origin is not None
    assert origin.importance is not None
    assert weights_digest(before) == origin.importance.base
    values = CheckpointValues(model, base=before).read(0, SIZE)
    assert np.array_equal((child.float() - base).numpy(), values)


@pytest.mark.parametrize(
    ("stored", "of_base", "drift", "expected"),
    [
        ("bfloat16", "float32", 1e-6, "% of the weights of trained tensors moved farther than r"),
        ("float16", "float32", 1e-7, "% of the weights of trained tensors moved farther than r"),
        ("float32", "bfloat16", 0.0, "100% of the differences are within the rounding of such a"),
        ("bfloat16", "float32", 1e-3, None),
        ("float32", "bfloat16", 1e-2, None),
        ("bfloat16", "bfloat16", 1e-6, None),
        ("bfloat16", "float32", 0.0, None),
    ],
)
def test_notes_of_differences_that_are_mostly_rounding(
    tmp_path: Path, stored: str, of_base: str, drift: float, expected: str | None
) -> None:
    """Where nothing separates training from rounding, a note says how much moved, and else none."""
    base = normal(0, 0.03)
    child = (base + normal(1, drift)).to(getattr(torch, stored))
    model = open_checkpoint(saved(tmp_path / "a.safetensors", child))
    before = saved(tmp_path / "base.safetensors", base.to(getattr(torch, of_base)))
    note = rounding_note(model, open_checkpoint(before))
    if expected is None:
        assert note is None
    else:
        assert note is not None
        assert expected in note


def test_a_quantised_child_is_noted(tmp_path: Path) -> None:
    """What was computed from blocks has no step of a dtype: a note says that rounding counts."""
    base = normal(0, 0.03).reshape(256, 256)
    packed = {"layer.weight": (base / 1e-3).to(torch.float8_e4m3fn)}
    save_file(packed | {"layer.weight_scale": torch.tensor([1e-3])}, tmp_path / "a.safetensors")
    model = open_checkpoint(tmp_path / "a.safetensors")
    note = rounding_note(model, open_checkpoint(saved(tmp_path / "base.safetensors", base)))
    assert note is not None
    assert "differences include rounding, which models of one base share" in note
