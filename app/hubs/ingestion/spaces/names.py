"""The names of the spaces that a source has beside the one that it names."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from modelkin.core.layout import Layout

__all__ = ["adapter_space_name", "continues", "layout_space_name", "sister_name", "stem_of"]

_DIGEST_DIGITS: Final = 12
_DIGEST: Final = re.compile(f"[0-9a-f]{{{_DIGEST_DIGITS}}}")
_MAX_NAME_LENGTH: Final = 100
"""Characters of a space's name."""


def sister_name(space: str, digest: str) -> str:
    """Return the name of the space of differences beside a space.

    Args:
        space: the name of the space of weights.
        digest: the digest of the base, in hexadecimal digits; the first 12 count.
    """
    return _name_with_suffix(space, f"delta-{digest[:_DIGEST_DIGITS]}")


def adapter_space_name(space: str, base: str | None, layout: Layout) -> str:
    """The name of the space of adapters beside a space.

    Args:
        space: the name of the space of weights.
        base: the name of the base that the adapters change; None if it is not known.
        layout: the tensors that they target.
    """
    facts = json.dumps([base, _layout_digest(layout)], separators=(",", ":"))
    digest = hashlib.sha256(facts.encode()).hexdigest()
    return _name_with_suffix(space, f"lora-{digest[:_DIGEST_DIGITS]}")


def layout_space_name(space: str, layout: Layout) -> str:
    """Return the name of the space of weights beside a space, for another layout.

    Args:
        space: the name of the space that the source names.
        layout: that of the first checkpoint.
    """
    return _name_with_suffix(space, _layout_digest(layout))


def stem_of(name: str) -> str:
    """A name of this module without its digest."""
    return name[:-_DIGEST_DIGITS]


def continues(stem: str, name: str) -> bool:
    """Whether a name is a stem and a digest."""
    return name.startswith(stem) and bool(_DIGEST.fullmatch(name.removeprefix(stem)))


def _layout_digest(layout: Layout) -> str:
    """12 hexadecimal digits: a digest of the tensors' names and shapes in any order."""
    facts = sorted((tensor.name, tensor.shape) for tensor in layout.tensors)
    text = json.dumps(facts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]


def _name_with_suffix(space: str, suffix: str) -> str:
    return f"{space[: _MAX_NAME_LENGTH - len(suffix) - 1]}-{suffix}"
