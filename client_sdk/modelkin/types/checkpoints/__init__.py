"""Checkpoints that are pushed, many at a time, and what became of each."""
