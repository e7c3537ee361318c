"""Averages in shards beside what they are compared with in the literature.

The rounds are those of ``modelkin.core.shards`` and ``modelkin.sharing``; the baselines are here
alone.
"""
