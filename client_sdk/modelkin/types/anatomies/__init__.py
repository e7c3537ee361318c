"""Answers about lines in common: anatomies, relatives, and pairs of tensors."""
