"""Anatomies: which stored models each tensor of a checkpoint comes from, and what follows."""
