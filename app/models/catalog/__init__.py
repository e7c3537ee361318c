"""Models and what is stored of each: supports, signatures, sketches, revisions.

Start at :mod:`app.models.catalog.writer` and :mod:`app.models.catalog.reader`.
"""
