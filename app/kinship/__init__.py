"""Answers about kin beyond neighbours: donors, graphs and lineages."""
