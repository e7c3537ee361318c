"""Tensors of two layouts that are the same, whatever their names."""
