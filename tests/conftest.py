"""What all tests share: what needs a CUDA device, or a browser, is left out where there is none."""

from __future__ import annotations

import gc
import os
import shutil
import ssl
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import tiers
from tests.support.servers import forkserver, guardian
from tests.support.servers.browser import BROWSER

# Tests run side by side, and threads of linear algebra that wait for each other spin. numpy reads
# this when it is imported, which the plugins do, and processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

_MEMORY = Path("/dev/shm")
_ROOM = 8 * 2**30


def _folder_for_files() -> Path | None:
    """Memory, where it has room: services sync what they acknowledge, and would wait for a disk."""
    if "TMPDIR" in os.environ or not _MEMORY.is_dir():
        return None
    runs_programs = not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC  # environments are among them
    roomy = shutil.disk_usage(_MEMORY).free > _ROOM
    return _MEMORY if runs_programs and roomy else None


_GUARDIAN = guardian.guard(_folder_for_files())
"""What ends this run; the processes that carry out tests for another one have none."""

# Each HTTP client reads all certificates there are, which takes as long as ten requests.
ssl.create_default_context = cache(ssl.create_default_context)  # type: ignore[assignment]

# How long an example takes, or its making, says how busy a machine is; and fixtures hold for all
# examples of a property alike.
_UNASKED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("tests", deadline=None, suppress_health_check=_UNASKED)
settings.load_profile("tests")

pytest_plugins = ["tests.support.fixtures", "tests.support.jobs.fixtures"]


def pytest_configure(config: pytest.Config) -> None:
    """Start one process to fork services from, for all processes that carry out tests."""
    if config.getoption("numprocesses", None):
        forkserver.share()


def pytest_sessionstart() -> None:
    """Collect without garbage collection: of the ten thousand tests, none is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave out the tests from garbage collections: each took a second more."""
    gc.freeze()
    gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test by the servers that its fixtures are."""
    tiers.mark(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say for which test servers start."""
    tiers.begin(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Leave out what a file has imported, too: some libraries collect garbage at each call."""
    yield
    if nextitem is None or nextitem.path != item.path:
        _freeze()


def _freeze() -> None:
    """What is there stays, and no later collection inspects it."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files of the longest tests, and then with those of most tests that are no
    quick ones: begun last, they would leave all processes but one with nothing. Deselect, and so
    count aloud, the tests marked ``gpu`` or ``browser`` on a machine without one.
    """
    long = Counter(item.path for item in items if item.get_closest_marker("long"))
    rest = Counter(item.path for item in items if not tiers.is_quick(item))
    items.sort(key=lambda item: (-long[item.path], -rest[item.path]))
    for mark, there in (("gpu", _has_gpu), ("browser", _has_browser)):
        marked = [item for item in items if item.get_closest_marker(mark)]
        if marked and not there():
            items[:] = [item for item in items if item not in marked]
            config.hook.pytest_deselected(items=marked)


def pytest_sessionfinish(exitstatus: int) -> None:
    """Keep the files of tests that have failed, for those who look for the reason."""
    if _GUARDIAN and exitstatus == pytest.ExitCode.TESTS_FAILED:
        _GUARDIAN.keep_failed()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests have said with the fixture ``figure``."""
    reports = terminalreporter.getreports("passed")
    lines = [
        f"{report.nodeid.rpartition('/')[2]}: {said}"
        for report in reports
        if report.when == "call"
        for name, said in report.user_properties
        if name == "figure"
    ]
    if lines:
        terminalreporter.section("figures")
    for line in lines:
        terminalreporter.line(line)


def _has_gpu() -> bool:
    import torch  # the other tests of the service need none

    return torch.cuda.is_available()


def _has_browser() -> bool:
    return BROWSER is not None
