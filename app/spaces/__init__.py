"""Spaces and the support sizes their clients agree on."""
