"""The elements of the papers: what each is, whether it is here, and what it gives."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

__all__ = ["PAPERS", "STATES", "Element", "Paper", "State", "read"]

State = Literal["works", "differs", "measured", "refuted", "claim", "missing"]
STATES: Final[Mapping[State, str]] = {
    "works": "as the paper has it, in the product",
    "differs": "in the product, in another way, which is said",
    "measured": "in the studies or benchmarks alone",
    "refuted": "a claim that our figures contradict",
    "claim": "a claim or an assumption: nothing to build",
    "missing": "not built, for a reason that is said",
}
PAPERS: Final = ("ios", "eris", "dfl2g")
_FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Element:
    """One thing that a paper defines, claims, measures or compares with.

    Attributes:
        name: in a few words.
        state: one of :data:`STATES`.
        printed: what the paper numbers it as, such as ``Table 3``; empty where it numbers nothing.
        code: the public names that have it, with their modules.
        command: the one that measures it.
        paper: the paper's figure.
        ours: Markdown; a figure of a page is quoted as ``{page#heading | row / cells | column}``.
        note: Markdown: where it stands in the documentation, and why it differs or is missing.
    """

    name: str
    state: State
    printed: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    command: str = ""
    paper: str = ""
    ours: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Paper:
    """One paper and its elements.

    Attributes:
        title: as published.
        about: Markdown; what it is a mode of.
        numbered: how many of each kind the paper numbers, such as ``{"Table": 11}``.
    """

    title: str
    about: str
    numbered: Mapping[str, int]
    elements: tuple[Element, ...]


def read(name: str, folder: Path = _FOLDER) -> Paper:
    """Read one of :data:`PAPERS`.

    Raises:
        ValueError: a row has no such state; says which.
    """
    found = tomllib.loads((folder / f"{name}.toml").read_text())
    elements = []
    for row in found["element"]:
        if row["state"] not in get_args(State):
            raise ValueError(f"{name}.toml: {row['name']}: no state {row['state']}")
        lists = {key: tuple(row.get(key, ())) for key in ("printed", "code")}
        elements.append(Element(**{**row, **lists}))
    return Paper(found["title"], found["about"], found["numbered"], tuple(elements))
