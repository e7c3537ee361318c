"""The families of pages. A new one is a module with ``routes``, which take their place in PAGES."""

from __future__ import annotations

from typing import Final

from app.ui.pages import (
    anatomies,
    clusterings,
    families,
    graph,
    inbox,
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
)

__all__ = ["PAGES"]

PAGES: Final = (
    *(inbox.routes, inbox.data, spaces.routes, search.routes, models.routes, pairs.routes),
    *(maps.routes, maps.data),
    *(matrix.routes, graph.routes, graph.data, clusterings.routes, lineages.routes),
    *(learngenes.routes, merges.routes, jobs.routes, sources.routes),
    *(subscriptions.routes, keys.routes, sign_in.routes, anatomies.routes),
    *(anatomies.data, families.routes, families.data),
)
"""The routes of all pages, in the order in which they are asked."""
