"""ClusterPenalty: the gradient of the proximal terms, added just before a step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modelkin.errors import InvalidLearngene, InvalidParameter, LearngeneMismatch
from modelkin.torch import ClusterPenalty, cut_learngene, fisher_importance

LAYERS = {"0": ("0.weight", "0.bias"), "2": ("2.weight", "2.bias")}


def network(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)


def sized(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def loss_of(model: nn.Module) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(16, 4, generator=generator, dtype=next(model.parameters()).dtype)
    return nn.functional.cross_entropy(model(x), torch.arange(16) % 3)


def low(fisher: Tensor, model: nn.Module, limit: float) -> dict[str, Tensor]:
    """Which parameters matter little."""
    parts = (fisher <= limit).split([p.numel() for p in model.parameters()])
    named = model.named_parameters()
    return {name: part.reshape(p.shape) for (name, p), part in zip(named, parts, strict=True)}


def formula(
    model: nn.Module,
    anchor: nn.Module,
    smooth: float,
    elastic: float = 0.0,
    masks: dict[str, Tensor] | None = None,
    relative: bool = False,
) -> Tensor:
    """The penalty as the formula says it, for autograd."""
    total = torch.zeros((), dtype=torch.float64)
    cluster = dict(anchor.named_parameters())
    for names in LAYERS.values():
        norm = sum(float(cluster[name].detach().square().sum()) for name in names)
        for name in names:
            away = model.get_parameter(name) - cluster[name].detach()
            term = smooth / 2 * away.square().sum()
            if masks is not None:
                term = term + elastic / 2 * (masks[name] * away).square().sum()
            total = total + (term / norm if relative else term)
    return total


CASES: dict[str, dict[str, Any]] = {
    "smooth": {"smooth": 0.3},
    "elastic": {"elastic": 0.7},
    "both": {"smooth": 0.3, "elastic": 0.7},
    "both, relative": {"smooth": 0.3, "elastic": 0.7, "relative": True},
    "smooth, relative": {"smooth": 0.3, "relative": True},
    "printed": {"smooth": 0.3, "elastic": 0.7, "threshold": "printed"},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_it_adds_the_gradient_of_the_formula(options: dict[str, Any]) -> None:
    """As autograd has it, to 1e-12; the value is the formula's, and nothing else is changed."""
    model, anchor = network(1), network(2)
    fisher = torch.rand(sized(model)) ** 4
    limit = float(fisher.quantile(0.9, interpolation="higher"))
    if options.get("threshold") == "printed":
        limit = float(fisher.min() + (fisher.max() - fisher.min()) / 2)
    masks = low(fisher, model, limit)
    if "elastic" in options:
        options = {**options, "fisher": fisher}
    penalty = ClusterPenalty(model, anchor, **options)
    expected = formula(
        model,
        anchor,
        options.get("smooth", 0.0),
        options.get("elastic", 0.0),
        masks,
        options.get("relative", False),
    )
    whole = torch.autograd.grad(loss_of(model) + expected, list(model.parameters()))
    loss_of(model).backward()
    penalty.add()
    for parameter, gradient in zip(model.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-12)
    assert pytest.approx(expected.item(), rel=1e-12) == penalty.value()
    assert all(
        torch.equal(a, b) for a, b in zip(anchor.parameters(), network(2).parameters(), strict=True)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=0.01),
        lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=4, line_search_fn="strong_wolfe"),
    ],
)
def test_steps_are_those_of_the_penalised_loss(
    make: Callable[[Any], torch.optim.Optimizer],
) -> None:
    """With and without closures, as if the penalty stood in the loss."""
    anchor, pulled, whole = network(2), network(1), network(1)
    penalty = ClusterPenalty(pulled, anchor, smooth=0.3)
    hooked, plain = make(pulled.parameters()), make(whole.parameters())
    hooked.register_step_pre_hook(penalty)

    def closure(model: nn.Module, optimizer: torch.optim.Optimizer, pull: bool) -> Any:
        def evaluate() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model)
            if pull:
                loss = loss + formula(model, anchor, 0.3)
            loss.backward()
            return loss

        return evaluate

    for _ in range(5):
        found = hooked.step(closure(pulled, hooked, False))
        expected = plain.step(closure(whole, plain, True))
        assert pytest.approx(expected.item(), rel=1e-9) == found.item()
    for a, b in zip(pulled.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_steps_without_a_closure(tmp_path: Path) -> None:
    """The usual loop: the hook adds the pull once a step, and none after it is removed."""
    anchor, model = network(2), network(1)
    cut = cut_learngene(anchor, tmp_path / "gene.safetensors", tensors=["*"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = optimizer.register_step_pre_hook(ClusterPenalty(model, cut.path, smooth=1.0))
    distances = []
    for _ in range(5):
        optimizer.zero_grad()
        (0 * loss_of(model)).backward()
        optimizer.step()
        distances.append(formula(model, anchor, 2.0).item())
    assert pytest.approx([distances[0] * 0.81**at for at in range(5)]) == distances
    handle.remove()
    optimizer.zero_grad()
    (0 * loss_of(model)).backward()
    optimizer.step()
    assert pytest.approx(distances[-1]) == formula(model, anchor, 2.0).item()


def test_what_the_anchor_lacks_is_not_pulled(tmp_path: Path) -> None:
    """Of a learngene that is a trunk the head is free, also in its gradients."""
    model = network(1)
    cut = cut_learngene(network(2), tmp_path / "gene.safetensors")
    penalty = ClusterPenalty(model, cut.path, smooth=1.0)
    penalty.add()
    assert ("0.weight", "0.bias") == penalty.pulled
    assert model.get_parameter("2.weight").grad is None
    away = model.get_parameter("0.bias") - network(2).get_parameter("0.bias")
    torch.testing.assert_close(model.get_parameter("0.bias").grad, away.detach())


def test_frozen_parameters_and_those_of_other_optimizers_stay() -> None:
    """A hook pulls what its optimizer trains."""
    model = network(1)
    model.get_parameter("0.bias").requires_grad_(False)
    penalty = ClusterPenalty(model, network(2), smooth=1.0)
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    optimizer.register_step_pre_hook(penalty)
    optimizer.step()
    changed = {
        name
        for (name, p), q in zip(model.named_parameters(), network(1).parameters(), strict=True)
        if not torch.equal(p, q)
    }
    assert {"0.weight"} == changed
    assert model.get_parameter("2.weight").grad is None


def test_scaled_gradients_get_a_scaled_pull() -> None:
    """A fused optimizer under GradScaler has scaled gradients, and skips steps with infinities."""
    model, anchor = network(1), network(2)
    penalty = ClusterPenalty(model, anchor, smooth=0.5)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(1.0)
    penalty(optimizer, (optimizer,), {})
    assert model.get_parameter("0.bias").grad is None
    optimizer.found_inf = torch.tensor(0.0)
    penalty(optimizer, (optimizer,), {})
    away = (model.get_parameter("0.bias") - anchor.get_parameter("0.bias")).detach()
    torch.testing.assert_close(model.get_parameter("0.bias").grad, 4 * away)


def test_the_mask_holds_the_share_that_was_asked_for() -> None:
    """Of the least important parameters; the paper's rule holds nearly all of them."""
    model, anchor = network(1), copy.deepcopy(network(1))
    with torch.no_grad():
        for parameter in anchor.parameters():
            parameter.add_(1.0)
    fisher = torch.arange(sized(model), dtype=torch.float32) ** 6
    for threshold, share in ((0.25, 0.25), (1.0, 1.0), ("printed", 0.89)):
        model.zero_grad()
        rule: Any = threshold
        ClusterPenalty(model, anchor, elastic=1.0, fisher=fisher, threshold=rule).add()
        pulled = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
        count = int((pulled != 0).sum())
        assert pytest.approx(share, abs=0.02) == count / sized(model)
        assert bool((pulled[:count] == -1).all())


def test_the_importance_of_a_round_s_start_makes_the_mask() -> None:
    """As fisher_importance gives it; the least important half alone is pulled."""
    model, anchor = network(1, torch.float32), network(2, torch.float32)
    batches = [(torch.randn(8, 4), torch.arange(8) % 3) for _ in range(2)]
    fisher = fisher_importance(model, nn.functional.cross_entropy, batches)
    ClusterPenalty(model, anchor, elastic=0.05, fisher=fisher, threshold=0.5).add()
    pulled = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    assert torch.equal(fisher <= fisher.median(), pulled != 0)


def test_tied_parameters_are_pulled_once() -> None:
    """Under whichever of their names the anchor has them."""
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    penalty = ClusterPenalty(model, {"1.weight": torch.zeros(3, 3)}, smooth=1.0)
    penalty.add()
    weight = model.get_parameter("0.weight")
    torch.testing.assert_close(weight.grad, weight.detach())


FISHER = torch.ones(sized(network()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smooth": -1}, "smooth must be a number of at least 0"),
        ({"elastic": float("nan")}, "elastic must be a number of at least 0"),
        ({"elastic": 1}, r"elastic needs fisher, an importance of shape \(51,\).*not NoneType"),
        ({"elastic": 1, "fisher": torch.ones(7)}, r"not \(7,\)"),
        ({"elastic": 1, "fisher": -FISHER}, "negative or not finite"),
        ({"elastic": 1, "fisher": FISHER, "threshold": 0}, "threshold must be above 0"),
        ({"elastic": 1, "fisher": FISHER, "threshold": "high"}, "threshold must be above 0"),
    ],
)
def test_arguments_that_cannot_be(options: dict[str, Any], message: str) -> None:
    """The error names the argument."""
    with pytest.raises(InvalidParameter, match=message):
        ClusterPenalty(network(), network(1), **options)


@pytest.mark.parametrize(
    ("anchor", "message"),
    [
        ({"encoder.w": torch.ones(2)}, "no tensor 'encoder.w' of the anchor"),
        ({"0.bias": torch.ones(2)}, r"'0\.bias' of the anchor has the shape \(2,\), and \(6,\)"),
        ({"0.bias": torch.full((6,), torch.nan)}, "not finite as torch.float64"),
        ({}, "no parameter of the model"),
    ],
)
def test_anchors_that_do_not_fit(anchor: dict[str, Tensor], message: str) -> None:
    """Of another model, or poisoned."""
    with pytest.raises(LearngeneMismatch, match=message):
        ClusterPenalty(network(), anchor, smooth=1.0)


def test_files_and_layers_that_no_pull_can_use(tmp_path: Path) -> None:
    """A damaged file, a number in place of an anchor, a layer of zeros to divide by."""
    (tmp_path / "gene.safetensors").write_bytes(b"{}")
    anchor: Any = 3
    with pytest.raises(InvalidLearngene, match=r"^gene\.safetensors: "):
        ClusterPenalty(network(), tmp_path / "gene.safetensors", smooth=1.0)
    with pytest.raises(InvalidParameter, match="a model, a state dict or a file, not a int"):
        ClusterPenalty(network(), anchor, smooth=1.0)
    zeros = {"0.weight": torch.zeros(6, 4), "0.bias": torch.zeros(6)}
    with pytest.raises(InvalidParameter, match=r"relative divides .* '0' are zero"):
        ClusterPenalty(network(), zeros, smooth=1.0, relative=True)


def test_a_sparse_gradient_is_refused() -> None:
    """The pull is on all rows."""
    model = nn.Embedding(5, 2, sparse=True)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(InvalidParameter, match="gradient of 'weight' is sparse"):
        ClusterPenalty(model, {"weight": torch.ones(5, 2)}, smooth=1.0).add()
