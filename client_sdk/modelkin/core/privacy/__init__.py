"""Differentially private supports, and what their revisions spend of a budget."""
