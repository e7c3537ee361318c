"""Overlap, rankings, background similarity and kNN edges."""
