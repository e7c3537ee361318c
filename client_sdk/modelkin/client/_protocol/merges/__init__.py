"""Merges: the calls about them, and what a party does."""
