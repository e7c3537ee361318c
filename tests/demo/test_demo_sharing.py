"""The demo's act of averages in shards, as its user runs it: one command, to a merged model."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest

from demo.sharing import count_stretches
from tests.demo.conftest import demo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished() -> subprocess.CompletedProcess[str]:
    """One whole run."""
    return demo("--sharing", "--once", "--port", "0")


def test_it_ends_well(finished: subprocess.CompletedProcess[str]) -> None:
    """With --once it prints its story and exits with 0 and no word of complaint."""
    assert (0, "") == (finished.returncode, finished.stderr)


def test_the_average_is_exact_and_was_not_readable(
    finished: subprocess.CompletedProcess[str],
) -> None:
    """It is the average by the donors' weights, and the service has no stretch of any weights."""
    worst = re.search(r"average in float64: (\d\.\de-\d\d)", finished.stdout)
    assert worst is not None
    assert float(worst[1]) < 1e-6
    assert re.search(
        r"the service's store: 0 of 30[0-9],[0-9]{3}", " ".join(finished.stdout.split())
    )


def test_donors_help_the_newcomer(finished: subprocess.CompletedProcess[str]) -> None:
    """Without a step and after forty, it does better from the average than without donors."""
    rows = re.findall(r"^ the (?:weights|average) .*?((?: +0\.\d+){3}) *$", finished.stdout, re.M)
    alone, averaged = ([float(figure) for figure in row.split()] for row in rows)
    assert averaged[0] > alone[0] + 0.1
    assert averaged[-1] > alone[-1]


def test_weights_in_the_clear_would_be_found() -> None:
    """The search finds every pair of weights, at whatever byte they begin, and none in noise."""
    rng = np.random.default_rng(0)
    models = {"a": rng.standard_normal(5000).astype(np.float32)}
    for before in range(8):
        assert 4999 == count_stretches(bytes(before) + models["a"].tobytes(), models)
    assert 9 == count_stretches(models["a"][40:50].tobytes(), models)
    assert 0 == count_stretches(rng.bytes(20_000), models)
