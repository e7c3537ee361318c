"""The families of pages. A new one is a module with a ``router``, and takes its place in PAGES."""

from __future__ import annotations

from typing import Final

from app.ui.pages import (
    clusterings,
    graph,
    jobs,
    keys,
    learngenes,
    lineages,
    maps,
    matrix,
    merges,
    models,
    pairs,
    search,
    sign_in,
    sources,
    spaces,
    subscriptions,
    uploads,
)

__all__ = ["PAGES"]

PAGES: Final = (
    *(spaces, search, models, pairs, maps, matrix, graph, clusterings, lineages, uploads),
    *(learngenes, merges, jobs, sources, subscriptions, keys, sign_in),
)
"""Modules whose ``router`` the application includes, in this order."""
