"""Spaces and the models in them: what is stored, what is published of it, and its index.

- :mod:`app.models.spaces` has the spaces, and what their clients agree on.
- :mod:`app.models.index` is derived from the database: signatures in memory, LSH buckets.
- :mod:`app.models.learngenes` publishes starting points of clusters.
- :mod:`app.models.catalog` stores models: supports, signatures, sketches, revisions.
- :mod:`app.models.subspaces` compares data subspaces, for members that have no model yet.
"""
