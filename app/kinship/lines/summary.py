"""Lineages by lines in sentences: what was seen, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.core.fingerprints.relations.relation import ORIGIN
from modelkin.core.fingerprints.relations.wording import listed, percent
from modelkin.types.lineages import (
    FingerprintLineage,
    LikelyBase,
    Lineage,
    LineEvidence,
    LineRelation,
)

__all__ = [
    "caveats_text",
    "cycle_text",
    "evidence_text",
    "likely_text",
    "origin_text",
    "others_text",
    "with_summary",
]

_LEFT_OPEN: Final = "a long training, an average or a rotation leaves none"


def evidence_text(base: str, lines: LineEvidence) -> str:
    """What lines say of a declared base."""
    return _WORDS[lines.finding](repr(base), lines)


def origin_text(lineage: Lineage | FingerprintLineage) -> str:
    """What equal lines mean, where any are told of; empty without."""
    told = None if lineage.verdict == "cycle" else lineage.lines
    has_some = told is not None and told.finding not in _WITHOUT
    return f" {ORIGIN}" if has_some or lineage.likely_by_lines is not None else ""


def _relations_text(relations: tuple[LineRelation, ...]) -> str:
    """What was measured, in one sentence; empty for nothing."""
    said = "; ".join(each.sentence for each in relations)
    return f" Measured: {said}." if said else ""


def likely_text(likely: LikelyBase) -> str:
    """A model that may be the base."""
    share = f"{percent(likely.share_of_lines)} of this model's lines"
    return f"{likely.model!r} has {share}{_EDGES[likely.edge]}."


def cycle_text(lineage: Lineage | FingerprintLineage) -> str:
    """Where the declared bases lead."""
    way = " -> ".join([lineage.model, *(link.base_model for link in lineage.chain)])
    return f"The declared bases lead back to the model itself ({way}): one of them is wrong."


def others_text(lineage: Lineage | FingerprintLineage, unknown: str) -> str:
    """The verdicts on the other bases of a model that declares several; empty without these.

    Args:
        unknown: the word for a base that could not be measured.
    """
    others = [each for each in lineage.declared_bases if each.base_model != lineage.declared_base]
    if not others or lineage.verdict == "cycle":
        return ""
    words = _VERDICTS | {"unknown_base": unknown}
    said = ", ".join(f"{each.base_model!r}: {words[each.verdict]}" for each in others)
    return f" It declares {len(others) + 1} bases. Of the others, {said}."


def caveats_text(caveats: Iterable[str]) -> str:
    """Clauses that come last, a sentence each."""
    return "".join(f" {each[0].upper()}{each[1:]}." for each in caveats)


def with_summary(
    lineage: FingerprintLineage,
    together: tuple[LineRelation, ...],
    caveats: Iterable[str],
    *,
    is_root: bool,
) -> FingerprintLineage:
    """Add the summary to the lineage of a fingerprint that is complete otherwise.

    Args:
        lineage: one with an empty summary.
        together: what the model is to several of its bases together.
        caveats: clauses that come last.
        is_root: whether models with lines in common declare it.
    """
    words = _verdict_text(lineage, is_root=is_root) + others_text(lineage, "without a fingerprint")
    if together:
        words += f" Beside several models: {'; '.join(each.sentence for each in together)}."
    likely = lineage.likely_by_lines
    if likely is not None and not (lineage.lines and likely.model in lineage.lines.sources):
        words += f" {likely_text(likely)}"
    return replace(lineage, summary=words + origin_text(lineage) + caveats_text(caveats))


def _verdict_text(lineage: FingerprintLineage, *, is_root: bool) -> str:
    base = repr(lineage.declared_base)
    if lineage.verdict == "cycle":
        return cycle_text(lineage)
    if lineage.verdict == "undeclared":
        if is_root and not lineage.likely_base:
            return "No base is declared, and others declare this one: it is the root of a family."
        return "No base is declared." + ("" if lineage.likely_base else f" {_NONE_FOUND}")
    if lineage.lines is None or lineage.declared_base is None:
        return f"The declared base {base} has no fingerprint here, so nothing can be compared."
    return evidence_text(lineage.declared_base, lineage.lines)


def _shares(base: str, lines: LineEvidence) -> str:
    where = f"{lines.found:,} of {lines.tensors:,} tensors"
    return (
        f"The declared base {base} shares weights with this model: {percent(lines.share_of_lines)} "
        f"of its lines are equal, in {where} (P {power_of_ten(lines.log10_p)})."
        + _relations_text(lines.relations)
    )


def _few_tensors(base: str, lines: LineEvidence) -> str:
    return (
        f"The declared base {base} has lines in common with this model in few tensors alone, "
        f"{lines.tensors_of_base}: they may come from elsewhere, and make it no base."
    )


def _related(base: str, lines: LineEvidence) -> str:
    return (
        f"The declared base {base} has {lines.keys:,} lines in common with this model where chance "
        f"leaves {lines.expected:.1f} at most, and no tensor has enough to say more."
    )


def _nothing(base: str, _: LineEvidence) -> str:
    return (
        f"No more lines of the declared base {base} are found in this model than chance gives. "
        f"That proves nothing: {_LEFT_OPEN}."
    )


def _few_lines(base: str, _: LineEvidence) -> str:
    return f"This model and the declared base {base} have too few lines to tell."


def _other_source(base: str, lines: LineEvidence) -> str:
    names = listed([repr(name) for name in lines.sources])
    which = "which has" if len(lines.sources) == 1 else "which have"
    return (
        f"No more lines of the declared base {base} are found in this model than chance gives, and "
        f"most of its lines are those of {names}, {which} nothing in common with that base either."
    )


_WITHOUT: Final = ("nothing", "few_lines")
"""Findings that name no equal lines."""
_NONE_FOUND: Final = "No other model was found that it may be made from. That proves nothing."
_VERDICTS: Final[dict[str, str]] = {
    "consistent": "consistent",
    "mismatch": "contradicted",
    "inconclusive": "open",
}
_WORDS: Final[Mapping[str, Callable[[str, LineEvidence], str]]] = {
    "shares": _shares,
    "few_tensors": _few_tensors,
    "related": _related,
    "nothing": _nothing,
    "few_lines": _few_lines,
    "other_source": _other_source,
}
_EDGES: Final[Mapping[str | None, str]] = {
    "copy": ", and no others: one is a copy of the other",
    "part": ", and more of its own",
    "lines": ", and was published before it",
    "declared": "",
    None: "; which of the two came first, nothing here says",
}
