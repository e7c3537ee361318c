"""Layers to share: their choice, their scores, and their mean over members."""
