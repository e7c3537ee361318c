"""Federated learning: averages in shards, learngenes, and what parties send of them.

The hub's part of the SDK imports none of it.
"""
