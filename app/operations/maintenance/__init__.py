"""Maintenance: clean-up and rebuilt buckets.

Start at :mod:`app.operations.maintenance.cleanup` for the background thread of each process.
"""
