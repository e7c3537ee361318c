"""Clusters and shards of a federation, round by round, without any engine."""
