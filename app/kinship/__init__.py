"""Answers about kin beyond neighbours: donors, graphs, lineages, clusterings and maps.

Start at :mod:`app.kinship.donors.service`, :mod:`app.kinship.graph` and
:mod:`app.kinship.lineage`. All three read :mod:`app.kinship.neighborhood` or the search.
"""
