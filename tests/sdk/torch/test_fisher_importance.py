"""Importance is the mean squared per-sample gradient, whatever the architecture or the chunk."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from modelkin.torch import fisher_importance, layout_of, squares

Case = tuple[nn.Module, Tensor, Tensor]


def mlp() -> Case:
    return (
        nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)),
        torch.randn(11, 5),
        labels(11),
    )


def cnn() -> Case:
    layers = (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    return nn.Sequential(*layers), torch.randn(9, 1, 8, 8), labels(9)


def attention() -> Case:
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return (
        nn.Sequential(encoder, nn.Flatten(), nn.Linear(32, 3)).eval(),
        torch.randn(6, 4, 8),
        labels(6),
    )


def batch_norm_in_eval_mode() -> Case:
    model = nn.Sequential(
        nn.Linear(5, 6), nn.BatchNorm1d(6), nn.GELU(), nn.Dropout(), nn.Linear(6, 3)
    )
    model(torch.randn(20, 5))
    return model.eval(), torch.randn(8, 5), labels(8)


def embedding() -> Case:
    return (
        nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 3)),
        torch.randint(10, (7, 3)),
        labels(7),
    )


class Tied(nn.Module):
    """An autoencoder whose decoder is its encoder's weight, and a block that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
        self.decode.weight = self.encode.weight
        self.block = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        decoded: Tensor = self.decode(self.block(torch.tanh(self.block(self.encode(x)))))
        return decoded


def tied_and_shared() -> Case:
    return Tied(), torch.randn(8, 4), torch.randint(4, (8,))


def partly_frozen() -> Case:
    model, inputs, targets = mlp()
    model.get_submodule("0").requires_grad_(False)
    return model, inputs, targets


CASES = [mlp, cnn, attention, batch_norm_in_eval_mode, embedding, tied_and_shared, partly_frozen]


def labels(n: int) -> Tensor:
    return torch.randint(3, (n,))


def batches(inputs: Tensor, targets: Tensor, size: int = 4) -> DataLoader[Any]:
    return DataLoader(TensorDataset(inputs, targets), batch_size=size)


def by_autograd(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The definition, in float64: one backward pass a sample."""
    exact = copy.deepcopy(model).double()
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    total = torch.zeros(layout_of(model).num_parameters, dtype=torch.float64)
    for i in range(len(inputs)):
        exact.zero_grad()
        cross_entropy(exact(inputs[i : i + 1]), targets[i : i + 1]).backward()
        rows = [torch.zeros_like(p) if p.grad is None else p.grad for p in exact.parameters()]
        total += torch.cat([row.reshape(-1) for row in rows]) ** 2
    return total / len(inputs)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_equals_one_backward_pass_a_sample(case: Callable[[], Case], vectorize: bool) -> None:
    """The importance is the mean of the squared gradients of plain autograd, sample by sample."""
    model, inputs, targets = case()
    expected = by_autograd(model, inputs, targets)
    actual = fisher_importance(model, cross_entropy, batches(inputs, targets), vectorize=vectorize)
    torch.testing.assert_close(
        expected, actual.double(), rtol=1e-4, atol=float(expected.max()) * 1e-6
    )


@pytest.mark.parametrize("max_memory", [1, 3 * 66 * 4, 2**30])
@pytest.mark.parametrize("batch_size", [1, 4, 11])
def test_does_not_depend_on_chunks(max_memory: int, batch_size: int) -> None:
    """Batch size and memory bound change the result by rounding at most."""
    model, inputs, targets = mlp()
    expected = fisher_importance(model, cross_entropy, [(inputs, targets)])
    loader = batches(inputs, targets, batch_size)
    actual = fisher_importance(model, cross_entropy, loader, max_memory=max_memory)
    torch.testing.assert_close(expected, actual, rtol=2e-5, atol=1e-9)


def test_memory_bounds_the_samples_that_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more samples run at once than their gradients fit into max_memory, and a batch at most."""
    sizes: list[int] = []
    monkeypatch.setattr(squares, "add_squares", lambda _, gradients: sizes.append(len(gradients)))
    model = nn.Linear(5, 2, bias=False)
    loader = [(torch.randn(8, 5), torch.randint(2, (8,)))]
    for samples in (0, 3, 100):
        fisher_importance(model, cross_entropy, loader, max_memory=samples * 10 * 4 + 1)
    assert [1] * 8 + [3, 3, 2] + [8] == sizes


def test_result_is_float32_in_layout_order() -> None:
    """The result has one float32 for every parameter of the layout, bf16 models included."""
    model, inputs, targets = mlp()
    actual = fisher_importance(model.bfloat16(), cross_entropy, [(inputs.bfloat16(), targets)])
    assert (torch.float32, (layout_of(model).num_parameters,)) == (
        actual.dtype,
        tuple(actual.shape),
    )


def test_frozen_and_unused_parameters_are_exactly_zero() -> None:
    """What is frozen or has no part in the loss has importance 0, and nothing else has."""
    model, inputs, targets = partly_frozen()
    assert isinstance(model, nn.Sequential)
    model.add_module("unused", nn.Linear(2, 2))

    def forward(model: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(model, nn.Sequential)
        output: Tensor = model[2](model[1](model[0](x)))
        return output

    actual = fisher_importance(model, cross_entropy, [(inputs, targets)], forward=forward)
    zero = torch.cat(
        [torch.full((p.numel(),), not n.startswith("2.")) for n, p in model.named_parameters()]
    )
    assert torch.equal(zero, actual == 0)


def test_tiny_gradients_keep_their_order() -> None:
    """Squares that would vanish among larger ones in float32 sums are counted, in float64."""
    model = nn.Linear(1, 1, bias=False)
    inputs = torch.tensor([[1.0]] + [[1e-4]] * 1000)
    actual = fisher_importance(model, lambda out, _: out.sum(), [(inputs, inputs)])
    assert pytest.approx((1 + 1000 * 1e-8) / 1001, rel=1e-7) == actual.item()


@pytest.mark.parametrize("vectorize", [True, False])
def test_leaves_the_model_as_it_was(vectorize: bool) -> None:
    """Mode, weights, buffers, existing gradients and requires_grad are the same after as before."""
    model, inputs, targets = batch_norm_in_eval_mode()
    weight = model.get_parameter("0.weight")
    weight.grad = torch.ones_like(weight)
    before = copy.deepcopy(model)
    fisher_importance(model, cross_entropy, [(inputs, targets)], vectorize=vectorize)
    assert all(torch.equal(a, model.state_dict()[n]) for n, a in before.state_dict().items())
    assert [m.training for m in before.modules()] == [m.training for m in model.modules()]
    assert [1.0, None] == [
        None if p.grad is None else p.grad.mean().item()
        for p in model.get_submodule("0").parameters()
    ]


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("vectorize", [True, False])
def test_works_where_the_caller_switched_gradients_off(
    context: Callable[[], Any], vectorize: bool
) -> None:
    """The caller's no_grad or inference_mode, and tensors made in it, change nothing."""
    model, inputs, targets = mlp()
    expected = fisher_importance(model, cross_entropy, [(inputs, targets)], vectorize=vectorize)
    with context():
        loader = [(inputs.clone(), targets.clone())]
        actual = fisher_importance(model, cross_entropy, loader, vectorize=vectorize)
    assert torch.equal(expected, actual)


def test_takes_nested_inputs_and_a_forward() -> None:
    """Inputs may be dicts and targets tuples; forward says how the model is called."""
    model, inputs, targets = mlp()
    expected = fisher_importance(model, cross_entropy, [(inputs, targets)])
    actual = fisher_importance(
        model,
        lambda out, target: cross_entropy(out["logits"], target[0]),
        [({"x": inputs}, (targets,))],
        forward=lambda model, batch: {"logits": model(batch["x"])},
    )
    assert torch.equal(expected, actual)


class Counting(nn.Module):
    """Counts its calls in a buffer, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("vectorize", [True, False])
def test_a_forward_that_updates_buffers_updates_copies(vectorize: bool) -> None:
    """Buffers that a forward pass changes in place stay unchanged in the model."""
    model = Counting()
    fisher_importance(model, cross_entropy, [(torch.randn(5, 4), labels(5))], vectorize=vectorize)
    assert 0 == model.calls.item()


class Recurrent(nn.Module):
    """A GRU, which vmap cannot run on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0][:, -1])  # type: ignore[no-any-return]


def test_models_beyond_vmap_go_one_by_one() -> None:
    """With vectorize=False a recurrent model has its exact importance too."""
    model, inputs, targets = Recurrent(), torch.randn(6, 3, 4), labels(6)
    actual = fisher_importance(model, cross_entropy, [(inputs, targets)], vectorize=False)
    torch.testing.assert_close(
        by_autograd(model, inputs, targets), actual.double(), rtol=1e-4, atol=1e-9
    )


@pytest.mark.parametrize("vectorize", [True, False])
def test_nothing_to_learn_adds_nothing(vectorize: bool) -> None:
    """An empty batch among others is passed over; a sample whose label is ignored has no gradient,
    and counts as a sample.
    """
    model, inputs, targets = mlp()
    others = fisher_importance(model, cross_entropy, [(inputs[1:], targets[1:])], vectorize=False)
    targets[0] = -100
    loader = [(inputs[:0], targets[:0]), (inputs, targets)]
    actual = fisher_importance(model, cross_entropy, loader, vectorize=vectorize)
    torch.testing.assert_close(others * 10 / 11, actual)
