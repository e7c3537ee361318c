"""No damaged payload makes a decoder fail otherwise than it says, or take memory without bounds."""

from __future__ import annotations

import pytest

from tests.support.fixtures import Figure
from tests.support.repetitions import repetitions
from tests.support.servers import forkserver


@pytest.mark.slow
def test_mutants_of_every_format(figure: Figure) -> None:
    """Each is read, and then written and read as the same, or refused with an error of the
    package: in 256 MiB, and in a time that no reader notices.
    """
    count = repetitions(10_000_000, few=10_000)
    ended = forkserver.run("tests.faults.mutants", f"--count={count}", env={})
    assert 0 == ended.returncode, ended.stdout + ended.stderr
    figure(ended.stdout.strip())
