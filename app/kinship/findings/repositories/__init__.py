"""Queries of findings, of what they follow, and of acknowledgements."""
