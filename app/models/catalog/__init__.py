"""Models and their stored data: supports, signatures, sketches, revisions.

Start at :mod:`app.models.catalog.writer` and :mod:`app.models.catalog.reader`.
"""
