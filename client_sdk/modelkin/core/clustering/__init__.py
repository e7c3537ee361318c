"""Clustering of models: quality, linkage, stable cluster ids."""
