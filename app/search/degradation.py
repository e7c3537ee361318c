"""Count degraded answers, for those who operate the service."""

from __future__ import annotations

from prometheus_client import Counter

__all__ = ["DegradedAnswers"]


class DegradedAnswers:
    """Counts answers that used another method than intended, or lacked a support.

    Args:
        counter: the metric of these answers, with the label ``operation``.
    """

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def note(self, operation: str) -> None:
        """Count one."""
        self._counter.labels(operation).inc()
