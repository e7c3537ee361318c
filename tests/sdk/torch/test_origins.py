"""What ``modelkin.torch`` attaches to an importance: its kind, its base and its layout."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from modelkin import select_support
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from modelkin.checkpoints import weights_digest as digest_of_files
from modelkin.core.importance import Importance, Origin, origin_of
from modelkin.errors import InvalidParameter, SpaceMismatch
from modelkin.torch import (
    GradientMoment,
    adam_importance,
    delta_importance,
    fisher_importance,
    fisher_resamples,
    layout_of,
    select_signature,
    weight_importance,
    weights_digest,
)
from tests.sdk.cli.files import save, save_sharded


def network(seed: int) -> nn.Module:
    """Two layers, named so that their order is not that of their names."""
    torch.manual_seed(seed)
    return nn.ModuleDict({"stem": nn.Linear(6, 5), "head": nn.Linear(5, 3)})


def importances() -> dict[str, Tensor]:
    """An importance of each kind that has no base."""
    model = nn.Sequential(nn.Linear(4, 3))
    batches = [(torch.rand(2, 4), torch.tensor([0, 1])) for _ in range(2)]
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    with GradientMoment(model, optimizer) as moment:
        loss(model(batches[0][0]), batches[0][1]).backward()
        optimizer.step()
    return {
        "fisher": fisher_importance(model, loss, batches),
        "grad_moment": moment.importance(),
        "adam": adam_importance(optimizer, model),
        "weight": weight_importance(model),
    }


def test_every_importance_says_its_kind_and_layout() -> None:
    """Supports selected from them carry both, without a word of the caller."""
    layout = layout_of(nn.Sequential(nn.Linear(4, 3)))
    for kind, importance in importances().items():
        assert Origin(Importance.of(kind), layout) == select_support(importance).origin, kind


def test_resampled_fisher_importance_says_its_kind() -> None:
    """The estimate has an origin; its resamples need none."""
    model = nn.Sequential(nn.Linear(4, 3))
    batches = [(torch.rand(2, 4), torch.tensor([0, 1])) for _ in range(2)]
    importance, _ = fisher_resamples(model, nn.CrossEntropyLoss(), batches, resamples=2)
    assert Origin(Importance.of("fisher"), layout_of(model)) == origin_of(importance)


def test_a_delta_says_its_base() -> None:
    """The digest is that of the base's weights, given as a model or as its state dict."""
    model, base = network(0), network(1)
    expected = Origin(Importance.of("delta", weights_digest(base)), layout_of(model))
    assert expected == select_support(delta_importance(model, base)).origin
    assert expected == select_support(delta_importance(model, base.state_dict())).origin
    assert weights_digest(base) != weights_digest(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_digest_of_weights_is_that_of_their_files(tmp_path: Path, dtype: torch.dtype) -> None:
    """Order, dtype, shards and framework do not matter: the values do."""
    model = network(2).to(dtype)
    state = model.state_dict()
    one = open_checkpoint(save(tmp_path / "one.safetensors", state))
    sharded = open_checkpoint(save_sharded(tmp_path / "sharded", state, 2))
    digests = {weights_digest(model), weights_digest(state), weights_digest(model.float())}
    assert digests == {digest_of_files(one)} == {digest_of_files(sharded)}
    with torch.no_grad():
        next(iter(model.parameters())).view(-1)[0] += 1
    assert weights_digest(model) not in digests


def test_a_digest_counts_the_tensors_of_a_layout() -> None:
    """Other tensors of a state dict do not count, and a missing one is named."""
    model = network(3)
    layout = layout_of(model, ["head.*"])
    state = {**model.state_dict(), "extra": torch.ones(2)}
    part = {name: state[name] for name in ("stem.weight", "stem.bias")}
    assert weights_digest(part) == weights_digest(state, layout) == weights_digest(model, layout)
    with pytest.raises(SpaceMismatch, match=r"'stem.bias' \[5\] of the layout is missing"):
        weights_digest({"stem.weight": part["stem.weight"]}, layout)


def test_excluded_parameters_have_no_entry() -> None:
    """Importance, layout and base's digest are those of the tensors that are left."""
    model, base = network(4), network(5)
    whole, part = weight_importance(model), weight_importance(model, exclude=["head.*"])
    layout = layout_of(model, exclude=["head.*"])
    assert torch.equal(whole[: layout.num_parameters], part)
    assert Origin(Importance.of("weight"), layout) == origin_of(part)
    delta = delta_importance(model, base.state_dict(), exclude=["head.*"])
    expected = Origin(Importance.of("delta", weights_digest(base, layout)), layout)
    assert expected == origin_of(delta)
    assert select_support(part) == select_support(whole, exclude=["head.*"])
    with pytest.raises(InvalidParameter, match="'tail' matches none"):
        weight_importance(model, exclude=["tail"])


def test_torch_and_a_file_select_the_same_parameters(tmp_path: Path) -> None:
    """Default settings and one order: the same support to the bit, of weights and of deltas."""
    model, base = network(6), network(7)
    file = open_checkpoint(save(tmp_path / "m.safetensors", model.state_dict()))
    before = open_checkpoint(save(tmp_path / "b.safetensors", base.state_dict()))
    for importance, expected in (
        (weight_importance(model), select_from_checkpoint(file)),
        (delta_importance(model, base), select_from_checkpoint(file, before)),
    ):
        found = select_support(importance, order=file.layout)
        assert (expected, expected.origin) == (found, found.origin)
        assert expected.signature() == select_signature(importance, order=file.layout)


def test_an_origin_survives_a_file_that_any_loader_reads() -> None:
    """``torch.save`` keeps it, and ``torch.load`` needs nothing of modelkin to read it."""
    importance, buffer = weight_importance(network(8)), io.BytesIO()
    torch.save(importance, buffer)
    buffer.seek(0)
    assert origin_of(importance) == origin_of(torch.load(buffer, weights_only=True))
    assert origin_of(importance * 2) is None
