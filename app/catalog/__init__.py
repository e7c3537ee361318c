"""Models and what is stored of each: supports, signatures, sketches, revisions. Start at ``writer``
and ``reader``."""
