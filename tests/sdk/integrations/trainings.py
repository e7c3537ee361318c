"""What trainings of a second are made of, and what their average of squared gradients has to be.

Importing the libraries takes seconds, in each process that collects tests: so it is put off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

STATE_FILE = "modelkin_moment.state"
BETA, CLIP, LEARNING_RATE = 0.9, 0.15, 0.5
INPUTS = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(16) % 3


def mlp() -> nn.Sequential:
    """The same weights each time."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))


def oracle(steps: int, clip: float = CLIP) -> np.ndarray[Any, Any]:
    """The average of squared gradients of whole-batch steps, by its definition in float64."""
    model = mlp().double()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    average = np.zeros(sum(p.numel() for p in model.parameters()))
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(INPUTS.double()), TARGETS).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        assert clip == float("inf") or norm > clip, "the clipping must do something"
        gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy()  # type: ignore[union-attr]
        average = BETA * average + (1 - BETA) * gradient**2
        optimizer.step()
    return average / (1 - BETA**steps)


def kept(state: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The average that a checkpoint keeps, in layout order."""
    by_name = {name.removeprefix("net."): m for name, m in state["moments"].items()}
    names = [name for name, _ in mlp().named_parameters()]
    moments = torch.cat([by_name[name].reshape(-1) for name in names]).double()
    weight = (1 - state["beta"]) / (1 - state["beta"] ** state["steps"]) / state["growth"]
    average: npt.NDArray[Any] = (moments * weight).numpy()
    return average


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two states are the same to the last bit."""
    assert {**one, "moments": None} == {**other, "moments": None}
    assert one["moments"].keys() == other["moments"].keys()
    for name, moment in one["moments"].items():
        assert torch.equal(moment, other["moments"][name]), name


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "modelkin.integrations"]


# Importing these libraries takes seconds, in each process that collects tests: so it is put off.


def of_trainer(*arguments: Any, **options: Any) -> Any:
    """A callback for the Trainer of Hugging Face."""
    from modelkin.integrations import huggingface

    return huggingface.SupportCallback(*arguments, **options)


def of_lightning(*arguments: Any, **options: Any) -> Any:
    """A callback for the Trainer of Lightning."""
    from modelkin.integrations import lightning

    return lightning.SupportCallback(*arguments, **options)
