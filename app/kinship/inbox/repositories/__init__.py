"""Queries of the inbox: each reads what it shows, or counts in an index up to a limit."""
