"""Maintenance: clean-up, rebuilt buckets, stop-lists and their measured recall."""
