"""Answers about kin beyond neighbours: donors, graphs and lineages.

Start at :mod:`app.kinship.donors.service`, :mod:`app.kinship.graph` and
:mod:`app.kinship.lineage`. All three read :mod:`app.kinship.neighborhood` or the search.
"""
