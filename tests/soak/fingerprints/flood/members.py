"""A hub of a popular base and of bystanders, and what forgers invent of the base."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import numpy as np

from app.fingerprints.records import NO_FACTS, Facts, StatedBy
from modelkin import Fingerprint
from tests.sdk.core.fingerprints.planted import DERIVED, fingerprint, model

__all__ = ["BASE", "FORGERS", "OTHER", "Member", "forged_line", "members", "newcomers"]

BASE, OTHER = "org/base", "org/other"
_STORED: Final = (*("renamed", "fused", "fewer tokens", "permuted units", "flipped"), "up-scaled")
"""What hubs make of a base, and store; every other one is read by the service."""
_SENT: Final = ("8 bits", "noise .2", "transposed")
"""What newcomers are."""
_PUBLISHED: Final = datetime(2024, 5, 1, tzinfo=UTC)
_EARLIER: Final = "2020-01-01T00:00:00Z"
"""The date that forgers state."""
_CHANGED_KEYS: Final = 40
_MASKS: Final = 8


@dataclass(frozen=True, eq=False)
class Member:
    """A stored model.

    Attributes:
        is_of_base: whether it has lines of the popular base; else it is a bystander.
    """

    name: str
    fingerprint: Fingerprint = field(repr=False)
    is_of_base: bool
    stated_by: StatedBy = "hub"
    facts: Facts = NO_FACTS


def members(made: Sequence[str] = _STORED) -> list[Member]:
    """The base and what was made of it, bystanders of another family, and one that is alone.

    Args:
        made: what was made of both.
    """
    base, other = model(0), model(1)
    known = [
        Member(BASE, fingerprint(base, None), True, facts=Facts(published_at=_PUBLISHED)),
        Member(OTHER, fingerprint(other, None), False, facts=Facts(published_at=_PUBLISHED)),
        Member("org/alone", fingerprint(model(2), None), False),
    ]
    for number, how in enumerate(made):
        stated: StatedBy = "hub" if number % 2 else "client"
        for name, weights in ((BASE, base), (OTHER, other)):
            child = fingerprint(DERIVED[how](weights), None)
            known.append(Member(f"{name}/{how}", child, name == BASE, stated, Facts((name,))))
    layers = {name: other[name] for name in other if name.startswith(("layers.0", "layers.1"))}
    matrices = {name: other[name] for name in ("layers.3.q", "layers.3.k")}
    for name, parts in (("two layers", layers), ("two matrices", matrices)):
        mixed = fingerprint(base | parts, None)
        known.append(Member(f"org/{name} of another", mixed, True, "client"))
    return known


def newcomers(made: Sequence[str] = _SENT) -> Mapping[str, Fingerprint]:
    """What is made of the base and sent as a question."""
    return {how: fingerprint(DERIVED[how](model(0)), None) for how in made}


# --- forgers ----------------------------------------------------------------------------------


def _copy(base: Fingerprint, number: int) -> Fingerprint:
    """All keys of the base but for a few."""
    draw = np.random.default_rng(number)
    return _invented(base, draw, draw.choice(base.keys.size, _CHANGED_KEYS, replace=False))


def _half(base: Fingerprint, number: int) -> Fingerprint:
    """Half of the base's keys, another half each."""
    draw = np.random.default_rng(number)
    return _invented(base, draw, np.flatnonzero(draw.random(base.keys.size) < 0.5))


def _mask(base: Fingerprint, number: int) -> Fingerprint:
    """A part of the base's keys that many have who share nothing else, so that it looks common."""
    mask = np.random.default_rng(number % _MASKS).random(base.keys.size) < 0.4
    return _invented(base, np.random.default_rng([number, 1]), np.flatnonzero(mask))


FORGERS: Final[tuple[Callable[[Fingerprint, int], Fingerprint], ...]] = (_copy, _half, _mask)


def _invented(
    base: Fingerprint, draw: np.random.Generator, places: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Fingerprint:
    """The base with keys in some places that no file has."""
    keys = base.keys.copy()
    keys[places] = draw.integers(0, 2**64 // base.scale - 1, places.size, np.uint64)
    order = np.argsort(keys, kind="stable")
    return replace(base, keys=keys[order], owners=base.owners[order], lengths=base.lengths[order])


def forged_line(base: Fingerprint, number: int) -> bytes:
    """The line of a batch that stores a forgery: it declares the base, and an earlier date."""
    made = FORGERS[number % len(FORGERS)](base, number)
    said = {
        "model": f"forged/{number}",
        "fingerprint": base64.b64encode(made.to_bytes()).decode(),
        "base_models": [BASE],
        "published_at": _EARLIER,
    }
    return json.dumps(said).encode() + b"\n"


def forged_lines(base: Fingerprint, begin: int, end: int) -> Iterator[bytes]:
    """The lines of some forgeries."""
    return (forged_line(base, number) for number in range(begin, end))
