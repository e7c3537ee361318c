"""The schema, one module a feature."""
