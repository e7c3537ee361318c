"""Merges: the calls about merges, and the part of each party."""
