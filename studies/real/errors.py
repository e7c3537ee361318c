"""Errors of checkpoints that cannot be read, or cannot be had."""

from __future__ import annotations

__all__ = ["InvalidFile", "Unavailable"]


class InvalidFile(ValueError):
    """A file that is truncated, damaged or of another format; says where."""


class Unavailable(Exception):
    """A package that no registry gives, or whose bytes are not those of the manifest."""
