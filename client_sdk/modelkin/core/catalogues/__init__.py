"""Catalogues: the fingerprints of well-known bases in one file, which needs no service.

A first upload has nobody to be compared with. A catalogue tells at once which base it comes from.
"""
