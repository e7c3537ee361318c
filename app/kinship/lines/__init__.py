"""Lineages across layouts: declared bases judged by the lines of fingerprints."""
