"""The domain: supports, signatures, overlaps and kinship as functions of arrays.

It never does I/O and never imports torch, HTTP or ``modelkin.wire``. Its packages are ordered by an
import contract: index arrays and kernels, codecs, sketching, supports, similarity, and their uses.
"""
