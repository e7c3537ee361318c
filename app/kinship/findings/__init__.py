"""Findings: the verdict on each model of a space, kept as models come and go."""
