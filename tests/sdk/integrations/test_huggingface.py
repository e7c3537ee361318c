"""The callback for the Trainer of Hugging Face, in trainings of a second."""

from __future__ import annotations

import logging
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import modelkin
from app.hubs.clients.protocol import HubFile
from app.hubs.ingestion.files.checkpoint_files import choose
from modelkin.checkpoints import open_checkpoint
from modelkin.errors import InvalidCheckpoint, InvalidParameter
from modelkin.integrations import _training
from modelkin.integrations._tracker import read_state, write_state
from tests.sdk.integrations.conftest import Wire
from tests.sdk.integrations.trainings import (
    BETA,
    CLIP,
    INPUTS,
    LEARNING_RATE,
    STATE_FILE,
    TARGETS,
    assert_same,
    kept,
    mlp,
    of_trainer,
    oracle,
    warnings_of,
)


class Classifier(nn.Module):
    """A model as the Trainer likes it; ``net`` is at the front of its parameters' names."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.net(x)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


class Examples(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"x": INPUTS[i], "labels": TARGETS[i]}


def trainer(folder: Path, callback: Any, **arguments: Any) -> Any:
    """A Trainer that takes steps of plain SGD, each over all examples in two halves."""
    from transformers import Trainer, TrainingArguments

    usual: dict[str, Any] = {
        "max_steps": 6,
        "save_steps": 3,
        "logging_steps": 3,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "max_grad_norm": CLIP,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return Trainer(
        model=Classifier(),
        args=TrainingArguments(output_dir=str(folder), **(usual | arguments)),
        train_dataset=Examples(),
        callbacks=[callback],
    )


@pytest.mark.slow
def test_trainer_pushes_at_each_save(client: modelkin.Client, space: str, tmp_path: Path) -> None:
    """Each save is a model with the step's tag, the loss, and the support of its average."""
    callback = of_trainer(client, space, "org/run-{step}", beta=BETA, coverage=0.7, tags=["digits"])
    trainer(tmp_path, callback).train()
    models = list(client.models.list(space))
    assert ["org/run-3", "org/run-6"] == [m.model for m in models]
    assert [("digits", "step-3"), ("digits", "step-6")] == [m.tags for m in models]
    for step, model in zip((3, 6), models, strict=True):
        state = read_state(tmp_path / f"checkpoint-{step}" / STATE_FILE, step)
        np.testing.assert_allclose(kept(state), oracle(step), rtol=1e-4)
        expected = modelkin.select_support(kept(state), coverage=0.7)
        assert expected == client.supports.get(space, model.model)
        assert (step, "moment") == (model.attributes["step"], model.attributes["importance"])
        assert 0 < model.attributes["loss"] < 2
    layout = client.spaces.get(space).layout
    assert layout is not None
    assert ["net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"] == [
        tensor.name for tensor in layout.tensors
    ]


@pytest.mark.slow
def test_trainer_resumes_to_the_bit(client: modelkin.Client, space: str, tmp_path: Path) -> None:
    """A training that was stopped and resumed has the very average of one that never was."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        trainer(folder, of_trainer(client, space, folder.name)).train()
    shutil.rmtree(parts / "checkpoint-6")
    again = of_trainer(client, space, "parts")
    trainer(parts, again).train(resume_from_checkpoint=str(parts / "checkpoint-3"))
    files = (folder / "checkpoint-6" / STATE_FILE for folder in (whole, parts))
    assert_same(*(read_state(file, 6) for file in files))
    assert client.supports.get(space, "whole") == client.supports.get(space, "parts")


def test_trainer_resumes_from_another_folder(
    away: Wire, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint elsewhere is named to the callback; else the log says what starts from zero."""
    first, plan = tmp_path / "first", (away.client(), "digits", "org/run")
    trainer(first, of_trainer(*plan), max_steps=3).train()
    checkpoint = first / "checkpoint-3"
    steps: list[int] = []
    for callback in (
        of_trainer(*plan, resume_from=checkpoint),
        of_trainer(*plan),
    ):
        folder = tmp_path / f"second-{len(steps)}"
        trainer(folder, callback).train(resume_from_checkpoint=str(checkpoint))
        steps.append(read_state(folder / "checkpoint-6" / STATE_FILE, 6)["steps"])
    assert [6, 3] == steps
    (warning,) = [line for line in warnings_of(caplog) if "starts from zero" in line]
    assert "checkpoint-3" in warning


def test_trainer_reads_adam(client: modelkin.Client, space: str, tmp_path: Path) -> None:
    """importance='adam' is the optimizer's own average, and checkpoints hold nothing more."""
    callback = of_trainer(client, space, "org/run", importance="adam")
    training = trainer(tmp_path, callback, optim="adamw_torch", learning_rate=1e-3)
    training.train()
    expected = modelkin.torch.adam_importance(training.optimizer.optimizer, training.model)
    assert modelkin.select_support(expected) == client.supports.get(space, "org/run")
    assert not (tmp_path / "checkpoint-6" / STATE_FILE).exists()


def test_checkpoints_of_the_model_only_hold_no_state(away: Wire, tmp_path: Path) -> None:
    """save_only_model keeps the average out, as it does the optimizer's."""
    callback = of_trainer(away.client(), "digits", "run", flush_seconds=0)
    trainer(tmp_path, callback, save_only_model=True, max_steps=3).train()
    files = {file.name for file in (tmp_path / "checkpoint-3").iterdir()}
    assert not {"optimizer.pt", STATE_FILE} & files


def test_trainer_in_bfloat16(client: modelkin.Client, space: str, tmp_path: Path) -> None:
    """Under autocast the average is of float32 gradients, near those of full precision."""
    callback = of_trainer(client, space, "org/run", beta=BETA)
    trainer(tmp_path, callback, bf16=True, max_steps=3).train()
    state = read_state(tmp_path / "checkpoint-3" / STATE_FILE, 3)
    found, expected = kept(state), oracle(3)
    assert 0.05 > np.abs(found - expected).sum() / expected.sum()


def test_trainer_takes_the_agreed_k(client: modelkin.Client, space: str, tmp_path: Path) -> None:
    """In a space whose clients agree on K, it reports its own K and stores the agreed one."""
    layout = modelkin.layout_of(Classifier())
    client.ensure_space(space, layout=layout, support_size="agreed")
    client.spaces.report_support_size(space, 9, client="org/another")
    trainer(tmp_path, of_trainer(client, space, "org/run-{step}")).train()
    assert 9 == client.models.get(space, "org/run-3").support_size
    assert 2 == client.spaces.support_size(space).reports, "the saves of a run count once"


def test_a_run_without_saves_pushes_at_its_end(
    client: modelkin.Client, space: str, tmp_path: Path
) -> None:
    """Where nothing is ever saved, the end of the training is the one push."""
    callback = of_trainer(client, space, "org/run")
    trainer(tmp_path, callback, save_strategy="no", max_steps=2).train()
    assert [("step-2",)] == [m.tags for m in client.models.list(space)]


def test_a_service_that_is_away_changes_nothing(
    away: Wire, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The weights are those without a callback; one warning says why nothing is stored, one what
    was given up in the end.
    """
    from transformers import TrainerCallback

    plain = trainer(tmp_path / "plain", TrainerCallback())
    training = trainer(tmp_path / "watched", of_trainer(away.client(), "digits", "org/run"))
    assert plain.train().global_step == training.train().global_step
    for expected, weight in zip(plain.model.parameters(), training.model.parameters(), strict=True):
        assert torch.equal(expected, weight)
    first, last = warnings_of(caplog)[0], warnings_of(caplog)[-1]
    assert "is not stored yet: no modelkin service answers at http://kin.test" in first
    assert "dropped, the service did not answer in time: " in last
    assert "org/run" in last
    levels = [r.levelno for r in caplog.records if r.name == "modelkin.integrations"]
    assert 2 == levels.count(logging.WARNING)


def test_a_service_that_hangs_holds_up_nobody(
    stuck: Wire,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first save and the end of the training wait for their time, not for the service."""
    monkeypatch.setattr(_training, "SPACE_TIMEOUT_S", 0.1)
    callback = of_trainer(stuck.client(), "digits", "org/run", flush_seconds=0.1)
    began = time.monotonic()
    assert 6 == trainer(tmp_path, callback).train().global_step
    assert 10 > time.monotonic() - began
    assert "org/run" in warnings_of(caplog)[-1]


def test_a_space_of_another_model_is_told(
    client: modelkin.Client, space: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A space of another number of parameters is a warning with both numbers, soon."""
    client.ensure_space(space, num_parameters=5)
    callback = of_trainer(client, space, "org/run")
    assert 2 == trainer(tmp_path, callback, max_steps=2).train().global_step
    told = [line for line in warnings_of(caplog) if space in line]  # and what other tests left
    assert "with 5 parameters, this one has 131" in told[0]
    assert "Traceback" not in caplog.text


def test_exploding_gradients_end_no_training(
    away: Wire, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Gradients that are not finite give no support, only a line in the log."""
    callback = of_trainer(away.client(), "digits", "org/run", flush_seconds=0)
    training = trainer(tmp_path, callback, max_steps=2, max_grad_norm=0.0)
    with torch.no_grad():
        training.model.net[0].weight.fill_(torch.inf)
    assert 2 == training.train().global_step
    assert any("no support at step 2" in line for line in warnings_of(caplog))


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["bytes", "step", "gone"])
def test_a_damaged_state_begins_anew(
    away: Wire, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """A state that does not belong to this checkpoint is refused with a warning, never loaded."""
    callback = of_trainer(away.client(), "digits", "org/run", flush_seconds=0)
    trainer(tmp_path, callback).train()
    file = tmp_path / "checkpoint-3" / STATE_FILE
    if damage == "bytes":
        file.write_bytes(file.read_bytes()[:-40])
    elif damage == "step":
        shutil.copy(tmp_path / "checkpoint-6" / STATE_FILE, file)
    else:
        file.unlink()
    with pytest.raises((InvalidCheckpoint, OSError), match=r"checkpoint-3/modelkin_moment.state"):
        read_state(file, 3)
    trainer(tmp_path, callback).train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert any("starts from zero" in line for line in warnings_of(caplog))


def test_a_checkpoint_with_a_state_is_one_checkpoint(away: Wire, tmp_path: Path) -> None:
    """The callback's state does not look like a second checkpoint, locally or on a hub."""
    callback = of_trainer(away.client(), "digits", "org/run", flush_seconds=0)
    trainer(tmp_path, callback, max_steps=3).train()
    folder = tmp_path / "checkpoint-3"
    assert (folder / STATE_FILE).exists()
    assert {"net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"} == {
        tensor.name for tensor in open_checkpoint(folder).tensors
    }
    published = [HubFile(path.name, path.stat().st_size) for path in folder.iterdir()]
    assert "model.safetensors" == choose(published, "org/run").first.path


def test_a_checkpoint_elsewhere_ends_no_training(
    away: Wire, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A search of hyperparameters saves below a folder of each trial: the log says what is not
    kept, and the training goes on.
    """
    callback = of_trainer(away.client(), "digits", "org/run", flush_seconds=0)
    training = trainer(tmp_path, callback)
    training._get_output_dir = lambda trial: str(tmp_path / "run-0")
    assert 6 == training.train().global_step
    warnings = [line for line in warnings_of(caplog) if "average is not in the checkpoint" in line]
    assert 2 == len(warnings)
    assert [] == list(tmp_path.rglob(f"{STATE_FILE}*"))


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """What cannot be written whole is an OSError, and not there at all."""
    state = {"beta": 0.9, "steps": 1, "growth": 1.0, "moments": {"w": torch.ones(1 << 16)}}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, limits[1]))
    try:
        with pytest.raises(OSError, match=STATE_FILE):
            write_state(tmp_path / STATE_FILE, state, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [] == list(tmp_path.iterdir())


def test_nothing_but_the_state_is_read(tmp_path: Path) -> None:
    """Another safetensors file is refused as a state."""
    from safetensors.torch import save_file

    save_file({"w": torch.ones(3)}, tmp_path / "w.safetensors")
    with pytest.raises(InvalidCheckpoint, match="holds no average of modelkin's"):
        read_state(tmp_path / "w.safetensors", 1)


def test_adam_needs_adam(away: Wire, tmp_path: Path) -> None:
    """importance='adam' with another optimizer is refused when the training begins."""
    callback = of_trainer(away.client(), "s", "m", importance="adam")
    with pytest.raises(InvalidParameter, match="this is a SGD: importance='moment'"):
        trainer(tmp_path, callback).train()
