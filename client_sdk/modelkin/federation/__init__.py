"""Federated learning: averages in shards, learngenes, and what parties send of them.

Of the client, ``merges`` alone imports it. Signatures, searches and clusterings need none of it.
"""
