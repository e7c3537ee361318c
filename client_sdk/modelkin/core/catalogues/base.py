"""A base of a catalogue: what is known of it beside its fingerprint, and the text that says so."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from modelkin._validation import check_base_models, check_model_name
from modelkin.core.codecs import catalogue as codec
from modelkin.core.codecs.catalogue import AGAIN, refuse
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.foreign_json import has_control_character
from modelkin.core.kinship.lineage import BASE_RELATIONS, BaseRelation
from modelkin.core.quoting import quote
from modelkin.errors import InvalidName

__all__ = ["Base", "check_base", "seconds_of", "text_of", "time_of", "with_text"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TEXT: Final = 2_000
"""Characters of an address, a revision or a licence."""
_FIELDS: Final = 5
"""Lines of a text before the declared bases: name, address, revision, licence, relation."""
_MAX_SIZE: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Base:
    """What a catalogue knows of a base. All but the name may be unknown, and none is checked.

    Attributes:
        name: as its hub has it, ``org/name`` for one.
        url: the address that its weights come from.
        revision: the commit or version there.
        license: the name of its licence, as its publisher states it.
        published_at: when it was published, to a second.
        base_models: the bases that its publisher declares.
        base_relation: what the publisher says that it is of them.
        file_bytes: the bytes of its weights' files.
        parameters: how many it has.
        digest: of the fingerprint that is kept; empty before it is put in a catalogue.
        size: the bytes of that.
    """

    name: str
    url: str | None = None
    revision: str | None = None
    license: str | None = None
    published_at: datetime | None = None
    base_models: tuple[str, ...] = ()
    base_relation: BaseRelation | None = None
    file_bytes: int | None = None
    parameters: int = field(default=0, kw_only=True)
    digest: str = field(default="", kw_only=True)
    size: int = field(default=0, kw_only=True)

    def of(self, fingerprint: Fingerprint, size: int) -> Base:
        """The same base with the fingerprint that is kept of it, which takes so many bytes."""
        return replace(
            self,
            parameters=sum(each.size * len(each.names) for each in fingerprint.tensors),
            digest=fingerprint.digest,
            size=size,
        )

    def to_json(self) -> dict[str, Any]:
        """All of it in JSON's types."""
        date = None if self.published_at is None else self.published_at.isoformat()
        return asdict(self) | {"base_models": list(self.base_models), "published_at": date}


def check_base(base: Base) -> None:
    """Refuse what a catalogue has no place for.

    Raises:
        InvalidCatalogue: names the field and the value.
    """
    try:
        given = (base.name, *base.base_models)
        checked = (check_model_name(base.name), *check_base_models(base.base_models))
    except InvalidName as error:
        refuse("bases.name", f"{error}")
    if given != checked:
        refuse("bases.name", f"{quote(base.name)} has names in another normal form, or repeated")
    for name in ("url", "revision", "license"):
        text = getattr(base, name)
        if text is None:
            continue
        if not 1 <= len(text) <= _MAX_TEXT or has_control_character(text) or "\ufffd" in text:
            refuse(f"bases.{name}", f"{quote(base.name)} has {quote(text)}, which is no such text")
    if base.base_relation not in (None, *BASE_RELATIONS):
        refuse("bases.relation", f"{quote(base.name)} has {quote(base.base_relation)}")
    if base.file_bytes is not None and not 1 <= base.file_bytes <= _MAX_SIZE:
        refuse("bases.file_bytes", f"{quote(base.name)} has {quote(base.file_bytes)}")
    if base.published_at is not None and base.published_at.tzinfo is None:
        refuse("bases.published", f"{quote(base.name)} has a date without a time zone")


def text_of(base: Base) -> bytes:
    """The text of a base: lines of UTF-8, of which the last ones are its declared bases."""
    lines = (base.name, base.url, base.revision, base.license, base.base_relation)
    text = "\n".join([*(line or "" for line in lines), *base.base_models]).encode()
    if len(text) > codec.MAX_TEXT_BYTES:
        refuse("bases.text", f"{quote(base.name)} has {len(text):,} bytes: give it shorter texts")
    return text


def with_text(text: bytes, number: int) -> Base:
    """The base that a text names, without what stands in the table.

    Raises:
        InvalidCatalogue: it is no such text.
    """
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError as error:
        refuse(f"bases[{number}].text", f"it is not UTF-8 ({error.reason}): {AGAIN}")
    if len(lines) < _FIELDS:
        refuse(f"bases[{number}].text", f"it has {len(lines)} lines of {_FIELDS}: {AGAIN}")
    name, url, revision, license_name, relation, *bases = lines
    return Base(
        name,
        url or None,
        revision or None,
        license_name or None,
        base_models=tuple(bases),
        base_relation=cast(BaseRelation | None, relation or None),
    )


def seconds_of(time: datetime | None) -> int:
    """Whole seconds since 1970."""
    return codec.UNKNOWN_DATE if time is None else (time - _EPOCH) // timedelta(seconds=1)


def time_of(seconds: int, number: int) -> datetime | None:
    """The time that a table says.

    Raises:
        InvalidCatalogue: no calendar has it.
    """
    if seconds == codec.UNKNOWN_DATE:
        return None
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        refuse(f"bases[{number}].published", f"{seconds} is in no year: {AGAIN}")
