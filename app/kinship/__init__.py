"""Answers about kin beyond neighbours: donors, graphs, lineages, clusterings and maps.

Start at :mod:`app.kinship.donors.service`, :mod:`app.kinship.graph` and :mod:`app.kinship.lineage`,
which read :mod:`app.kinship.neighborhood` or the search. Separate features are
:mod:`app.kinship.clustering`, :mod:`app.kinship.maps` and :mod:`app.kinship.notifications`, which
notifies subscribers of changes among kin.
"""
