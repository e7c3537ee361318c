"""Preconditions of changes: the check that a request makes of the present state."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Precondition"]

Precondition = Callable[[str, str | None], None]
"""A check of the thing to change, by its name and its version tag, None where there is none.

The check is called under the lock of the space. It raises
:class:`app.infra.errors.PreconditionFailed` unless the thing is as expected.
"""
