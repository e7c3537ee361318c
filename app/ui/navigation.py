"""The links of the header and the tabs of a space. A new page that belongs there adds its line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.models.spaces.records import SpaceRecord
from modelkin.types.vocabulary import SpaceKind

__all__ = ["SITE", "SPACE_TABS", "Link", "Tab", "tabs_of"]


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the header.

    Attributes:
        path: its target; the link is current on all pages below, except for ``/``.
    """

    text: str
    path: str


@dataclass(frozen=True, slots=True)
class Tab:
    """A page of a space.

    Attributes:
        key: the page's name of itself, ``tab="map"``.
        path: the path after ``/spaces/{space}``.
        kinds: the kinds of spaces that have it.
    """

    key: str
    text: str
    path: str
    kinds: tuple[SpaceKind, ...] = ("supports", "subspaces")


SITE: Final = (
    Link("Inbox", "/"),
    Link("Spaces", "/spaces"),
    Link("Anatomies", "/anatomies"),
    Link("Check a file", "/check"),
    Link("Jobs", "/jobs"),
    Link("Sources", "/sources"),
    Link("Subscriptions", "/subscriptions"),
    Link("Keys", "/keys"),
    Link("API", "/docs"),
)
"""The links of the header, in order."""

SPACE_TABS: Final = (
    Tab("models", "Models", ""),
    Tab("map", "Map", "/map"),
    Tab("matrix", "Matrix", "/matrix"),
    Tab("graph", "Graph", "/graph"),
    Tab("clusterings", "Clusterings", "/clusterings"),
    Tab("lineages", "Lineages", "/lineages", ("supports",)),
    Tab("upload", "Upload", "/upload"),
    Tab("jobs", "Jobs", "/jobs"),
    Tab("about", "About", "/about"),
)
"""The tabs of a space, in order."""


def tabs_of(space: SpaceRecord) -> list[Tab]:
    """The tabs of a space of this kind."""
    return [tab for tab in SPACE_TABS if space.kind in tab.kinds]
