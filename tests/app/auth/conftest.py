"""Redis servers for the counters of rate limits."""

from tests.app.index.buckets.conftest import cluster, single

__all__ = ["cluster", "single"]
