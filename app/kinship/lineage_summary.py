"""The summary of a lineage in a sentence or two: the verdict, its reason, and how strong it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from modelkin.types.kinship import Kin, Lineage

__all__ = ["summary_of"]


def summary_of(lineage: Lineage, reason: str | None) -> Lineage:
    """The lineage with its summary.

    Args:
        lineage: complete but for the summary.
        reason: of the judgement of its base; None if there was no judgement.
    """
    say = _UNJUDGED.get(lineage.verdict) or _JUDGED[reason or ""]
    words = say(lineage)
    if lineage.likely_base is not None and reason != "rival":
        words += (
            f" {lineage.likely_base!r} is the nearest model that stands out: it may be the base, "
            f"or be made from this model."
        )
    return replace(lineage, summary=words)


def _shown(kin: Kin | None) -> str:
    """S with its error, where it has one."""
    assert kin is not None
    error = f" ± {kin.standard_error:.3f}" if kin.standard_error else ""
    return f"{kin.similarity:.3f}{error}"


def _usual(lineage: Lineage) -> str:
    return (
        f"unrelated models here have {lineage.usual.similarity:.3f}, and one stands out from "
        f"{lineage.limit:.3f} on"
    )


def _undeclared(lineage: Lineage) -> str:
    no_candidate = "" if lineage.likely_base else " No model stands out as one."
    return f"No base is declared.{no_candidate}"


def _unknown(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} is not in this space, so nothing can be "
        f"measured against it."
    )


def _cycle(lineage: Lineage) -> str:
    way = " -> ".join([lineage.model, *(link.base_model for link in lineage.chain)])
    return f"The declared bases lead back to the model itself ({way}): one of them is wrong."


def _stands_out(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_shown(lineage.base)}; "
        f"{_usual(lineage)}. No other model speaks against it."
    )


def _nearest(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_shown(lineage.base)}, and no other "
        f"model speaks against it; models of this space differ too much for it to stand out."
    )


def _rival(lineage: Lineage) -> str:
    assert lineage.rival is not None
    return (
        f"{lineage.rival.model!r} is nearer, S = {_shown(lineage.rival)}, than the declared base "
        f"{lineage.declared_base!r}, S = {_shown(lineage.base)}, and lies between the two: its S "
        f"to that base is {lineage.rival.to_base:.3f}."
    )


def _background(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} is no nearer than unrelated models are: "
        f"S = {_shown(lineage.base)}; {_usual(lineage)}."
    )


def _doubt(lineage: Lineage) -> str:
    assert lineage.rival is not None
    return (
        f"{lineage.rival.model!r} is nearer, S = {_shown(lineage.rival)}, than the declared base "
        f"{lineage.declared_base!r}, S = {_shown(lineage.base)}, and the data do not show "
        f"whether it was made before or after this model."
    )


def _few(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_shown(lineage.base)}, and there "
        f"are too few other models in this space to compare that with."
    )


def _unclear(lineage: Lineage) -> str:
    return (
        f"The declared base {lineage.declared_base!r} has S = {_shown(lineage.base)}, which may "
        f"or may not be more than unrelated models have; {_usual(lineage)}."
    )


_UNJUDGED: Mapping[str, Callable[[Lineage], str]] = {
    "undeclared": _undeclared,
    "unknown_base": _unknown,
    "cycle": _cycle,
}
_JUDGED: Mapping[str, Callable[[Lineage], str]] = {
    "stands_out": _stands_out,
    "nearest": _nearest,
    "rival": _rival,
    "background": _background,
    "doubt": _doubt,
    "few": _few,
    "unclear": _unclear,
}
