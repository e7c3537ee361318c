"""Random operations: the service answers, and holds, what a model of it in memory does."""

from __future__ import annotations

import httpx
import pytest

from tests.faults.operations import Operations
from tests.support.fixtures import Figure
from tests.support.repetitions import repetitions
from tests.support.servers.server_process import Server

SEED = 1906


@pytest.mark.slow
def test_operations_at_random(server: Server, figure: Figure) -> None:
    """Each answer is the model's, and so is all that can be read; of most searches, the whole."""
    count = repetitions(200_000, few=100)
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        operations = Operations(http, "random", SEED)
        operations.run(count)
    assert operations.incomplete_searches < operations.searches / 2
    kinds = len(operations.done)
    figure(
        f"{count:,} operations of {kinds} kinds, 0 differences, seed {SEED}; "
        f"{operations.incomplete_searches} of {operations.searches:,} searches incomplete"
    )
