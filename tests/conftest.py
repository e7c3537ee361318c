"""What all tests share: what needs a CUDA device is left out where there is none."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.support.fixtures", "tests.support.jobs.fixtures"]

_LONG = (
    "tests/workers/",
    "tests/app/jobs/test_jobs_api.py",
    "tests/app/server/test_processes.py",
    "tests/demo/",
    "tests/packaging/",
)
"""What takes long for a file: begun last, it would leave all processes but one with nothing."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begins with the long files; deselects, and so counts aloud, the tests marked ``gpu`` on a
    machine without one.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch  # the other tests of the service need none

    if torch.cuda.is_available():
        return
    items[:] = [item for item in items if item not in marked]
    config.hook.pytest_deselected(items=marked)
