"""The rules for names of spaces, models and tags, for the SDK and the service alike.

The allow-list keeps out what breaks further down: NUL and control characters (databases refuse
them), ``.`` and ``..`` segments (HTTP clients collapse them), two spellings of one text (hence
NFC). Whether a name exists is not checked here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from modelkin.errors import InvalidName, InvalidParameter

__all__ = [
    "MAX_MODEL_BYTES",
    "MAX_TAGS",
    "MAX_TAG_BYTES",
    "MAX_BASE_MODELS",
    "QUESTIONS",
    "check_attributes",
    "check_base_models",
    "check_model_name",
    "check_space_name",
    "check_tag",
    "check_tags",
    "quote_model",
    "quote_whole_name",
]

MAX_MODEL_BYTES: Final = 200
MAX_TAG_BYTES: Final = 100
MAX_TAGS: Final = 50
MAX_BASE_MODELS: Final = 32
"""The most bases of a model: cards of merges name up to twenty."""

QUESTIONS: Final = frozenset({"anatomy", "badge.svg", "lineage", "relatives", "tensors"})
"""What a service is asked about a fingerprint: the last segments of paths behind a model's name."""

_SPACE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_PUNCTUATION = frozenset(" ._-@+:/")
# Composition never shortens UTF-8 below a quarter, so what is longer still is refused before it is
# normalised: putting a long run of combining marks in order takes quadratic time.
_MAX_SHRINK = 4


def check_space_name(name: Any, *, field: str = "space") -> str:
    """The name of a space, as given.

    Args:
        name: 1 to 100 characters, ``[a-z0-9][a-z0-9._-]{0,99}``.
        field: what the error calls it.

    Raises:
        InvalidName: not a string, empty, too long or another character; says which and where.
    """
    text = _as_text(name, field)
    if _SPACE_NAME.fullmatch(text):
        return text
    if not text:
        raise InvalidName("a space name may not be empty", field=field)
    if len(text) > 100:
        raise InvalidName(f"a space name has at most 100 characters, not {len(text)}", field=field)
    at = next(i for i in range(len(text)) if not _SPACE_NAME.fullmatch(text[: i + 1]))
    allowed = "a-z, 0-9, '.', '_' and '-'" if at else "a-z and 0-9"
    raise InvalidName(
        f"space name {_quote(text)} has {_character(text, at)}; "
        f"{'allowed are' if at else 'it may begin with'} {allowed}",
        field=field,
    )


def check_model_name(name: Any, *, field: str = "model") -> str:
    """The name of a model in normal form C, which is the form that is stored and compared.

    Args:
        name: letters, marks and digits of any script, ``. _ - @ + :``, spaces inside a segment and
            single ``/`` between segments; no segment is empty, ``.`` or ``..``; 1 to 200 bytes of
            UTF-8 after normalisation.
        field: what the error calls it.

    Raises:
        InvalidName: says what is wrong and where.
    """
    text = _check_text(name, "model name", MAX_MODEL_BYTES, field)
    for position, segment in enumerate(text.split("/"), start=1):
        wrong = _wrong_segment(segment)
        if wrong:
            message = f"segment {position} of model name {_quote(text)} {wrong}"
            raise InvalidName(message, field=field)
    return text


def check_base_models(names: Iterable[Any], *, field: str = "base_models") -> tuple[str, ...]:
    """The declared bases of a model: distinct, in the order given.

    Args:
        names: at most 32 distinct names of models.
        field: what the error calls them; a single wrong name is ``base_models[position]``.

    Raises:
        InvalidName: one of them is not a model's name, there are too many, or one string was given
            where several are meant.
    """
    if isinstance(names, str):
        message = f"{field} is one string, {_quote(names)}; give a list of strings"
        raise InvalidName(message, field=field)
    distinct: dict[str, None] = {}
    for position, name in enumerate(names):
        distinct[check_model_name(name, field=f"{field}[{position}]")] = None
        if len(distinct) > MAX_BASE_MODELS:
            raise InvalidName(f"a model has at most {MAX_BASE_MODELS} bases", field=field)
    return tuple(distinct)


def check_tag(tag: Any, *, field: str = "tag") -> str:
    """A tag in normal form C.

    Args:
        tag: the characters of model names, 1 to 100 bytes of UTF-8, no space at either end.
        field: what the error calls it.

    Raises:
        InvalidName: says what is wrong and where.
    """
    text = _check_text(tag, "tag", MAX_TAG_BYTES, field)
    if text != text.strip(" "):
        raise InvalidName(f"tag {_quote(text)} begins or ends with a space", field=field)
    return text


def check_tags(tags: Iterable[Any], *, field: str = "tags") -> tuple[str, ...]:
    """The tags of a model: distinct, in code point order.

    Args:
        tags: at most 50 distinct tags, in any order; repeated ones count once.
        field: what the error calls them; a single wrong tag is ``tags[position]``.

    Raises:
        InvalidName: one of them is not a tag, there are too many, or one string was given where
            several are meant.
    """
    if isinstance(tags, str):
        message = f"{field} is one string, {_quote(tags)}; give a list of strings"
        raise InvalidName(message, field=field)
    distinct: set[str] = set()
    for position, tag in enumerate(tags):
        if isinstance(tag, str) and tag in distinct:
            continue
        distinct.add(check_tag(tag, field=f"{field}[{position}]"))
        if len(distinct) > MAX_TAGS:
            raise InvalidName(f"a model has at most {MAX_TAGS} tags", field=field)
    return tuple(sorted(distinct))


def check_attributes(attributes: Any, *, field: str = "attributes") -> dict[str, Any]:
    """The attributes of a model: values by name.

    Raises:
        InvalidParameter: no mapping was given, or a name is no text.
    """
    if not isinstance(attributes, Mapping) or not all(isinstance(name, str) for name in attributes):
        raise InvalidParameter(
            f'{field} is a dictionary of JSON values by name, such as {{"epochs": 3}}, not '
            f"{_quote(attributes)}",
            field=field,
        )
    return dict(attributes)


def quote_model(name: Any) -> str:
    """A model name as the tail of a URL path: checked, then percent-encoded segment by segment.

    Source: RFC 3986, section 2.1; nothing but unreserved characters and ``/`` stays as it is.

    Raises:
        InvalidName: as :func:`check_model_name`.
    """
    return "/".join(quote(segment, safe="") for segment in check_model_name(name).split("/"))


def quote_whole_name(name: str) -> str:
    """A model name as the end of the path of a fingerprint, percent-encoded but not checked.

    The last slash of ``org/anatomy`` is written ``%2F``: else it asks for the anatomy of ``org``.
    """
    before, slash, last = quote(name, safe="/").rpartition("/")
    return before + ("%2F" if slash and last in QUESTIONS else slash) + last


def _check_text(value: Any, what: str, max_bytes: int, field: str) -> str:
    """Type, alphabet and length, which model names and tags share; returns the normal form."""
    text = _as_text(value, field)
    if not text:
        raise InvalidName(f"a {what} may not be empty", field=field)
    if len(text) > max_bytes * _MAX_SHRINK:
        message = f"a {what} has at most {max_bytes} bytes of UTF-8, {_quote(text)} has more"
        raise InvalidName(message, field=field)
    text = unicodedata.normalize("NFC", text)
    for at, character in enumerate(text):
        if not _is_allowed(character):
            raise InvalidName(
                f"{what} {_quote(text)} has {_character(text, at)}; allowed are letters and "
                f"digits, spaces inside, and . _ - @ + : /",
                field=field,
            )
    size = len(text.encode())
    if size > max_bytes:
        message = f"{what} {_quote(text)} has {size} bytes of UTF-8, at most {max_bytes} may be"
        raise InvalidName(message, field=field)
    return text


def _as_text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidName(f"{field} must be a string, not {type(value).__name__}", field=field)
    return value


def _is_allowed(character: str) -> bool:
    # Letters (L*), the marks they carry (M*) and digits (N*); controls and surrogates are C*.
    return character in _PUNCTUATION or unicodedata.category(character)[0] in "LMN"


def _wrong_segment(segment: str) -> str | None:
    if not segment:
        return "is empty"
    if segment in {".", ".."}:
        return f"is {segment!r}, which URLs collapse"
    if segment != segment.strip(" "):
        return "begins or ends with a space"
    return None


def _character(text: str, at: int) -> str:
    return f"{text[at]!a} (U+{ord(text[at]):04X}) at position {at}"


def _quote(text: str) -> str:
    """The text for a message: escaped where it does not print, and never long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
