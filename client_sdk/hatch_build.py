"""The addresses of a release, which builds of the wheel and the sdist take from the environment.

A build without ``MODELKIN_PROJECT_URL`` names none: an invented address would lead to a stranger.
``client_sdk/hatch_build.py`` is this file, too, since each distribution is built by itself.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {
    "Homepage": "",
    "Documentation": "/tree/main/docs",
    "Source": "",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}
"""Where each page is, below the address of the repository."""


class ProjectUrls(MetadataHookInterface):
    """Fill in ``urls`` below the address in ``MODELKIN_PROJECT_URL``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the addresses to the metadata; refuse one that a browser could not open."""
        address = os.environ.get("MODELKIN_PROJECT_URL", "").rstrip("/")
        if address and not address.startswith("https://"):
            raise ValueError(f"MODELKIN_PROJECT_URL has to begin with https://, not {address!r}")
        metadata["urls"] = {name: address + page for name, page in PAGES.items() if address}
