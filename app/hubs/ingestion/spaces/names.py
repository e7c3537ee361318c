"""The keys and the names of the spaces that a source has beside the one that it names.

A key says what a space is for, and the source finds the space by it. The name is for people, by the
rule that pushes to ``auto`` have; spaces of earlier versions have their key as their name.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from modelkin.core.layout import Layout
from modelkin.core.matching.choosing import space_name

__all__ = [
    "DIGEST_DIGITS",
    "adapter_key",
    "continues",
    "layout_key",
    "name_after",
    "sister_key",
    "stem_of",
]

DIGEST_DIGITS: Final = 12
_DIGEST: Final = re.compile(f"[0-9a-f]{{{DIGEST_DIGITS}}}")
_MAX_LENGTH: Final = 100
"""Characters of a key, as of a space's name."""
_MAX_NAME: Final = 90
"""Characters of a name, which leaves room for a number."""


def name_after(space: str, *models: str, kind: str = "") -> str:
    """Return the name of a space beside that of a source, which another space may have.

    Args:
        space: the name of the space that the source names.
        models: the model that the new space is named after, and others that stand in for it where
            its name has no letter.
        kind: ``"delta"`` or ``"lora"``; empty for weights.
    """
    name = space_name(*models)
    ended = f"{name}-{kind}" if kind else name
    return ended if f"{name}-".startswith(f"{space}-") else _with_suffix(space, ended, _MAX_NAME)


def sister_key(key: str, digest: str) -> str:
    """Return the key of the space of differences beside a space.

    Args:
        key: that of the space of weights.
        digest: the digest of the base, in hexadecimal digits; the first 12 count.
    """
    return _with_suffix(key, f"delta-{digest[:DIGEST_DIGITS]}")


def adapter_key(space: str, base: str | None, layout: Layout) -> str:
    """The key of the space of adapters beside a space.

    Args:
        space: the name of the space that the source names.
        base: the name of the base that the adapters change; None if it is not known.
        layout: the tensors that they target.
    """
    facts = json.dumps([base, _layout_digest(layout)], separators=(",", ":"))
    digest = hashlib.sha256(facts.encode()).hexdigest()
    return _with_suffix(space, f"lora-{digest[:DIGEST_DIGITS]}")


def layout_key(space: str, layout: Layout) -> str:
    """Return the key of the space of weights beside a space, for another layout.

    Args:
        space: the name of the space that the source names.
        layout: that of the first checkpoint.
    """
    return _with_suffix(space, _layout_digest(layout))


def stem_of(key: str) -> str:
    """A key without its digest."""
    return key[:-DIGEST_DIGITS]


def continues(stem: str, key: str) -> bool:
    """Whether a key is a stem and a digest."""
    return key.startswith(stem) and bool(_DIGEST.fullmatch(key.removeprefix(stem)))


def _layout_digest(layout: Layout) -> str:
    """12 hexadecimal digits: a digest of the tensors' names and shapes in any order."""
    facts = sorted((tensor.name, tensor.shape) for tensor in layout.tensors)
    text = json.dumps(facts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]


def _with_suffix(space: str, suffix: str, most: int = _MAX_LENGTH) -> str:
    return f"{space[: most - len(suffix) - 1]}-{suffix}"
