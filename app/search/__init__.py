"""Search: neighbours of a model or a query, overlaps of pairs, similarity matrices.

Start at :mod:`app.search.service`; :mod:`app.search.comparer` compares a query with candidates.
"""
