"""Garbage collection around imports."""

from __future__ import annotations

import gc

import pytest

from app.infra.garbage import without_collection


def test_an_import_that_fails_leaves_the_collector_on() -> None:
    """A process that goes on after a failed import collects its garbage."""
    with pytest.raises(ImportError), without_collection():
        raise ImportError
    assert gc.isenabled()
