"""What is declared beside lines, where it does not go with what was measured."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from app.kinship.lines.records import JudgedByLines, ReadModel
from modelkin.core.fingerprints.relations.wording import listed

__all__ = ["caveats", "made_of_it_text"]

_FEWER: Final = 0.8
"""The bits of a quantised file, at most, of those that its base has."""


def caveats(model: ReadModel, base: JudgedByLines) -> list[str]:
    """Clauses about a declared base that was judged by lines."""
    said = []
    own, other = model.record.facts, base.base.facts
    dates = own.published_at, other.published_at
    if dates[0] is not None and dates[1] is not None and dates[1] > dates[0]:
        said.append("the base was published after the model")
    bits, of_base = model.stored_as.bits, base.stored_as.bits
    if own.base_relation == "quantized" and bits and of_base and bits > _FEWER * of_base:
        said.append(
            f"the model is said to be quantised, and its file has {bits:.1f} bits a parameter, "
            f"where the base's has {of_base:.1f}"
        )
    if model.record.stated_by == "hub" and base.base.stated_by == "client":
        said.append("a client sent the fingerprint of the base, so it contradicts nothing")
    return said


def made_of_it_text(names: Collection[str]) -> list[str]:
    """A clause on near models that are no base, since they were made of the model; or none."""
    if not names:
        return []
    near = listed([repr(name) for name in sorted(names)])
    was = "was" if len(names) == 1 else "were each"
    return [f"{near} {was} put together of this model and others, as the tensors show"]
