"""Averages in shards beside what they are compared with in the literature.

The rounds are those of ``modelkin.federation``; the baselines are here alone.
"""
