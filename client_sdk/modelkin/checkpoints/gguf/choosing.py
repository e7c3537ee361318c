"""Which GGUF files of a repository are its model, from their names alone.

A repository holds many quantisations of one model, each in one file or in parts, and files that are
no model of language. Names are those that llama.cpp and its users give:
``model-Q4_K_M.gguf``, ``model.i1-IQ3_XS.gguf``, ``Q8_0/model-Q8_0-00001-of-00002.gguf``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from modelkin.checkpoints.candidates import MACOS
from modelkin.core.quoting import quote
from modelkin.errors import InvalidCheckpoint

__all__ = ["GGUF_SUFFIX", "GgufChoice", "GgufPart", "choose_gguf", "gguf_part_of", "parts_of"]

GGUF_SUFFIX: Final = ".gguf"

_TYPES: Final = (
    *("F64", "F32", "BF16", "F16", "FP16", "Q8_K_XL", "Q8_K_P", "Q8_1", "Q8_0", "Q6_K_XL"),
    *("Q6_K_L", "Q6_K", "Q5_1", "Q5_K_XL", "Q5_K_L", "Q5_K_M", "Q5_K", "Q5_K_S", "Q5_0", "Q4_1"),
    *("Q4_K_XL", "Q4_K_L", "Q4_K_M", "Q4_K", "Q4_K_S", "Q4_0", "IQ4_NL", "MXFP4_MOE", "MXFP4"),
    *("IQ4_XS", "Q3_K_XL", "Q3_K_L", "Q3_K_M", "Q3_K", "Q3_K_S", "IQ3_M", "IQ3_S", "IQ3_XS"),
    *("IQ3_XXS", "Q2_K_XL", "Q2_K_L", "Q2_K", "Q2_K_S", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS"),
    *("TQ2_0", "IQ1_M", "TQ1_0", "IQ1_S"),
)
"""The types of names, those of more bits first."""
_RANKS: Final = {name: rank for rank, name in enumerate(_TYPES)}
_TYPE: Final = re.compile(
    r"(?:^|[-._])(" + "|".join(sorted(_TYPES, key=len, reverse=True)) + r")(?=$|[-._])",
    re.IGNORECASE,
)
_MIX: Final = re.compile(r"[-._](?:i1|ud|imat|imatrix|pure|gguf)(?=$|[-._])", re.IGNORECASE)
"""Words about how a file was quantised, which are no part of the model's name."""
_ASIDE: Final = re.compile(
    r"(?:^|[-._])(?:mmproj|imatrix|ggml-vocab|control-?vector)", re.IGNORECASE
)
"""Projectors of images, matrices of importance, vocabularies: they lie beside a model."""
_PART: Final = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf")
"""A part of a split file, whose numbers have five digits in llama.cpp, too."""


class GgufPart(NamedTuple):
    """A file's place in a split one."""

    stem: str
    number: int
    total: int

    @property
    def first(self) -> str:
        """The name of the first part, by which the model is opened."""
        return _part(self.stem, 1, self.total)


@dataclass(frozen=True, slots=True)
class GgufChoice:
    """The files that are read.

    Attributes:
        paths: the file, or all parts of a split one in order.
        notes: remarks for people, a sentence each.
    """

    paths: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Candidate:
    """A quantisation: its type, its model's name, and its files by their numbers."""

    kind: str | None
    model: str
    total: int
    parts: dict[int, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return self.parts.keys() == set(range(1, self.total + 1))

    @property
    def first(self) -> str:
        return min(self.parts.values())


def choose_gguf(files: Iterable[str], where: str) -> GgufChoice | None:
    """Choose the quantisation with the most bits.

    Args:
        files: the paths of all files of a repository, with ``/`` between folders.
        where: the name of the repository in errors.

    Returns:
        None where there is no GGUF file.

    Raises:
        InvalidCheckpoint: they are of several models, or none is complete.
    """
    found: dict[tuple[str, int], _Candidate] = {}
    aside = 0
    for path in sorted(files):
        name = PurePosixPath(path).name
        if not name.endswith(GGUF_SUFFIX) or name == GGUF_SUFFIX or name.startswith(MACOS):
            continue
        if _ASIDE.search(name):
            aside += 1
            continue
        stem, number, total = gguf_part_of(name) or (name.removesuffix(GGUF_SUFFIX), 1, 1)
        key = str(PurePosixPath(path).parent / stem), total
        candidate = found.setdefault(key, _Candidate(*_described(path, stem), total))
        candidate.parts[number] = path
    if not found:
        if aside:
            raise InvalidCheckpoint(
                f"{where} holds no model: its GGUF files are projectors, matrices of importance or "
                f"vocabularies"
            )
        return None
    return _best([*found.values()], where)


def gguf_part_of(name: str) -> GgufPart | None:
    """The place of a file in a split one, also of one alone, by its name; None for any other."""
    found = _PART.fullmatch(name)
    return None if found is None else GgufPart(found[1], int(found[2]), int(found[3]))


def parts_of(name: str, files: Iterable[str]) -> tuple[str, ...] | None:
    """All parts of a split file by the name of its first; None for other files.

    Args:
        name: a file's name.
        files: the names of all files of its folder.

    Raises:
        InvalidCheckpoint: it is not the first, or others are missing.
    """
    found = gguf_part_of(name)
    if found is None or found.total < 2:
        return None
    if found.number != 1:
        raise InvalidCheckpoint(
            f"{name}: it is part {found.number} of {found.total}: give {found.first}"
        )
    held = set(files)
    names = []
    for number in range(1, found.total + 1):
        names.append(_part(found.stem, number, found.total))
        if names[-1] not in held:
            raise InvalidCheckpoint(f"{name}: part {quote(names[-1])} is missing beside it")
    return tuple(names)


def _described(path: str, stem: str) -> tuple[str | None, str]:
    """The type and the model that a name says; a folder's name may say the type."""
    types = _TYPE.findall(stem) or _TYPE.findall(PurePosixPath(path).parent.name)
    model = _MIX.sub("", _TYPE.sub("", stem)).lower().strip("-._")
    return (types[-1].upper() if types else None), model


def _best(found: list[_Candidate], where: str) -> GgufChoice:
    models = {candidate.model for candidate in found}
    if len(models) > 1:
        some = ", ".join(quote(c.first) for c in found[:3])
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise InvalidCheckpoint(
            f"{where} holds GGUF files of several models, {some}{more}: give one of them, or keep "
            f"one"
        )
    whole = [candidate for candidate in found if candidate.is_whole]
    if not whole:
        raise InvalidCheckpoint(
            f"{where} holds parts of a split GGUF file, such as {quote(found[0].first)}, and not "
            f"all: its upload is not complete"
        )
    best = min(whole, key=lambda c: (_RANKS.get(c.kind or "", len(_RANKS)), c.first))
    paths = tuple(best.parts[number] for number in sorted(best.parts))
    others = len(found) - 1
    notes = (
        f"{quote(paths[0])} is read, the one with the most bits of {len(found)} quantisations",
    )
    return GgufChoice(paths, notes if others else ())


def _part(stem: str, number: int, total: int) -> str:
    return f"{stem}-{number:05d}-of-{total:05d}{GGUF_SUFFIX}"
