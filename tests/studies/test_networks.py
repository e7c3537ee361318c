"""The networks of the studies: as large as published, and fit for gradients of single samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from demo.cohort import Cohort, repeat, stack
from demo.data import CLASSES
from modelkin.torch import fisher_importance
from studies.networks.bert import bert
from studies.networks.resnets import resnet18, resnet50
from studies.networks.small import common_model
from studies.settings import NETWORKS


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_large_networks_have_their_published_sizes() -> None:
    """ResNets with 1,000 classes, and BERT-base without a classifier, to the last parameter."""
    with torch.device("meta"):
        assert 11_689_512 == size(resnet18(1000))
        assert 25_557_032 == size(resnet50(1000))
        assert 109_482_240 == size(bert(20)[:-1])
        assert (2, 1000) == resnet50(1000).eval()(torch.empty(2, 3, 224, 224)).shape
        assert (2, 20) == bert(20)(torch.zeros(2, 16, dtype=torch.long)).shape


@pytest.mark.parametrize("network", NETWORKS)
def test_small_networks_read_their_data(network: str) -> None:
    """Channels, sides and classes are those of the data; equal seeds give equal weights."""
    model = common_model(network, (3, 12, 12), 7, seed=1)
    assert (2, 7) == model(torch.zeros(2, 3, 12, 12)).shape
    same = common_model(network, (3, 12, 12), 7, seed=1)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True)
    )


def test_the_mlp_reads_vectors() -> None:
    """Words come as vectors, without channels or sides."""
    assert (2, 20) == common_model("mlp", (2048,), 20, seed=0)(torch.zeros(2, 2048)).shape


@pytest.mark.slow
def test_a_resnet_treats_each_sample_alone() -> None:
    """Its output for an image does not depend on the batch, so it has gradients of samples."""
    model = common_model("resnet18", (3, 32, 32), CLASSES, seed=0)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(model(images)[:1], model(images[:1]), atol=1e-5)
    found = fisher_importance(model, cross_entropy, [(images[:1], torch.tensor([3]))])
    torch.autograd.backward(cross_entropy(model(images[:1]), torch.tensor([3])))
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert torch.allclose(found, expected**2, rtol=1e-3, atol=1e-9)


@pytest.fixture
def small() -> nn.Sequential:
    """A BERT of two narrow layers over 50 token ids."""
    torch.manual_seed(0)
    return bert(5, vocabulary=50, width=8, layers=2, heads=2)


def test_padding_changes_nothing(small: nn.Sequential) -> None:
    """A text has the same output with padding after it; another word changes it."""
    ids = torch.tensor([[1, 7, 9, 0, 0]])
    padded = torch.tensor([[1, 7, 9, 0, 0, 0, 0, 0]])
    assert torch.allclose(small(ids), small(padded), atol=1e-6)
    assert torch.allclose(small(ids), small(ids[:, :3]), atol=1e-6)
    assert not torch.allclose(small(ids), small(torch.tensor([[1, 7, 8, 0, 0]])), atol=1e-6)


def test_a_layer_is_torch_s(small: nn.Sequential) -> None:
    """With the same weights, torch's own encoder layer gives the same states."""
    layer = small[1]
    assert isinstance(layer, nn.Module)
    own = dict(layer.named_parameters())
    theirs = nn.TransformerEncoderLayer(
        8, 2, 32, dropout=0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    )
    attention = [
        torch.cat([own[f"{n}.{kind}"] for n in ("query", "key", "value")])
        for kind in ("weight", "bias")
    ]
    names = {"self_attn.in_proj_weight": attention[0], "self_attn.in_proj_bias": attention[1]}
    for here, there in (
        ("joined", "self_attn.out_proj"),
        ("norm", "norm1"),
        ("wide", "linear1"),
        ("narrow", "linear2"),
        ("last_norm", "norm2"),
    ):
        names |= {f"{there}.{kind}": own[f"{here}.{kind}"] for kind in ("weight", "bias")}
    theirs.load_state_dict(names)
    states = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
    words = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    found, _ = layer((states, words))
    expected = theirs(states, src_key_padding_mask=~words)
    assert torch.allclose(found[words], expected[words], atol=1e-5)


def test_bert_trains_as_a_cohort(small: nn.Sequential) -> None:
    """Clients train side by side on token ids, and importance comes by sample."""
    ids = torch.randint(1, 50, (3, 10, 6), generator=torch.Generator().manual_seed(2))
    labels = torch.arange(10).remainder(5).expand(3, -1)
    cohort = Cohort(small, ids, labels)
    weights = repeat(stack([small]), 3)
    before = weights["3.dense.weight"].clone()
    cohort.train(weights, 1, torch.Generator().manual_seed(0))
    assert not torch.equal(before, weights["3.dense.weight"])
    found = fisher_importance(small, cross_entropy, [(ids[0], labels[0])]).numpy()
    assert np.isfinite(found).all()
    assert found[: 50 * 8].reshape(50, 8)[0].sum() == 0  # padding is in no text
