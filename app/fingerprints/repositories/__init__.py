"""Queries about fingerprints: their rows and payloads, and the change feed of a tenant."""
