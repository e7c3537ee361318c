"""Removed features: the sentence about each leftover, which says that it can go.

A start and ``check`` name removed settings, and a job of a removed kind fails with its sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["JOB_KINDS", "SETTINGS"]

SETTINGS: Final[Mapping[str, str]] = {}
"""The former meaning of each removed variable, by its whole name: the end of "X was ..."."""

JOB_KINDS: Final[Mapping[str, str]] = {
    "stop_list": "stop-lists are gone: method=lsh finds models by all their indices, and a scan is "
    "quick at every size; nothing is to be done in their place",
}
"""The reason why jobs of a removed kind do nothing, and what to do in their place."""
