"""What an inbox holds, as plain frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from modelkin.core.fingerprints.anatomy import AnatomyVerdict

__all__ = ["Copy", "FailedDelivery", "FailedJob", "Family", "Found", "Merged", "Newest"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Newest:
    """A model that was stored; in no space where there is a fingerprint alone."""

    name: str
    space: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Copy:
    """A model whose weights, or all of whose lines, another one has."""

    name: str
    space: str | None
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """A model that was found to be of several, and what it is, in a sentence."""

    name: str
    verdict: AnatomyVerdict
    sentence: str


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job that has failed, and why."""

    id: str
    kind: str
    space: str | None
    error: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """An event that a receiver did not get, after all attempts."""

    id: str
    type: str
    subscription: str
    url: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """How many there are of a kind, and the newest.

    Attributes:
        count: how many there are, or were counted.
        is_more: whether there are more than were counted.
        in_no_space: how many of these came as a fingerprint alone; 0 where there are too many.
    """

    count: int
    newest: Sequence[T]
    is_more: bool = False
    in_no_space: int = 0


@dataclass(frozen=True, slots=True)
class Family:
    """A root with all that is made from it, through any number of steps.

    Attributes:
        space: the space in which the bases are declared; None where lines have found them.
        members: how many models there are, with the root if that is stored; at the least, where
            ``is_more``.
        branches: a few of the models that are made from the root itself, and how many are made from
            each of these.
        more: how many others are made from the root itself.
        is_stored: whether there is a model of the root's name.
        meant: the stored model that a root that is not stored was most likely meant to be.
    """

    root: str
    space: str | None
    members: int
    branches: tuple[tuple[str, int], ...]
    more: int
    is_more: bool = False
    is_stored: bool = True
    meant: str | None = None
