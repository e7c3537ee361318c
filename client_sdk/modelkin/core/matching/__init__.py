"""Tensors by their names: which of two layouts are the same, and the order to read them in."""
