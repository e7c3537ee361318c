"""The benchmark of CUDA devices: complete where there is one, silent where there is none."""

from __future__ import annotations

import pytest
import torch

from benchmarks import gpu, summary


def test_without_a_device_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No CUDA: it says so, ends with 1, and its page is as it was."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    page = summary.sections()["gpu"].page
    before = page.read_bytes()
    assert 1 == gpu.main([])
    assert "no CUDA device here" in capsys.readouterr().err
    assert before == page.read_bytes()


def test_every_way_is_measured_on_any_device() -> None:
    """The race itself, here on the CPU: each way has a time, and the answers agree."""
    torch.set_num_threads(1)
    found = gpu.findings(torch.device("cpu"), (20_000,), rounds=1)
    assert [7] == [len(table.rows) for table in found.tables]
    assert [True] * 2 == [row.met for row in found.rows if row.target == "bit-identical"]
