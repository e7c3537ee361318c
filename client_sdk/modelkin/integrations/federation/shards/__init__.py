"""Averages in shards at their server, round by round, without any engine."""
