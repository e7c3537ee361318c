"""The code of docs/nvflare.md without NVFlare's simulator, in which `make nvflare` runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="NVFlare has an environment of its own: `make nvflare`")

from nvflare import client as flare
from nvflare.client import FLModel
from nvflare.job_config.api import FedJob
from safetensors.numpy import load_file

from tests.docs.pages import marked_blocks, run_python

PAGE = Path(__file__).resolve().parents[4] / "docs" / "nvflare.md"


def test_the_guide_is_short_and_of_names_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs, the second with a newcomer, and a script that trains what it receives.

    A job prints the clusters and the accuracy of its last report.
    """
    script, job, promised = marked_blocks(PAGE.read_text())
    assert sum(bool(line.strip()) for line in (script + job).splitlines()) <= 45
    monkeypatch.chdir(tmp_path)
    Path("client.py").write_text(script)
    jobs: list[list[str]] = []
    failed = [0, 0, 1]

    def simulate(_: FedJob, folder: str, clients: list[str], log_config: str) -> int:
        jobs.append(clients)
        assert "WARNING" == log_config
        (models := Path(folder, "server", "simulate_job", "modelkin")).mkdir(parents=True)
        clusters = {"0": clients[::2], "1": clients[1::2]}
        report = {"clusters": clusters, "metrics": {"all": {"accuracy": 1.0}}}
        (models / "rounds.json").write_text(json.dumps([{}, report]))
        return failed.pop(0)

    monkeypatch.setattr(FedJob, "simulator_run", simulate)
    assert promised == run_python(job, "job.py", {})
    shutil.rmtree("runs")
    four = [f"site-{number}" for number in range(1, 5)]
    assert [four, [*four, "site-5"]] == jobs
    with pytest.raises(SystemExit, match="the run failed: see runs/four"):
        exec(compile(job, "job.py", "exec"), {})
    begun = load_file("initial.safetensors")
    (answer,) = _answers(script, FLModel(params=begun), monkeypatch)
    assert begun.keys() == answer.params.keys()
    assert {"NUM_STEPS_CURRENT_ROUND", "modelkin"} <= answer.meta.keys()
    assert 0 <= answer.metrics["accuracy"] <= 1


def _answers(script: str, message: FLModel, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a site's script answers to one message, which holds tensors as in its process."""
    import torch

    message.params = {name: torch.tensor(values) for name, values in message.params.items()}
    waiting, sent = [message], list[Any]()
    monkeypatch.setattr(flare, "init", lambda: None)
    monkeypatch.setattr(flare, "get_site_name", lambda: "site-1")
    monkeypatch.setattr(flare, "is_running", lambda: bool(waiting))
    monkeypatch.setattr(flare, "receive", waiting.pop)
    monkeypatch.setattr(flare, "send", sent.append)
    exec(compile(script, "client.py", "exec"), {})
    return sent
