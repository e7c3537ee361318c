"""Count degraded answers, for those who operate the service."""

from __future__ import annotations

from prometheus_client import Counter

__all__ = ["DegradedAnswers"]


class DegradedAnswers:
    """Answers by another method than the one that was to be used, or without a support.

    Args:
        counter: the metric, with the label ``operation``.
    """

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def note(self, operation: str) -> None:
        """Count one."""
        self._counter.labels(operation).inc()
