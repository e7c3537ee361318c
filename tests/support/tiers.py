"""What a test needs: the markers by which ``make test`` and ``make test-rest`` divide the tests.

A test that asks for a server's fixture is marked by that. What starts a server in another way calls
:func:`needs`, so that a test without the marker fails wherever it runs.
"""

from __future__ import annotations

from typing import Final

import pytest

__all__ = ["begin", "is_quick", "mark", "needs"]

_NEEDED: Final = {
    "postgres": "postgres",
    "shared_redis": "redis",
    "redis": "redis",
    "cluster": "redis",
    "s3": "objects",
    "browser": "browser",
}
"""The marker of each fixture that is a server, or a browser."""
_LATER: Final = frozenset({*_NEEDED.values(), "slow", "mlflow"})
"""The markers of what ``make test`` leaves out, where it is not a smoke test."""
_running: pytest.Item | None = None


def mark(item: pytest.Item) -> None:
    """Mark a test by the fixtures that it asks for."""
    names = {_NEEDED[name] for name in item.fixturenames if name in _NEEDED}  # type: ignore[attr-defined]
    for name in sorted(names):
        item.add_marker(name)


def is_quick(item: pytest.Item) -> bool:
    """Whether ``make test`` has a test."""
    names = {marker.name for marker in item.iter_markers()}
    return "smoke" in names or not names & _LATER


def begin(item: pytest.Item) -> None:
    """Say which test starts servers from now on."""
    global _running
    _running = item


def needs(marker: str) -> None:
    """Refuse to start a server for a test without its marker; other programs may start each."""
    if _running is not None and _running.get_closest_marker(marker) is None:
        raise AssertionError(f"it belongs to another tier: mark it with @pytest.mark.{marker}")
