"""GradientMoment is the running average of squared gradients over an optimizer's steps."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from modelkin.errors import InvalidImportance, InvalidLayout, InvalidParameter
from modelkin.torch import GradientMoment, layout_of, moments

INPUTS, TARGETS = (
    torch.randn(40, 4, generator=torch.Generator().manual_seed(0)),
    torch.arange(40) % 3,
)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def backward(model: nn.Module, step: int = 0) -> None:
    rows = slice(4 * step % 40, 4 * step % 40 + 4)
    cross_entropy(model(INPUTS[rows]), TARGETS[rows]).backward()


def squares(model: nn.Module) -> Tensor:
    """The squares of the gradients the model has now, None as zeros."""
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.cat([g.detach().double().square().reshape(-1) for g in found])


def averaged(history: list[Tensor], beta: float) -> Tensor:
    """The definition: weights beta ** age, that sum to one."""
    weights = [beta ** (len(history) - 1 - t) for t in range(len(history))]
    return sum((w * s for w, s in zip(weights, history, strict=True)), torch.zeros(())) / sum(
        weights
    )


def close(expected: Tensor, actual: Tensor) -> None:
    torch.testing.assert_close(expected.float(), actual, rtol=2e-5, atol=1e-12)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[Tensor]:
    history = []
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, step)
        history.append(squares(model))
        optimizer.step()
    return history


OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    lambda p: torch.optim.AdamW(p, 0.01),
    lambda p: torch.optim.Adam(p, 0.01, fused=True),
    lambda p: torch.optim.RMSprop(p, 0.01),
    lambda p: torch.optim.Adafactor(p, 0.01),
]


@pytest.mark.parametrize("optimizer_of", OPTIMIZERS)
@pytest.mark.parametrize("beta", [0.01, 0.95, 0.999])
def test_is_the_average_of_squared_gradients(
    optimizer_of: Callable[[Any], torch.optim.Optimizer], beta: float
) -> None:
    """Around any optimizer it is the bias-corrected average of the gradients before each step."""
    model = mlp()
    optimizer = optimizer_of(model.parameters())
    with GradientMoment(model, optimizer, beta=beta) as moment:
        history = train(model, optimizer, 9)
    close(averaged(history, beta), moment.importance())
    assert 9 == moment.steps


def test_long_runs_keep_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaling the moments back, many times here, changes nothing beyond rounding."""
    monkeypatch.setattr(moments, "MAX_GROWTH", 3.0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with GradientMoment(model, optimizer, beta=0.8) as moment:
        history = train(model, optimizer, 60)
    close(averaged(history, 0.8), moment.importance())


def test_as_a_hook_and_by_hand() -> None:
    """A registered hook, and an update after every step, give the result of the with block."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    hooked, updated = GradientMoment(model), GradientMoment(model)
    handle = optimizer.register_step_pre_hook(hooked)
    for step in range(4):
        backward(model, step)
        updated.update()
        optimizer.step()
    handle.remove()
    assert torch.equal(hooked.importance(), updated.importance())


def test_the_block_ends_the_watch() -> None:
    """Steps after the with block, also one that ended in an error, are not counted."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    moment = GradientMoment(model, optimizer)
    with contextlib.suppress(KeyError), moment:
        train(model, optimizer, 2)
        raise KeyError
    train(model, optimizer, 3)
    assert 2 == moment.steps


def test_the_optimizer_steps_as_without_it() -> None:
    """Weights and gradients after training are the same with and without it, to the bit."""
    models = []
    for watched in (False, True):
        torch.manual_seed(1)
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        if watched:
            optimizer.register_step_pre_hook(GradientMoment(model))
        train(model, optimizer, 5)
        models.append(model)
    for plain, watched_too in zip(*(m.parameters() for m in models), strict=True):
        assert torch.equal(plain, watched_too)
        assert torch.equal(plain.grad, watched_too.grad)


def test_accumulated_gradients_are_one_step() -> None:
    """Micro-batches that are accumulated count as the one gradient that the step uses."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with GradientMoment(model, optimizer) as moment:
        backward(model, 0)
        backward(model, 1)
        expected = squares(model)
        optimizer.step()
    close(expected, moment.importance())


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_missing_gradient_is_a_zero(set_to_none: bool) -> None:
    """A parameter that a step leaves out, or that joins later, counts as zero in that step."""
    model = nn.ModuleDict({"first": nn.Linear(4, 3), "later": nn.Linear(4, 3)})
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    history = []
    with GradientMoment(model, optimizer, beta=0.9) as moment:
        for used in (["first"], ["first", "later"], ["later"]):
            optimizer.zero_grad(set_to_none=set_to_none)
            sum(model[name](INPUTS).square().mean() for name in used).backward()
            history.append(squares(model))
            optimizer.step()
    close(averaged(history, 0.9), moment.importance())


def test_steps_without_any_gradient_do_not_count() -> None:
    """Where no parameter has a gradient nothing was seen, and asking says what to do."""
    model = mlp()
    moment = GradientMoment(model)
    moment.update()
    assert 0 == moment.steps
    with pytest.raises(InvalidParameter, match=r"no step with a gradient.*between backward\(\)"):
        moment.importance()


@pytest.mark.parametrize("fused", [True, False])
def test_a_grad_scaler_does_not_show(fused: bool) -> None:
    """Under GradScaler the unscaled gradients count, and a step that it skips does not."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 0.0, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with GradientMoment(model, optimizer) as moment:
        for loss_scale in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            loss = cross_entropy(model(INPUTS), TARGETS) * loss_scale
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert 2 == moment.steps
    model.zero_grad()
    cross_entropy(model(INPUTS), TARGETS).backward()
    close(squares(model), moment.importance())


def test_gradients_scaled_by_hand() -> None:
    """update(scale=...) undoes what the loss was multiplied by."""
    model = mlp()
    backward(model)
    expected = squares(model)
    for p in model.parameters():
        assert p.grad is not None
        p.grad *= 512.0
    moment = GradientMoment(model)
    moment.update(scale=512.0)
    close(expected, moment.importance())


@pytest.mark.parametrize("by_name", [True, False])
def test_a_closure_counts_once_a_step(by_name: bool) -> None:
    """LBFGS evaluates often; what counts is the gradient at the weights where a step begins."""
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5)
    history: list[Tensor] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(INPUTS), TARGETS)
        loss.backward()
        history.append(squares(model))
        return loss

    with GradientMoment(model, optimizer, beta=0.5) as moment:
        optimizer.step(closure=closure) if by_name else optimizer.step(closure)
        second = len(history)
        optimizer.step(closure)
    assert (2, True) == (moment.steps, second > 1)
    close(averaged([history[0], history[second]], 0.5), moment.importance())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_squared_in_float32(dtype: torch.dtype) -> None:
    """Gradients whose squares half precision cannot hold keep them, beside float32 ones."""
    model = nn.Sequential(nn.Linear(2, 1, bias=False, dtype=dtype), nn.Linear(2, 1, bias=False))
    model[0].weight.grad = torch.tensor([[2e-5, 3e4]], dtype=dtype)
    model[1].weight.grad = torch.tensor([[1.5, 0.0]])
    expected = squares(model)
    moment = GradientMoment(model)
    moment.update()
    close(expected, moment.importance())


def test_sparse_gradients_count_as_dense() -> None:
    """An embedding with sparse gradients has the moment of one with dense gradients."""
    found = []
    for sparse in (True, False):
        torch.manual_seed(3)
        model = nn.Embedding(6, 2, sparse=sparse)
        model(torch.tensor([1, 4, 1])).square().sum().backward()
        moment = GradientMoment(model)
        moment.update()
        found.append(moment.importance())
    assert torch.equal(*found)


def test_goes_on_after_a_restart() -> None:
    """Saved, loaded by torch's safe loader and continued, it is as if nothing had happened."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with GradientMoment(model, optimizer) as whole:
        train(model, optimizer, 3)
        file = io.BytesIO()
        torch.save(whole.state_dict(), file)
        resumed = GradientMoment(model, beta=0.5)
        resumed.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
        optimizer.register_step_pre_hook(resumed)
        train(model, optimizer, 3)
    assert torch.equal(whole.importance(), resumed.importance())


def test_reset_begins_an_adjacent_window() -> None:
    """After a reset only what follows counts, as in windows for stability."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with GradientMoment(model, optimizer) as moment:
        train(model, optimizer, 3)
        moment.reset()
        history = train(model, optimizer, 4)
    close(averaged(history, 0.95), moment.importance())


def test_is_in_layout_order() -> None:
    """One float32 for every parameter of the layout."""
    model = mlp()
    backward(model)
    moment = GradientMoment(model)
    moment.update()
    actual = moment.importance()
    assert (torch.float32, (layout_of(model).num_parameters,)) == (actual.dtype, actual.shape)


def test_a_gradient_that_is_no_number_names_its_parameter() -> None:
    """A NaN in any step is reported, with the parameter, when the importance is requested."""
    model = mlp()
    backward(model)
    bias = model.get_parameter("2.bias").grad
    assert bias is not None
    bias[1] = torch.nan
    moment = GradientMoment(model)
    moment.update()
    with pytest.raises(InvalidImportance, match=r"squared gradient of '2\.bias' is NaN"):
        moment.importance()


def refuse(build: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize("beta", [0, 1, 1.5, -0.1, True, "0.9", float("nan")])
def test_beta_is_between_zero_and_one(beta: Any) -> None:
    """Other betas are refused by name."""
    refuse(lambda: GradientMoment(mlp(), beta=beta), InvalidParameter, "beta must be between")


def test_what_cannot_be_watched() -> None:
    """No optimizer, one of another model, and a second watch at a time are refused."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    refuse(GradientMoment(model).__enter__, InvalidParameter, "give the optimizer")
    refuse(lambda: GradientMoment(mlp(), optimizer), InvalidParameter, "trains no parameter")
    with GradientMoment(model, optimizer) as moment:
        refuse(moment.__enter__, InvalidParameter, "in a with block already")


def test_states_of_other_models_are_refused() -> None:
    """A state names the tensors that do not fit; anything else is not a state."""
    model = nn.Linear(4, 3)
    model(INPUTS).sum().backward()
    moment = GradientMoment(model)
    moment.update()
    other = GradientMoment(nn.Linear(4, 2, bias=False))
    refuse(
        lambda: other.load_state_dict(moment.state_dict()),
        InvalidLayout,
        "'weight', 'bias' are not",
    )
    refuse(lambda: other.load_state_dict({"moments": {}}), InvalidParameter, "not a state of a")
