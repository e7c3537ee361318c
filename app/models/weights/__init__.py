"""Weights: digests of the files that supports were made from, and models with equal ones."""
