"""The summary of a lineage in a sentence or two: the verdict, its reason, and how strong it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from app.kinship.lines.summary import (
    caveats_text,
    cycle_text,
    evidence_text,
    likely_text,
    origin_text,
    others_text,
)
from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.core.fingerprints.relations.relation import ORIGIN
from modelkin.core.kinship.lineage import MAX_CHANCE_KAPPA, MIN_KIN_KAPPA
from modelkin.core.similarity.strangers import is_at_chance
from modelkin.types.lineages import Kin, Lineage

__all__ = ["beside_figures", "summary_of"]

_NO_BASE: Final = "No base is declared."
_CHANCE: Final = "The probability that unrelated models have as much in common is {}."
_MAY_BE: Final = "it may be the base, or be made from this model"


def summary_of(
    lineage: Lineage,
    caveats: Iterable[str | None],
    *,
    of_data: bool = False,
    is_root: bool = False,
) -> Lineage:
    """Add the summary to a lineage that is complete otherwise.

    Args:
        lineage: a lineage with an empty summary.
        caveats: clauses that come last; None for none.
        of_data: whether near models of the space have similar data, and may be made from anything.
        is_root: whether others declare the model, which declares no base.
    """
    is_root = is_root and lineage.likely_base is None
    say = _root if is_root else _UNJUDGED.get(lineage.verdict) or _JUDGED[lineage.reason or ""]
    words = say(lineage) + others_text(lineage, "not in this space")
    is_by_lines = lineage.reason == "lines" or lineage.likely_by_lines is not None
    if lineage.log10_p is not None and not is_by_lines and not is_at_chance(lineage.log10_p):
        chance = power_of_ten(lineage.log10_p)
        words += f" {_CHANCE.format(chance)}"
    if lineage.likely_by_lines is not None:
        words += f" {likely_text(lineage.likely_by_lines)}"
    elif lineage.likely_base is not None and lineage.reason != "rival":
        means = "its data are similar" if of_data else _MAY_BE
        words += f" {lineage.likely_base!r} {_place(lineage)}: {means}."
    words += origin_text(lineage) + caveats_text(filter(None, caveats))
    return replace(lineage, summary=words)


def beside_figures(summary: str, likely_base: str | None) -> str:
    """A summary without the sentences that a table of figures says, with what they mean, once.

    Args:
        summary: as :func:`summary_of` wrote it.
        likely_base: that of the same lineage.
    """
    chance = re.escape(_CHANCE).replace(re.escape("{}"), r"\S+")
    words = re.sub(chance, "", summary.replace(ORIGIN, "").replace(_NO_BASE, ""))
    usual = f"{likely_base!r} is the nearest model that stands out: {_MAY_BE}."
    return " ".join(words.replace(usual, "").split())


def _place(lineage: Lineage) -> str:
    """The place of the likely base; it is not called nearest where it is not."""
    near = {each.model: each for each in lineage.kin}
    likely = near.get(lineage.likely_base or "")
    if likely is None:
        return "is a model that stands out"
    nearer = [each for each in lineage.kin if each.similarity > likely.similarity]
    relations = {each.relation for each in nearer if each.relation is not None}
    heirs = [each.model for each in nearer if likely.model in each.base_models]
    if all(each.relation is not None or each.stands_out is not True for each in nearer):
        kin = "derivatives" if relations == {"derivative"} else "relatives"
        apart = f", apart from its declared {kin}" if relations else ""
        return f"is the nearest model that stands out{apart}"
    if heirs:
        return f"stands out, and {heirs[0]!r}, which is nearer, declares it as its base"
    return "is a model that stands out"


def _similarity_text(kin: Kin | None) -> str:
    """S with its error, where it has one."""
    assert kin is not None
    error = f" ± {kin.standard_error:.3f}" if kin.standard_error else ""
    return f"{kin.similarity:.3f}{error}"


def _usual(lineage: Lineage) -> str:
    return (
        f"unrelated models here have {lineage.usual.similarity:.3f}, and one stands out from "
        f"{lineage.limit:.3f} on"
    )


def _by_lines(lineage: Lineage) -> str:
    assert lineage.declared_base is not None
    assert lineage.lines is not None
    return (
        f"{evidence_text(lineage.declared_base, lineage.lines)} It is not in this space, so S says "
        f"nothing of it."
    )


def _chance(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_similarity_text(lineage.base)}, no "
        f"more than chance gives two models that share nothing (kappa = {_kappa(lineage.base)}). A "
        f"model that was made from it would keep more of its weights: a kappa of at least "
        f"{MAX_CHANCE_KAPPA}."
    )


def _beyond_chance(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_similarity_text(lineage.base)}, "
        f"far more than chance gives two models that share nothing (kappa = "
        f"{_kappa(lineage.base)}, and {MIN_KIN_KAPPA} is enough). No other model speaks against it."
    )


def _kappa(kin: Kin | None) -> str:
    assert kin is not None
    assert kin.kappa is not None
    return f"{round(kin.kappa, 2) + 0.0:.2f}"  # without the sign of a rounded zero


def _undeclared(lineage: Lineage) -> str:
    no_candidate = "" if lineage.likely_base else " No model stands out as one."
    return f"{_NO_BASE}{no_candidate}"


def _root(lineage: Lineage) -> str:
    words = "No base is declared, and others declare this one: it is the root of a family."
    silent = [
        each.model
        for each in lineage.kin
        if each.stands_out and each.relation is None and not each.base_models
    ]
    if silent:
        words += f" {silent[0]!r}, which declares none, may be made from it, or be its base."
    return words


def _unknown(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} is not in this space, and one of the two has "
        f"no fingerprint, so nothing can be measured against it."
    )


def _stands_out(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_similarity_text(lineage.base)}; "
        f"{_usual(lineage)}. No other model speaks against it."
    )


def _nearest(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_similarity_text(lineage.base)}, "
        f"and no other model speaks against it; models of this space differ too much for it to "
        f"stand out."
    )


def _rival(lineage: Lineage) -> str:
    assert lineage.rival is not None
    return (
        f"{lineage.rival.model!r} is nearer, S = {_similarity_text(lineage.rival)}, than the "
        f"declared base {lineage.declared_base!r}, S = {_similarity_text(lineage.base)}, and lies "
        f"between the two: its S to that base is {lineage.rival.to_base:.3f}."
    )


def _background(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} is no nearer than unrelated models are: "
        f"S = {_similarity_text(lineage.base)}; {_usual(lineage)}."
    )


def _farther(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_similarity_text(lineage.base)}, "
        f"far less than most models of this space have: {lineage.usual.similarity:.3f} in the "
        f"middle of those that are not declared to be its kin."
    )


def _differences(lineage: Lineage) -> str:
    if lineage.base is None:
        return (
            f"This space holds differences from {lineage.declared_base!r}, the declared base. They "
            f"cannot contradict it."
        )
    return (
        f"The declared base {lineage.declared_base!r} has S = {_similarity_text(lineage.base)} "
        f"here, and differences cannot contradict it."
    )


def _pinned(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_similarity_text(lineage.base)}, "
        f"and the revision of it that this model names cannot be compared."
    )


def _doubt(lineage: Lineage) -> str:
    assert lineage.rival is not None
    return (
        f"{lineage.rival.model!r} is nearer, S = {_similarity_text(lineage.rival)}, than the "
        f"declared base {lineage.declared_base!r}, S = {_similarity_text(lineage.base)}, and the "
        f"data do not show whether it was made before or after this model."
    )


def _few(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_similarity_text(lineage.base)}, "
        f"and there are too few other models in this space to compare that with."
    )


def _changed(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has changed since, and the revision that "
        f"this model may be made from cannot be compared. Of those that can, the nearest has "
        f"S = {_similarity_text(lineage.base)}."
    )


def _unclear(lineage: Lineage) -> str:
    has = f"The declared base {lineage.declared_base!r} has S = {_similarity_text(lineage.base)}, "
    if lineage.log10_p is not None and not is_at_chance(lineage.log10_p):
        return (
            f"{has}more than chance gives unrelated models (kappa = {_kappa(lineage.base)}), and "
            f"less than a base and its model mostly have, {MIN_KIN_KAPPA}. The other models of "
            f"this space do not decide between the two."
        )
    return f"{has}which may or may not be more than unrelated models have; {_usual(lineage)}."


_UNJUDGED: Mapping[str, Callable[[Lineage], str]] = {
    "undeclared": _undeclared,
    "unknown_base": _unknown,
    "cycle": cycle_text,
}
_JUDGED: Mapping[str, Callable[[Lineage], str]] = {
    "chance": _chance,
    "kappa": _beyond_chance,
    "stands_out": _stands_out,
    "nearest": _nearest,
    "rival": _rival,
    "background": _background,
    "farther": _farther,
    "differences": _differences,
    "doubt": _doubt,
    "few": _few,
    "unclear": _unclear,
    "changed": _changed,
    "pinned": _pinned,
    "lines": _by_lines,
}
