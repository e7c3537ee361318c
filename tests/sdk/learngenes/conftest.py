"""What the tests of learngenes share."""

from __future__ import annotations

import pytest
import torch

torch.set_num_threads(1)  # tests run side by side, and threads that wait would take turns spinning


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test draws the same random numbers."""
    torch.manual_seed(0)
