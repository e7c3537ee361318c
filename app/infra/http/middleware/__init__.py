"""Middleware: which page may ask, below which path, for which tenant, with which headers."""
