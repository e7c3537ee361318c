"""What has no per-sample gradients is refused, with the reason and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from modelkin.errors import InvalidImportance, InvalidParameter
from modelkin.torch import fisher_importance

INPUTS, TARGETS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
LOADER = [(INPUTS, TARGETS)]


class Applied(nn.Module):
    """A linear layer behind any function of its input and itself."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(4, 3), function
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.function(self, x))  # type: ignore[no-any-return]


def images(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (4, 1)), *layers, nn.Flatten(), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
            r"BatchNorm1d '1' is in training mode.*model\.eval\(\)",
        ),
        (
            nn.Sequential(nn.Linear(4, 3), nn.SyncBatchNorm(3)),
            r"SyncBatchNorm '1' is in training mode",
        ),
        (
            nn.BatchNorm1d(3, track_running_stats=False).eval(),
            r"BatchNorm1d '\(the model\)' has no running.*GroupNorm",
        ),
        (
            images(nn.InstanceNorm1d(4, affine=True, track_running_stats=True)),
            r"InstanceNorm1d '1' is in training",
        ),
        (
            nn.Sequential(nn.Dropout(0.1), nn.Linear(4, 3)),
            r"Dropout '0' draws random numbers.*model\.eval\(\)",
        ),
        (nn.TransformerEncoderLayer(4, 2, 8), r"MultiheadAttention 'self_attn' draws random"),
        (nn.Sequential(nn.Linear(4, 3), nn.RReLU()), r"RReLU '1' draws random"),
    ],
)
def test_known_modules_are_refused_by_name(model: nn.Module, message: str) -> None:
    """The error names the module, why samples have no gradients of their own, and the remedy."""
    with pytest.raises(InvalidParameter, match=message):
        fisher_importance(model, cross_entropy, LOADER)


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize(
    "mix",
    [
        lambda self, x: x - x.mean(0),
        lambda self, x: torch.softmax(x @ x.T, dim=1) @ x,
        lambda self, x: x + x.roll(1, 0) * 0.1,
    ],
)
def test_unknown_modules_that_mix_samples_are_found(
    mix: Callable[[Any, Tensor], Tensor], vectorize: bool
) -> None:
    """A module of the user's own whose output for a sample depends on the others is refused."""
    with pytest.raises(InvalidParameter, match="depends on the other samples of its batch"):
        fisher_importance(Applied(mix), cross_entropy, LOADER, vectorize=vectorize)


@pytest.mark.parametrize("vectorize", [True, False])
def test_unknown_randomness_is_found(vectorize: bool) -> None:
    """A functional dropout that no module announces is refused too."""
    model = Applied(lambda self, x: x + torch.randn_like(x))
    with pytest.raises(InvalidParameter, match=r"output is random.*model\.eval\(\)"):
        fisher_importance(model, cross_entropy, LOADER, vectorize=vectorize)


def test_randomness_in_the_loss_is_found() -> None:
    """A random loss is refused where vmap meets it."""
    with pytest.raises(InvalidParameter, match="random"):
        fisher_importance(
            nn.Linear(4, 3), lambda out, t: cross_entropy(out + torch.rand(3), t), LOADER
        )


def keep_average(self: Any, x: Tensor) -> Tensor:
    self.seen.mul_(0.9).add_(x.detach().mean(0))
    return x


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (lambda self, x: x if x.sum() > 0 else -x, "control flow"),
        (lambda self, x: x * x.sum().item(), "control flow"),
        (lambda self, x: x * x[x > 0].sum(), "boolean mask"),
        (keep_average, "in place"),
    ],
)
def test_what_vmap_cannot_do_is_named_with_its_remedy(function: Any, cause: str) -> None:
    """The error names data-dependent control flow or in-place updates, and vectorize=False."""

    def refused(model: nn.Module, batch: Tensor) -> Tensor:
        return torch.cat(
            [model(row[None]) for row in batch]
        )  # samples stay independent of each other

    with pytest.raises(InvalidParameter, match=rf"{cause}.*vectorize=False"):
        fisher_importance(Applied(function), cross_entropy, LOADER, forward=refused)


def test_recurrent_models_are_told_to_go_one_by_one() -> None:
    """What vmap refuses for reasons of its own is passed on with the same remedy."""
    model = nn.GRU(4, 3, batch_first=True)
    loader = [(torch.randn(5, 2, 4), torch.zeros(5, dtype=torch.long))]
    with pytest.raises(InvalidParameter, match=r"recurrent layer.*vectorize=False"):
        fisher_importance(model, lambda out, t: cross_entropy(out[0][:, -1], t), loader)


def test_the_models_own_errors_stay_its_own() -> None:
    """An input of the wrong shape is torch's error, not blamed on vmap."""
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        fisher_importance(nn.Linear(5, 3), cross_entropy, LOADER)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([], "loader is empty"),
        ([(INPUTS[:0], TARGETS[:0])], "loader is empty"),
        ([INPUTS], r"item 0 is a tensor of shape \(6, 4\)"),
        ([{"x": INPUTS}], r"\(input, target\) pairs, item 0 is a dict"),
        ([(INPUTS, TARGETS, TARGETS)], "item 0 is a tuple of 3"),
        ([(INPUTS, TARGETS[:3])], r"different numbers of samples: \[3, 6\]"),
        ([(INPUTS.T, TARGETS)], r"of samples: \[4, 6\]; samples come first"),
        ([(INPUTS, "names")], "batch 0 holds a str"),
        ([(INPUTS, torch.tensor(1))], r"batch 0 holds a tensor of shape \(\)"),
    ],
)
def test_loaders_that_yield_no_pairs_are_refused(loader: list[Any], message: str) -> None:
    """The error says which item was wrong, what it was, and what a pair is."""
    with pytest.raises(InvalidParameter, match=message):
        fisher_importance(nn.Linear(4, 3), cross_entropy, loader)


@pytest.mark.parametrize(
    ("loss_fn", "got"),
    [
        (nn.CrossEntropyLoss(reduction="none"), r"a tensor of shape \(1,\)"),
        (lambda out, target: 1.0, "a float"),
    ],
)
def test_losses_that_are_not_one_number_are_refused(loss_fn: Any, got: str) -> None:
    """For a loss without reduction, the error says what it returned and what to use."""
    with pytest.raises(InvalidParameter, match=rf"returned {got}: use reduction='mean'"):
        fisher_importance(nn.Linear(4, 3), loss_fn, LOADER)


@pytest.mark.parametrize("max_memory", [0, -1, 1.5, True, None])
def test_memory_bounds_are_positive_integers(max_memory: Any) -> None:
    """A bound must be a positive integer."""
    with pytest.raises(InvalidParameter, match="max_memory"):
        fisher_importance(nn.Linear(4, 3), cross_entropy, LOADER, max_memory=max_memory)


def test_a_wholly_frozen_model_is_refused() -> None:
    """Without a trainable parameter there is no gradient to square."""
    with pytest.raises(InvalidParameter, match="every parameter of the model is frozen"):
        fisher_importance(nn.Linear(4, 3).requires_grad_(False), cross_entropy, LOADER)


def test_complex_parameters_are_refused() -> None:
    """Complex parameters have no squared real gradient."""
    with pytest.raises(InvalidParameter, match=r"'weight' is torch\.complex64"):
        fisher_importance(nn.Linear(4, 3, dtype=torch.complex64), cross_entropy, LOADER)


def test_gradients_that_are_no_numbers_name_parameter_and_samples() -> None:
    """A NaN in the data is reported with the parameter it spoilt and the samples it came with."""
    spoilt = INPUTS.clone()
    spoilt[2, 1] = torch.nan
    with pytest.raises(InvalidImportance, match=r"'weight' is NaN or infinite in samples 6 to 11"):
        fisher_importance(nn.Linear(4, 3), cross_entropy, [*LOADER, (spoilt, TARGETS)])


def test_importance_beyond_float32_is_refused() -> None:
    """A finite gradient whose square float32 cannot hold is an error, not infinity."""
    with pytest.raises(InvalidImportance, match=r"'weight' is .* float32: scale the loss down"):
        fisher_importance(nn.Linear(4, 3), lambda out, _: out.sum() * 1e30, LOADER)


class Recurrent(nn.Module):
    """A recurrent classifier whose layer takes samples in the second dimension."""

    def __init__(self, kind: Any, *, whole: bool) -> None:
        super().__init__()
        self.layer = kind(3, 8)
        self.head = nn.Linear(8, 2)
        self.whole = whole

    def forward(self, x: Tensor) -> Tensor:
        found, _ = self.layer(x)
        scored: Tensor = self.head(found)
        return scored.transpose(1, 2) if self.whole else scored[-1]


class Causal(nn.Module):
    """Attention over what it takes for the time, none of which sees what comes later."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(len(x))
        found: Tensor = self.layer(x, src_mask=mask, is_causal=True)
        return found


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("whole", [True, False])
def test_samples_in_the_second_dimension(kind: Any, whole: bool) -> None:
    """The layer is named, and what to give it, whether the loss fits the output or not."""
    inputs = torch.randn(6, 5, 3)
    targets = torch.zeros(6, 5, dtype=torch.long) if whole else torch.zeros(6, dtype=torch.long)
    with pytest.raises(InvalidParameter, match=r"'layer' takes samples in its second dim.*_first"):
        fisher_importance(
            Recurrent(kind, whole=whole).eval(),
            nn.CrossEntropyLoss(),
            [(inputs, targets)],
            vectorize=False,
        )


def test_causal_attention_over_the_samples() -> None:
    """The first sample sees no other one, and the last sees all: it is found by the last."""
    inputs = torch.randn(6, 5, 4)
    with pytest.raises(InvalidParameter, match=r"depends on the other samples.*second dimension"):
        fisher_importance(Causal().eval(), nn.MSELoss(), [(inputs, inputs)], vectorize=False)


def test_a_layer_that_is_given_its_samples_second_is_read() -> None:
    """A model that transposes for its recurrent layer is right as it is."""

    class Transposing(Recurrent):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.transpose(0, 1))

    model = Transposing(nn.LSTM, whole=False).eval()
    loader = [(torch.randn(6, 5, 3), torch.zeros(6, dtype=torch.long))]
    assert fisher_importance(model, nn.CrossEntropyLoss(), loader, vectorize=False).any()


def test_a_loss_that_cannot_be_called_is_refused() -> None:
    """Before anything is computed."""
    with pytest.raises(InvalidParameter, match="loss_fn is called with an output and a target"):
        fisher_importance(nn.Linear(3, 2), None, [])  # type: ignore[arg-type]
