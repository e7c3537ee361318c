"""The in-process signature index and the LSH buckets, both derived from the database.

Start at :mod:`app.models.index.space_index` for the array that a scan reads, and at
:mod:`app.models.index.buckets.service` for LSH. :mod:`app.models.index.cascade` holds the stages of
a search.
"""
