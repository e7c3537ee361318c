"""Spaces of data subspaces, which are compared where there is data and no model yet.

Models, tags, revisions and batches are the catalog's; here are the comparisons, all of them exact.
"""
