"""``Moment``: the type of the times in answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec

__all__ = ["Moment"]

Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its offset from UTC; one without would compare with no other time."""
