"""What all tests share: what needs a CUDA device, or a browser, is left out where there is none."""

from __future__ import annotations

import gc

import pytest

from tests.support.servers.browser import BROWSER

pytest_plugins = ["tests.support.fixtures", "tests.support.jobs.fixtures"]

_LONG = (
    "tests/workers/",
    "tests/app/jobs/test_jobs_api.py",
    "tests/app/server/test_processes.py",
    "tests/demo/",
    "tests/packaging/",
)
"""What takes long for a file: begun last, it would leave all processes but one with nothing."""


def pytest_sessionstart() -> None:
    """Collect without garbage collection: of the ten thousand tests, none is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave out the tests from garbage collections: each took a second more."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begins with the long files; deselects, and so counts aloud, the tests marked ``gpu`` or
    ``browser`` on a machine without one.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))
    for mark, there in (("gpu", _has_gpu), ("browser", _has_browser)):
        marked = [item for item in items if item.get_closest_marker(mark)]
        if marked and not there():
            items[:] = [item for item in items if item not in marked]
            config.hook.pytest_deselected(items=marked)


def _has_gpu() -> bool:
    import torch  # the other tests of the service need none

    return torch.cuda.is_available()


def _has_browser() -> bool:
    return BROWSER is not None
