"""The benchmark of CUDA devices: complete where there is one, silent where there is none."""

from __future__ import annotations

import pytest
import torch

from benchmarks import gpu, report


def test_without_a_device_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No CUDA: it says so, ends with 1, and the page is as it was."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = gpu.PAGE.read_bytes()
    assert 1 == gpu.main([])
    assert "no CUDA device here" in capsys.readouterr().err
    assert before == gpu.PAGE.read_bytes()


def test_every_way_is_measured_on_any_device() -> None:
    """The race itself, here on the CPU: each way has a time, and the answers agree."""
    torch.set_num_threads(1)
    found = gpu.findings(torch.device("cpu"), (20_000,), rounds=1)
    assert [7] == [len(table.rows) for table in found.tables]
    assert [True] == [row.met for row in found.rows if row.target == "bit-identical"]


def test_the_page_has_a_place_for_it() -> None:
    """The page has a place for the section of a machine with a device."""
    page = gpu.PAGE.read_text()
    assert "figures to come" in report.replaced(page, "gpu", "figures to come")
