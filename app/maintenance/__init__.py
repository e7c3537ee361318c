"""Maintenance: clean-up and rebuilt buckets.

Start at :mod:`app.maintenance.cleanup` for the background thread of each process.
"""
