"""Answers as they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

__all__ = ["LIFETIME", "Answer", "KeptAnswer"]

LIFETIME: Final = timedelta(hours=24)
"""The time for which an answer is kept."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes:
        location: the address of what was made, if it has one.
    """

    status: int
    location: str | None
    content: bytes


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer, with the request that it belongs to.

    Attributes:
        fingerprint: a hash of the request's SHA-256, under the key of secrets.
        encrypted: whether the answer's content is encrypted.
    """

    fingerprint: bytes
    answer: Answer
    encrypted: bool
