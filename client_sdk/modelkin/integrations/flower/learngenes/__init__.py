"""Layers that a federation of Flower shares."""
