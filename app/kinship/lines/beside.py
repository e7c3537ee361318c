"""Lines beside S: what fingerprints add to the lineage of a model of a space.

Within a layout S keeps its verdict. Where lines come to another one, the answer says why: S
compares index by index, and lines wherever they stand.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from app.kinship.lines.caveats import caveats, made_of_it_text
from app.kinship.lines.judge import Lines
from app.kinship.lines.records import JudgedByLines
from modelkin.core.fingerprints.relations.wording import listed, percent
from modelkin.types.lineages import DeclaredBase, Lineage, LineEvidence

__all__ = ["clauses_of_lines", "with_lines"]

_SETTLED: Final = ("consistent", "mismatch")


def with_lines(
    lineage: Lineage,
    lines: Lines | None,
    decided: JudgedByLines | None,
    *,
    is_root: bool = False,
    roots: Collection[str] = (),
) -> Lineage:
    """Add what lines say to the lineage of a model of a space.

    Args:
        lineage: by S alone, with an empty summary.
        lines: of the model; None where it has no fingerprint.
        decided: of the base that decides; None where that has none.
        is_root: whether others declare the model, which declares no base.
        roots: other models of the space that are roots.
    """
    if lines is None:
        return lineage
    evidence = None if decided is None else decided.shown
    lineage = replace(
        lineage,
        relation=lines.relation(evidence),
        lines=evidence,
        lines_agree=_agree(lineage, evidence),
        declared_bases=tuple(map(_with_p, lineage.declared_bases)),
    )
    wanted = lineage.verdict not in ("consistent", "inconclusive")
    by_lines = lineage.reason == "lines" or lineage.likely_base is None
    near = lines.likely_base(is_root=is_root, roots=roots)
    if near is not None and wanted and by_lines:
        likely = near.shown
        lineage = replace(lineage, likely_base=likely.model, likely_by_lines=likely)
    found = evidence or lineage.likely_by_lines
    if found is None or lineage.base is not None or lineage.reason not in (None, "lines"):
        return lineage
    return replace(lineage, log10_p=found.log10_p, no_p=None)


def clauses_of_lines(
    lineage: Lineage, lines: Lines | None, decided: JudgedByLines | None
) -> list[str]:
    """What lines add to a summary: the evidence beside S, and what does not go with it."""
    said = list[str]()
    if lines is None:
        return said
    evidence = lineage.lines
    if evidence is not None and lineage.reason not in (None, "lines"):
        said.append(_beside(lineage, evidence))
    if lines.whole is not None:
        together = "; ".join(each.sentence for each in lines.whole.relations)
        said.append(f"beside several models, by lines: {together}")
    if decided is not None and lineage.verdict != "cycle":
        said += caveats(lines.model, decided)
    said += made_of_it_text(lines.made_of_it)
    return said


def _with_p(base: DeclaredBase) -> DeclaredBase:
    """The P of a base that lines judged."""
    if base.reason != "lines" or base.lines is None:
        return base
    return replace(base, log10_p=base.lines.log10_p, no_p=None)


def _agree(lineage: Lineage, evidence: LineEvidence | None) -> bool | None:
    if evidence is None or lineage.reason in (None, "lines"):
        return None
    if lineage.verdict not in _SETTLED or evidence.verdict not in _SETTLED:
        return None
    return lineage.verdict == evidence.verdict


def _beside(lineage: Lineage, evidence: LineEvidence) -> str:
    share = f"{percent(evidence.share_of_lines)} of the model's lines are the declared base's"
    if evidence.verdict == "mismatch":
        names = listed([repr(name) for name in evidence.sources])
        words = f"no line of the declared base is found, and most of them are those of {names}"
        if lineage.lines_agree is not False:
            return words
        return (
            f"lines say otherwise: {words}. A support and a fingerprint of one name may be of two "
            f"files"
        )
    if lineage.lines_agree is False and lineage.reason == "rival":
        return (
            f"lines do not contradict the declared base: {share}, so it may be the base of the base"
        )
    if lineage.lines_agree is False and lineage.reason == "farther":
        return (
            f"lines do not contradict the declared base: {share}, though by S most other models of "
            f"this space are nearer"
        )
    if lineage.lines_agree is False:
        return (
            f"lines say otherwise: {share}, wherever they stand. S compares index by index, and "
            f"may find nothing where rows, columns or units were put in another order"
        )
    if evidence.verdict == "consistent":
        return f"by lines, too: {share}" if lineage.lines_agree else f"by lines, {share}"
    return (
        "lines alone neither confirm nor contradict the declared base: few tensors are in common"
        if evidence.finding == "few_tensors"
        else "lines alone neither confirm nor contradict the declared base"
    )
