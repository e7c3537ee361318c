"""Maintenance: clean-up, rebuilt buckets, stop-lists and their measured recall.

Start at :mod:`app.maintenance.cleanup` for the background thread of each process, and at
:mod:`app.maintenance.stop_lists` for stop-lists.
"""
