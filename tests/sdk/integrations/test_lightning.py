"""The callback for the Trainer of Lightning, and what it shares with that of Hugging Face."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import modelkin
from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.integrations import _training
from modelkin.integrations._tracker import check_unsharded
from modelkin.integrations._training import SupportRun, UploadPlan
from tests.docs.pages import blocks, run_python
from tests.sdk.integrations.conftest import Wire
from tests.sdk.integrations.trainings import (
    BETA,
    CLIP,
    INPUTS,
    LEARNING_RATE,
    TARGETS,
    assert_same,
    kept,
    mlp,
    of_lightning,
    of_trainer,
    oracle,
    warnings_of,
)
from tests.support.servers.server_process import Server

# Lightning uses an interface that this release of torch deprecates.
# The second warning is for users who resume in another folder by mistake.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed:UserWarning"),
]

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def fit(tmp_path: Path) -> Callable[..., Any]:
    """Steps of plain SGD, each over all examples in two halves; checkpoints at steps 3 and 6."""
    from tests.sdk.integrations import lightning_modules

    def fit(
        callback: Any,
        module: Any = None,
        *,
        folder: str = "checkpoints",
        resume: Path | None = None,
        save_weights_only: bool = False,
        **options: Any,
    ) -> Any:
        if module is None:
            net = mlp()
            sgd = torch.optim.SGD(net.parameters(), LEARNING_RATE)
            module = lightning_modules.Module(net, sgd)
        return lightning_modules.fit(
            module,
            TensorDataset(INPUTS, TARGETS),
            tmp_path / folder,
            callback,
            resume=resume,
            save_weights_only=save_weights_only,
            **({"gradient_clip_val": CLIP} | options),
        )

    return fit


def checkpoint(path: Path) -> dict[str, Any]:
    """The callback's state in a checkpoint, read as nothing but data."""
    callbacks = torch.load(path, weights_only=True)["callbacks"]
    (key,) = [key for key in callbacks if key.startswith("SupportCallback")]
    state: dict[str, Any] = callbacks[key]["moment"]
    return state


def test_lightning_pushes_at_each_checkpoint(
    client: modelkin.Client, space: str, tmp_path: Path, fit: Any
) -> None:
    """Each checkpoint is a model with the step's tag, the loss, and the support of its average."""
    fit(of_lightning(client, space, "org/run-{step}", submodule="net", beta=BETA, coverage=0.7))
    models = list(client.models.list(space))
    assert ["org/run-3", "org/run-6"] == [m.model for m in models]
    for step, model in zip((3, 6), models, strict=True):
        state = checkpoint(tmp_path / "checkpoints" / f"step={step}.ckpt")
        np.testing.assert_allclose(kept(state), oracle(step), rtol=1e-4)
        expected = modelkin.select_support(kept(state), coverage=0.7)
        assert expected == client.supports.get(space, model.model)
        assert ((f"step-{step}",), step) == (model.tags, model.attributes["step"])
        assert 0 < model.attributes["train_loss"] < 2
    assert modelkin.layout_of(mlp()) == client.spaces.get(space).layout


def test_lightning_resumes_to_the_bit(
    client: modelkin.Client, space: str, tmp_path: Path, fit: Any
) -> None:
    """A training that was resumed has the very average of one that was never stopped."""
    fit(of_lightning(client, space, "run"), folder="whole")
    whole = client.supports.get(space, "run")
    again = of_lightning(client, space, "run")
    fit(again, folder="parts", resume=tmp_path / "whole" / "step=3.ckpt")
    assert_same(*(checkpoint(tmp_path / f / "step=6.ckpt") for f in ("whole", "parts")))
    assert whole == client.supports.get(space, "run")


def test_lightning_says_that_it_begins_anew(
    away: Wire, tmp_path: Path, fit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint that was made without the callback has no average, and the log says so."""
    from lightning.pytorch import Callback

    fit(Callback())
    caplog.clear()
    callback = of_lightning(away.client(), "digits", "run", flush_seconds=0)
    fit(callback, folder="more", resume=tmp_path / "checkpoints" / "step=3.ckpt")
    assert "starts from zero: the checkpoint has none" in warnings_of(caplog)[0]


def test_lightning_unscales(away: Wire, tmp_path: Path, fit: Any) -> None:
    """Under float16 with a GradScaler the average is of unscaled, clipped gradients."""
    from tests.sdk.integrations.lightning_modules import float16_on_the_cpu

    callback = of_lightning(away.client(), "digits", "run", beta=BETA, flush_seconds=0)
    fit(callback, plugins=[float16_on_the_cpu()], max_steps=3)
    found = kept(checkpoint(tmp_path / "checkpoints" / "step=3.ckpt"))
    expected = oracle(3)
    assert 0.05 > np.abs(found - expected).sum() / expected.sum()


def test_lightning_reads_adam(client: modelkin.Client, space: str, fit: Any) -> None:
    """importance='adam' is the optimizer's own average."""
    from tests.sdk.integrations.lightning_modules import Module

    net = mlp()
    module = Module(net, torch.optim.Adam(net.parameters(), 1e-3))
    run = fit(of_lightning(client, space, "run", importance="adam"), module)
    expected = modelkin.torch.adam_importance(run.optimizers[0], module)
    assert modelkin.select_support(expected) == client.supports.get(space, "run")


def test_lightning_selects_as_the_space_has_its_models(
    client: modelkin.Client, space: str, fit: Any
) -> None:
    """In a space of another order that leaves a tensor out, supports have the space's tensors."""
    from tests.sdk.integrations.lightning_modules import Module

    net = mlp()
    module = Module(net, torch.optim.Adam(net.parameters(), 1e-3))
    layout = modelkin.layout_of(module)
    turned = modelkin.Layout(layout.tensors[::-1])
    out = layout.tensors[-1].name
    made = client.ensure_space(space, layout=turned, importance="adam", exclude=[out])
    run = fit(of_lightning(client, space, "run", importance="adam"), module)
    importance = modelkin.torch.adam_importance(run.optimizers[0], module)
    expected = modelkin.select_support(importance, exclude=[out], order=made.layout)
    assert expected == client.supports.get(space, "run")
    assert layout.num_parameters > made.num_parameters


def test_lightning_orders_the_supports_of_an_ordered_space(
    client: modelkin.Client, space: str, fit: Any
) -> None:
    """In an ordered space the callback's supports have octaves, with nothing set."""
    from tests.sdk.integrations.lightning_modules import Module

    net = mlp()
    module = Module(net, torch.optim.Adam(net.parameters(), 1e-3))
    layout = modelkin.layout_of(module)
    client.ensure_space(space, layout=layout, importance="adam", ordered=True)
    run = fit(of_lightning(client, space, "run", importance="adam"), module)
    importance = modelkin.torch.adam_importance(run.optimizers[0], module)
    expected = modelkin.select_support(importance, ordered=True)
    assert expected == client.supports.get(space, "run")


def test_lightning_states_the_kind_of_a_space_that_it_makes(
    client: modelkin.Client, space: str, fit: Any
) -> None:
    """A space from a callback takes no other kind of importance."""
    fit(of_lightning(client, space, "run"))
    assert "grad_moment" == client.spaces.get(space).importance.kind
    other = modelkin.select_support(modelkin.torch.weight_importance(mlp()))
    with pytest.raises(modelkin.ConflictError, match="grad_moment"):
        client.put_support(
            space, "other", other.with_origin(modelkin.Origin(modelkin.Importance.of("weight")))
        )


def test_lightning_refuses_several_optimizers(away: Wire, fit: Any) -> None:
    """An importance is of the steps of one optimizer: the error names the way around."""
    from tests.sdk.integrations.lightning_modules import Twins

    by_hand = {"accumulate_grad_batches": 1, "gradient_clip_val": None}
    with pytest.raises(InvalidParameter, match=r"has 2 optimizers.*GradientMoment"):
        fit(of_lightning(away.client(), "digits", "run"), Twins(mlp()), **by_hand)
    assert [] == away.requests


def test_lightning_goes_on_without_a_service(
    away: Wire, fit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The training ends normally, and the log says which upload was dropped."""
    run = fit(of_lightning(away.client(), "digits", "run"))
    assert 6 == run.global_step
    assert "dropped, the service did not answer in time: " in warnings_of(caplog)[-1]


@pytest.mark.slow
def test_lightning_breaks_off_without_waiting(
    stuck: Wire, fit: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that fails is over at once, however long the service takes."""
    from tests.sdk.integrations.lightning_modules import Module

    class Failing(Module):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if self.global_step == 4:
                raise RuntimeError("out of memory")

    monkeypatch.setattr(_training, "SPACE_TIMEOUT_S", 0.1)
    net = mlp()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(
            of_lightning(stuck.client(), "digits", "run", flush_seconds=3600),
            Failing(net, torch.optim.SGD(net.parameters(), 0.1)),
        )
    assert 10 > time.monotonic() - began
    assert "dropped, the service did not answer in time: " in warnings_of(caplog)[-1]


def test_lightning_without_checkpoints_pushes_at_the_end(
    client: modelkin.Client, space: str, fit: Any
) -> None:
    """Checkpoints of weights alone ask no callback: the end of the training is the one push."""
    callback = of_lightning(client, space, "run-{step}")
    fit(callback, save_weights_only=True)
    assert ["run-6"] == [m.model for m in client.models.list(space)]


# --- what both callbacks share ------------------------------------------------------------------


BAD: list[tuple[dict[str, Any], str]] = [
    ({"space": "Digits"}, "space name"),
    ({"model": "org//run"}, "segment 2"),
    ({"model": "run-{epoch}"}, "U\\+007B"),
    ({"importance": "fisher"}, "'moment', 'adam'"),
    ({"beta": 1.0}, "beta must be between"),
    ({"coverage": 1.5}, "coverage must be in"),
    ({"k_max": 0.0}, "k_max must be in"),
    ({"tags": "step"}, "one string"),
    ({"tags": [f"t{i}" for i in range(50)]}, "at most 50"),
    ({"flush_seconds": -1}, "flush_seconds must be 0 or more"),
    ({"flush_seconds": float("nan")}, "flush_seconds must be 0 or more"),
    ({"flush_seconds": float("inf")}, "flush_seconds must be 0 or more"),
]


@pytest.mark.parametrize("make", [of_trainer, of_lightning])
@pytest.mark.parametrize(("wrong", "why"), BAD)
def test_bad_arguments_are_refused_at_once(
    away: Wire, make: Callable[..., Any], wrong: dict[str, Any], why: str
) -> None:
    """What cannot be right is refused where it is written, not hours later."""
    right = {"client": away.client(), "space": "digits", "model": "org/run-{step}"}
    make(**right)
    with pytest.raises(InvalidInput, match=why):
        make(**(right | wrong))


class FullyShardedDataParallel(nn.Module):
    """What the check knows FSDP by."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


def test_sharded_trainings_are_refused() -> None:
    """FSDP and DeepSpeed hold parts of what is needed whole: the error says what to do instead."""
    model, optimizer = mlp(), torch.optim.SGD(mlp().parameters(), 0.1)
    check_unsharded(model, optimizer, model)
    with pytest.raises(InvalidParameter, match="train data-parallel"):
        check_unsharded(model, optimizer, FullyShardedDataParallel(model))
    zero = type("ZeroOptimizer", (), {"__module__": "deepspeed.runtime.zero.stage_1_and_2"})()
    with pytest.raises(InvalidParameter, match="this ZeroOptimizer is DeepSpeed's"):
        check_unsharded(model, zero, model)
    setattr(model[0].weight, "ds_id", 1)  # noqa: B010  # as DeepSpeed marks its parameters
    with pytest.raises(InvalidParameter, match="sharded over processes"):
        check_unsharded(model, optimizer, model)


def test_only_the_main_process_pushes(away: Wire) -> None:
    """The other processes of a data-parallel training say nothing and keep nothing."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    plan = UploadPlan(away.client(), "digits", "org/run", "moment", 0.9, None, None, (), 10.0)
    run = SupportRun(plan, model, optimizer, wrapped=model, main=False, state=None)
    run.start()
    cross_entropy(model(INPUTS), TARGETS).backward()
    optimizer.step()
    run.upload(1, {})
    assert run.state() is None
    run.end()
    assert [] == away.requests


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")
def test_the_page(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """docs/training.md prints what it says, beside the words of the Trainer itself."""
    monkeypatch.setenv("MODELKIN_URL", server.url)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    printed, promised = list[str](), list[str]()
    for kind, text in blocks((DOCS / "training.md").read_text()):
        if kind == "text":
            promised.append(text)
        elif output := run_python(text, "training.md", namespace):
            lines = output.splitlines(keepends=True)
            printed.append("".join(line for line in lines if "'train_runtime'" not in line))
    namespace["client"].close()
    assert promised == printed
    assert 2 == len(printed)
    assert [] == warnings_of(caplog)
