"""Queries about sources, the models of sources, and hub events."""
