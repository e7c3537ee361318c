"""Spaces and the models in them, their published starting points, and their indexes.

- :mod:`app.models.spaces` has the spaces, and the agreements of their clients.
- :mod:`app.models.index` is derived from the database: signatures in memory, LSH buckets.
- :mod:`app.models.learngenes` publishes starting points of clusters.
- :mod:`app.models.catalog` stores models: supports, signatures, sketches, revisions.
- :mod:`app.models.weights` knows which models are exact copies.
- :mod:`app.models.subspaces` compares data subspaces, for members that have no model yet.
"""
