"""Queries about stored anatomies and kin, and for lists of them."""
