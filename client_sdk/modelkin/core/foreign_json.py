"""JSON of strangers: headers, indexes and configurations of files, and the answers of hubs.

All of it is decoded here. A text that is decoded has no half of a surrogate pair, so every database
and every encoder takes it. Parts that no caller asks for stay bytes, and cost no objects.
"""

from __future__ import annotations

import re
import threading
from codecs import BOM_UTF8
from typing import Any, Final, TypeVar, overload

import msgspec
import numpy as np
from msgspec import Raw

from modelkin._processes import PerProcess

__all__ = [
    "NULL",
    "Raw",
    "count_members",
    "decode_json",
    "decoder_of",
    "has_control_character",
    "with_constants_as_texts",
    "without_half_pairs",
]

T = TypeVar("T")

NULL: Final = Raw(b"null")
"""The default of a field that stays undecoded."""

_LEARNING: Final = PerProcess(threading.RLock)
_LEARNT: Final = dict[Any, msgspec.json.Decoder[Any]]()
"""The decoders by the forms that they read."""
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_HALF_A_PAIR: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
_TEXT_OR_CONSTANT: Final = re.compile(rb'("(?:[^"\\]|\\.)*+"?)|(-?(?:NaN|Infinity))', re.DOTALL)
_BACKSLASH, _IN_ITS_PLACE = rb"\\", b"\0\0"
"""An escaped backslash, behind which no escape begins; and what no JSON has."""
_MAX_REPLACED: Final = 100_000
_QUOTE, _COLON = 0x22, 0x3A
_DROPPED: Final = bytes(set(range(256)) - {_QUOTE, _COLON})


@overload
def decode_json(data: bytes | bytearray | str | Raw) -> Any: ...
@overload
def decode_json(data: bytes | bytearray | str | Raw, form: type[T]) -> T: ...
def decode_json(data: bytes | bytearray | str | Raw, form: Any = Any) -> Any:
    """Decode a JSON text (RFC 8259); NaN, infinities, other encodings than UTF-8 are refused.

    A mark of UTF-8 before it, as editors write one, is passed over. Of a name that is repeated in
    an object the last value counts.

    Args:
        data: the text, or a part that stayed undecoded.
        form: the type of the value, as msgspec has it; parts of the type ``Raw`` stay undecoded.

    Raises:
        msgspec.ValidationError: the value is of another type; the message may quote a stranger.
        ValueError: it is not JSON, or holds what is no text; says what and where.
    """
    if isinstance(data, bytes | bytearray):
        data = data.removeprefix(BOM_UTF8)
    try:
        return decoder_of(form).decode(data)
    except msgspec.ValidationError:
        raise
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(_half_a_pair(data) or str(error)) from None


def decoder_of(form: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a form, made once; whatever reads a form in threads takes it from here.

    msgspec 0.22 works out the fields of a class at its first use. Where two threads do so at once,
    one of them reads what the other has not filled in, and the process crashes.
    """
    decoder = _LEARNT.get(form)
    if decoder is None:
        with _LEARNING.get():
            decoder = _LEARNT.get(form)  # another thread may have learnt it meanwhile
            if decoder is None:
                decoder = _LEARNT[form] = msgspec.json.Decoder(form)
    return decoder


def has_control_character(text: str) -> bool:
    """Whether a text has a character that terminals obey and Postgres may refuse, such as NUL."""
    return _CONTROL.search(text) is not None


def count_members(data: bytes | Raw) -> int:
    """Count the members of all objects of a JSON text, repeated names too, in little memory."""
    text = bytes(data)
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(text.translate(None, _DROPPED), np.uint8)
    within = np.cumsum(marks == _QUOTE, dtype=np.uint8) & 1  # wraps at 256, and stays odd or even
    return int(np.count_nonzero((marks == _COLON) & (within == 0)))


def without_half_pairs(data: bytes | bytearray) -> bytes | bytearray:
    """A JSON text with U+FFFD, the replacement character, for each half of a surrogate pair.

    A text that has a hundred thousand surrogates stays as it is.
    """
    if not 0 < data.count(b"\\ud") + data.count(b"\\uD") <= _MAX_REPLACED or b"\0" in data:
        return data
    plain = _HALF_A_PAIR.sub(rb"\\ufffd", data.replace(_BACKSLASH, _IN_ITS_PLACE))
    return plain.replace(_IN_ITS_PLACE, _BACKSLASH)


def with_constants_as_texts(data: bytes) -> bytes:
    """A JSON text with texts in place of the NaN and infinities that Python writes into it.

    JSON has no such numbers; JSON of protobuf has these texts for them.
    """
    if b"NaN" not in data and b"Infinity" not in data:
        return data
    return _TEXT_OR_CONSTANT.sub(lambda found: found[1] or b'"%b"' % found[2], data)


def _half_a_pair(data: bytes | bytearray | str | Raw) -> str | None:
    """Say where a text that could not be decoded has half of a surrogate pair, if that is why."""
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    found = _HALF_A_PAIR.search(text.replace(_BACKSLASH, _IN_ITS_PLACE))
    if found is None:
        return None
    return f"{found[0].decode()} at byte {found.start()} is half a surrogate pair, and no text"
