"""``statements_of``: what the files of a checkpoint say of it beside its weights, unchecked.

The card of its folder counts before the metadata of its files. Of the card's front matter the few
plain forms are read that model cards have: a text, or a list of texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from modelkin._validation import MAX_BASE_MODELS, MAX_TAGS, check_model_name, check_tag
from modelkin.checkpoints.catalogues.front_matter import broken_line
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.gguf import GGUF_SUFFIX
from modelkin.checkpoints.gguf.header import read_gguf_header
from modelkin.checkpoints.header import read_metadata
from modelkin.core.kinship.lineage import BaseRelation, relation_of
from modelkin.errors import InvalidCheckpoint, InvalidName

__all__ = ["Statements", "bytes_of", "moment_of", "statements_of", "tags_of", "unread_base_of"]

_CARD: Final = "README.md"
_MAX_CARD: Final = 1 << 16
"""Bytes of a card that are read: its front matter is at its beginning."""
_MAX_TEXT: Final = 200
"""Characters of a licence, as of a hub's."""
_FIELD: Final = re.compile(r"([A-Za-z_]{1,64}):(?:[ \t]+(.*))?")
_ITEM: Final = re.compile(r"[ \t]*-[ \t]+(.*)")
_LISTED: Final = "general.base_model.{}.repo_url"


@dataclass(frozen=True, slots=True)
class Statements:
    """What is said of a checkpoint.

    Attributes:
        license: its licence.
        published_at: when it was published.
        base_models: the models that it is made from.
        base_relation: what it is of them.
    """

    license: str | None = None
    published_at: datetime | None = None
    base_models: tuple[str, ...] = ()
    base_relation: BaseRelation | None = None


def statements_of(checkpoint: Checkpoint, *, has_card: bool = True) -> Statements:
    """What a checkpoint's files say of it; nothing where they cannot be read as such.

    Args:
        checkpoint: the checkpoint.
        has_card: whether the card in its folder is about it.
    """
    first = _first(checkpoint)
    card = _card_of(first.parent) if has_card else {}
    held = dict[str, Sequence[str]]()
    with suppress(InvalidCheckpoint, OSError):
        held = _of_gguf(first) if first.suffix.lower() == GGUF_SUFFIX else _of_safetensors(first)
    # A card of the licence "other" names it, as the catalogue reads it of a repository.
    licenses = (card.get("license_name"), card.get("license"), held.get("license"))
    return Statements(
        license=next(filter(None, map(_text, licenses)), None),
        published_at=moment_of(_text(held.get("date")) or ""),
        base_models=_names(card.get("base_model") or held.get("base_model") or ()),
        base_relation=relation_of(_text(card.get("base_model_relation"))),
    )


def tags_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """What the card in a checkpoint's folder sorts it under; nothing without one."""
    return _tags(_card_of(_first(checkpoint).parent).get("tags") or ())


def unread_base_of(checkpoint: Checkpoint, *, has_card: bool = True) -> str | None:
    """Why a base that the card of a checkpoint's folder declares is not read; None if all is.

    Args:
        checkpoint: the checkpoint.
        has_card: whether the card in its folder is about it.
    """
    folder = _first(checkpoint).parent
    if not has_card or not (text := _text_of_card(folder)).startswith("---"):
        return None
    if (lines := _front_matter(text)) is None:
        return f"nothing of {_CARD} is read: its front matter has no second line of ---"
    if (broken := broken_line(lines)) is not None:
        return (
            f"nothing of {_CARD} is read, no base, licence or tag: line {broken + 1} of it is no "
            f"YAML"
        )
    names = _card_of(folder).get("base_model")
    if names is None:
        named = any(line.lstrip().startswith("base_model:") for line in lines)
        return f"base_model of {_CARD} is not read: begin its line with it" if named else None
    for name in names:
        try:
            check_model_name(name)
        except InvalidName as error:
            return f"a base_model of {_CARD} is not read: {error}"
    is_given = any(line.startswith("base_model:") and line[11:].strip() for line in lines)
    if not names and is_given:
        return f"base_model of {_CARD} is not read: write a name there, or a list of names"
    return None


def bytes_of(checkpoint: Checkpoint) -> int:
    """The bytes of the files that hold a checkpoint's tensors."""
    return sum(path.stat().st_size for path in {each.path for each in checkpoint.stored})


def moment_of(text: str) -> datetime | None:
    """A date, or a time with or without its zone, as ISO 8601 writes it; None for other texts."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _first(checkpoint: Checkpoint) -> Path:
    return min((tensor.path for tensor in checkpoint.stored), default=checkpoint.path)


def _of_safetensors(path: Path) -> dict[str, Sequence[str]]:
    """What a header's metadata says under its own names, or those of ModelSpec."""
    metadata = read_metadata(path)
    found = dict[str, Sequence[str]]()
    for name, keys in (
        ("license", ("license", "modelspec.license")),
        ("base_model", ("base_model",)),
        ("date", ("modelspec.date",)),
    ):
        found[name] = [metadata[key] for key in keys if key in metadata]
    return found


def _of_gguf(path: Path) -> dict[str, Sequence[str]]:
    """What a header says under the names of the format; a base by the address of its repository."""
    header = read_gguf_header(path)
    addresses = [header.text(_LISTED.format(at)) for at in range(MAX_BASE_MODELS)]
    return {
        "license": [header.text("general.license") or ""],
        "base_model": [_repository(address) for address in addresses if address],
    }


def _repository(address: str) -> str:
    try:
        return urlsplit(address).path.strip("/")
    except ValueError:
        return ""


def _text_of_card(folder: Path) -> str:
    """The beginning of a folder's card; empty without one."""
    try:
        with (folder / _CARD).open("rb") as file:
            return file.read(_MAX_CARD).decode("utf-8", "replace")
    except OSError:
        return ""


def _front_matter(card: str) -> list[str] | None:
    """The lines between the first line of a card and the next of ``---``; None without both."""
    first, *lines = card.splitlines() or [""]
    ends = [*map(str.rstrip, lines)]
    if first.rstrip() != "---" or "---" not in ends:
        return None
    return lines[: ends.index("---")]


def _card_of(folder: Path) -> Mapping[str, Sequence[str]]:
    """The front matter of a folder's card, by field; nothing without one."""
    found, items = dict[str, Sequence[str]](), list[str]()
    lines = _front_matter(_text_of_card(folder)) or []
    if broken_line(lines) is not None:  # a hub refuses such a card, too
        return {}
    for line in lines:
        if field := _FIELD.fullmatch(line):
            items = [*_texts(field[2] or "")]
            found[field[1]] = items
        elif item := _ITEM.fullmatch(line):
            items += _texts(item[1])
    return found


def _texts(written: str) -> Iterator[str]:
    """Yield the plain or quoted texts of a value; none of any other form."""
    written = written.strip()
    if written.startswith("[") and written.endswith("]"):
        for each in written[1:-1].split(","):
            yield from _texts(each)
        return
    if written[:1] in ("'", '"'):
        end = written.find(written[0], 1)
        yield written[1:end] if end > 0 else ""
    elif written and written[0] not in "|>&*!{[":
        yield written.partition(" #")[0].rstrip()


def _text(given: Sequence[str] | None) -> str | None:
    """The only text of a value, if it is a short one in one line."""
    texts = [text.strip() for text in given or () if text.strip()]
    if not texts or not texts[0].isprintable() or len(texts[0]) > _MAX_TEXT:
        return None
    return texts[0]


def _names(given: Sequence[str]) -> tuple[str, ...]:
    """Those of the texts that are names of models."""
    found = dict[str, None]()
    for each in given:
        with suppress(InvalidName):
            found[check_model_name(each)] = None
    return tuple(found)[:MAX_BASE_MODELS]


def _tags(given: Sequence[str]) -> tuple[str, ...]:
    """Those of the texts that can be tags."""
    found = dict[str, None]()
    for each in given:
        with suppress(InvalidName):
            found[check_tag(each)] = None
    return tuple(found)[:MAX_TAGS]
