"""Answers as they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

__all__ = ["LIFETIME", "Answer", "KeptAnswer"]

LIFETIME: Final = timedelta(hours=24)
"""How long an answer is kept."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered.

    Attributes:
        location: of what was made, if there is an address of it.
    """

    status: int
    location: str | None
    content: bytes


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer, and the request that it is to.

    Attributes:
        fingerprint: of the request: a hash of its SHA-256 under the key of secrets.
        encrypted: whether the answer's content is.
    """

    fingerprint: bytes
    answer: Answer
    encrypted: bool
