"""The version of the SDK, apart so that packaging, package and client read it without a cycle."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.2.0"
