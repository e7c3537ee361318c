"""The list of bases that a catalogue is made of: a line of words for each."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from modelkin.core.catalogues.base import Base
from modelkin.core.kinship.lineage import BaseRelation
from modelkin.core.quoting import quote
from modelkin.errors import InvalidParameter

__all__ = ["Wanted", "read_list"]

_FACTS: Final = ("name", "url", "revision", "license", "date", "base", "relation")
_LOCAL: Final = ("/", "./", "../", "~")
_WEIGHTS: Final = (".safetensors", ".gguf", ".index.json", ".mkfp")


@dataclass(frozen=True)
class Wanted:
    """A line of a list.

    Attributes:
        line: its number, from 1.
        text: a repository of a hub, or the path of a checkpoint or a fingerprint.
        is_local: whether it is a path.
        facts: what the line says of the base, by the names of :data:`_FACTS`.
    """

    line: int
    text: str
    is_local: bool
    facts: tuple[tuple[str, str], ...]

    @property
    def path(self) -> Path:
        """The path of a local one."""
        return Path(self.text).expanduser()

    @property
    def revision(self) -> str | None:
        """The branch, tag or commit that is asked of the hub."""
        return dict(self.facts).get("revision")

    def key(self, of: str) -> str:
        """A name for what is read of it, which is another one where the line or ``of`` is."""
        said = json.dumps([self.text, self.is_local, self.facts, of])
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def told(self, base: Base) -> Base:
        """A base with what the line says of it in place of what its hub does."""
        for fact, text in self.facts:
            if fact == "date":
                base = replace(base, published_at=_time(text))
            elif fact == "base":
                base = replace(base, base_models=tuple(text.split(",")))
            elif fact == "relation":
                base = replace(base, base_relation=cast(BaseRelation, text))
            elif fact == "revision" and not self.is_local:
                continue  # the commit is kept, and not the branch
            elif fact == "name" and (base.name == text or base.name.startswith(f"{text}/")):
                continue  # as it was told before
            elif fact == "name" and not self.is_local:  # components keep what is behind the name
                base = replace(base, name=text + base.name.removeprefix(self.text))
            else:
                given: dict[str, Any] = {fact: text}
                base = replace(base, **given)
        return base


def read_list(lines: Iterable[str], where: str) -> Iterator[Wanted]:
    """The lines of a list; what is behind ``#`` is none of it.

    Args:
        lines: such as ``org/name``, ``org/name@revision`` or ``model.safetensors license=mit``.
        where: the name of the list, for errors.

    Raises:
        InvalidParameter: a line is none; names it.
    """
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
            if words:
                yield _wanted(number, *words)
        except ValueError as error:
            raise InvalidParameter(f"{where}, line {number}: {error}", field="list") from None


def _wanted(number: int, text: str, *words: str) -> Wanted:
    facts = dict[str, str]()
    for word in words:
        fact, equals, value = word.partition("=")
        if fact not in _FACTS or not equals or not value:
            raise ValueError(f"{quote(word)} is none of {'=..., '.join(_FACTS)}=...")
        if fact in facts:
            raise ValueError(f"{fact} is there twice")
        facts[fact] = value
    if "date" in facts:
        _time(facts["date"])
    is_local = text.startswith(_LOCAL) or text.endswith(_WEIGHTS) or Path(text).exists()
    if not is_local:
        text, at, revision = text.partition("@")
        if at:
            facts.setdefault("revision", revision)
    return Wanted(number, text, is_local, tuple(sorted(facts.items())))


def _time(text: str) -> datetime:
    """A date, or a time with or without its zone."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
