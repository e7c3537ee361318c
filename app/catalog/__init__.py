"""Models and what is stored of each: supports, signatures, sketches, revisions.

Start at :mod:`app.catalog.writer` and :mod:`app.catalog.reader`.
"""
