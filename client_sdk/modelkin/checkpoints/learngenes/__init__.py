"""Learngenes on disk: layers that are cut from a checkpoint, and their averages."""
