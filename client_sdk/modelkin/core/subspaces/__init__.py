"""Subspaces of data: what a client's samples span, and how much two of them have in common."""
