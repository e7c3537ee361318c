"""Top-K selection of a support from importances."""
