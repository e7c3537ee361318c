"""What a report says of a hub, beside the truth."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tests.soak.kin.members import Member

__all__ = ["Finding", "reported"]

_PAUSE_S: Final = 0.5
Report = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """What one table of a report has.

    Attributes:
        what: the table is of.
        found: how many of those that there are.
        expected: how many there are.
        false: those that are none, for people.
    """

    what: str
    found: int
    expected: int
    false: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.found} of {self.expected}, {len(self.false)} false"


def reported(http: httpx.Client, members: Sequence[Member]) -> Iterator[Finding]:
    """Have a report made of all models, and count."""
    job = http.post("/v1/reports", json={"since": None}).raise_for_status().json()
    while job["state"] in {"queued", "running"}:
        time.sleep(_PAUSE_S)
        job = http.get(f"/v1/jobs/{job['id']}").raise_for_status().json()
    path, accept = f"/v1/reports/{job['id']}", {"Accept": "application/json"}
    report = http.get(path, headers=accept).raise_for_status().json()
    known = {each.name: each for each in members}
    yield _contradictions(report, members)
    yield _bases(report, known)
    yield _copies(report, known)
    yield _merges(report, known)


def _contradictions(report: Report, members: Sequence[Member]) -> Finding:
    said = {f"{row['model']} of {row['declared_base']}" for row in report["contradicted"]}
    claims = [each for each in members if each.is_right is False]
    wrong = {f"{each.name} of {base}" for each in claims for base in each.declared}
    return _finding("contradicted declarations", said, wrong)


def _bases(report: Report, known: Mapping[str, Member]) -> Finding:
    """A base is false that is no kin of a model, or younger, or of a model that names its own.

    A merge may name what its parts were made of, and none of its parts.
    """
    rows = [(known[row["model"]], known[row["base"]]) for row in report["undeclared"]]
    false = tuple(
        f"{one.name} of {base.name}"
        for one, base in rows
        if not one.is_kin(base) or base.created > one.created or (one.is_right and not one.merged)
    )
    silent = {each.name for each in known.values() if each.base and not each.is_right}
    found = silent & {one.name for one, _ in rows}
    return Finding("bases that nobody declares", len(found), len(silent), false)


def _copies(report: Report, known: Mapping[str, Member]) -> Finding:
    said = {
        f"{name} of {_original(known[group['models'][0]])}"
        for group in report["copies"]
        for name in group["models"]
        if name != _original(known[group["models"][0]])
    }
    copies = {f"{each.name} of {each.copied}" for each in known.values() if each.copied}
    return _finding("copies", said, copies)


def _original(member: Member) -> str:
    return member.copied or member.name


def _merges(report: Report, known: Mapping[str, Member]) -> Finding:
    said = {f"{row['model']}, {row['kind']}" for row in report["merges"]}
    merged = {f"{each.name}, {each.merged}" for each in known.values() if each.merged}
    return _finding("merges taken apart", said, merged)


def _finding(what: str, said: Collection[str], true: Collection[str]) -> Finding:
    found = set(said) & set(true)
    return Finding(what, len(found), len(true), tuple(sorted(set(said) - found)))
