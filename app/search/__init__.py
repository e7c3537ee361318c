"""Search: neighbours of a model or a query, overlaps of pairs, similarity matrices."""
