"""The badge of a model: what it is by its weights, and since when, as a small picture.

It is an SVG without scripts, styles or links, so that a page of others may show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from modelkin._terminal_text import one_line, width_of

__all__ = ["badge", "words_of"]

_TITLE: Final = "weights"
_LONGEST: Final = 48
"""Characters of what a badge says; the name of a base is cut beyond."""
_WIDTH: Final = 6.6
_WIDE: Final = 9
_MARGIN: Final = 10
_COLORS: Final[Mapping[str, str]] = {"known": "#2750c8", "merged": "#6b3fa0", "open": "#535c72"}
"""All with white text on them at a contrast of 4.5 or more."""
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("copy", "part", "derived", "reuses", "related"), "known"),
    **dict.fromkeys(("average", "assembled"), "merged"),
}


_WORDS: Final[Mapping[str, str]] = {
    "copy": "a copy of {}",
    "part": "a part of {}",
    "derived": "shares weights with {}",
    "reuses": "reuses tensors of {}",
    "related": "related to {}",
}


def words_of(verdict: str | None, models: Sequence[str]) -> str:
    """What a badge says of a model.

    Args:
        verdict: as in an anatomy; None before it was measured.
        models: those that it is about, the greatest part first.
    """
    if verdict is None:
        return "not measured yet"
    if verdict == "average" and len(models) > 1:
        return f"average of {models[0]} and {models[1]}"
    if verdict == "assembled":
        return f"assembled of {len(models)} models"
    if verdict in _WORDS and models:
        return _WORDS[verdict].format(models[0])
    return "no other model found in them"


def badge(words: str, verdict: str | None, measured_at: datetime | None) -> bytes:
    """The badge with these words, in UTF-8.

    Args:
        words: what the model is, such as ``shares weights with org/base``.
        verdict: as in an anatomy, which chooses the colour; None before it was measured.
        measured_at: when that was found; None before it was measured.
    """
    told = _cut(one_line(words))
    when = "" if measured_at is None else f"{measured_at.astimezone(UTC):%Y-%m-%d}"
    color = _COLORS[_KINDS.get(verdict or "", "open")]
    cells = [(_TITLE, "#30384a"), (told, color), *([(when, "#30384a")] if when else [])]
    label = f"{_TITLE}: {told}{f', measured {when}' if when else ''}"
    boxes, texts, left = [], [], 0.0
    for text, fill in cells:
        width = _width(text)
        boxes.append(f'<rect x="{left:.1f}" width="{width:.1f}" height="20" fill="{fill}"/>')
        texts.append(
            f'<text x="{left + width / 2:.1f}" y="14" textLength="{width - 2 * _MARGIN + 6:.1f}" '
            f'lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
        )
        left += width
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left:.1f}" height="20" role="img" '
        f"aria-label={quoteattr(label)}><title>{escape(label)}</title>"
        f'<clipPath id="round"><rect width="{left:.1f}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#round)">{"".join(boxes)}</g>'
        f'<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" '
        f'font-size="11">{"".join(texts)}</g></svg>\n'
    )
    return svg.encode()


def _cut(text: str) -> str:
    """The text in as much room as a badge has: names differ at their ends, so these stay."""
    if len(text) <= _LONGEST:
        return text
    end = _LONGEST // 3
    return f"{text[: _LONGEST - end - 1]}…{text[-end:]}"


def _width(text: str) -> float:
    narrow = width_of(text)
    return _WIDTH * len(text) + (_WIDE - _WIDTH) * max(narrow - len(text), 0) + 2 * _MARGIN - 6
