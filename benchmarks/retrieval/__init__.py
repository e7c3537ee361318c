"""Planted models, peers and verdicts of the benchmarks about retrieval."""
