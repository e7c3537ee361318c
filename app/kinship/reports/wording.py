"""The sentences of a report: what it is about, and the lines that matter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from app.kinship.reports.evidence import Evidence
from modelkin.core.fingerprints.relations.relation import ORIGIN
from modelkin.types.reports import (
    ContradictedBase,
    CopyGroup,
    LicenseFinding,
    ReportSize,
    TakenApart,
    UndeclaredBase,
)

__all__ = [
    "ESTIMATE",
    "bytes_text",
    "count_text",
    "headlines",
    "moment_text",
    "notes",
    "opening",
    "period_text",
    "share_text",
]

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB", "PB")
_THOUSAND: Final = 1000
_FEW: Final = 10
"""The value from which on bytes are told without a decimal."""


def opening(evidence: Evidence, size: ReportSize) -> str:
    """What the report is about, in a sentence or two."""
    held = count_text(size.fingerprints, "model")
    changed = size.models - size.new
    told = f"The report is about {'all of them' if evidence.period.since is None else _of(size)}."
    if evidence.period.since is not None and size.models:
        told = (
            f"The report is about {_of(size)}: {size.new:,} new, and {changed:,} changed or "
            f"measured again."
        )
    return f"{evidence.owner} holds the fingerprints of {held}. {told}"


def _of(size: ReportSize) -> str:
    return count_text(size.models, "model")


def headlines(
    evidence: Evidence,
    size: ReportSize,
    contradicted: Sequence[ContradictedBase],
    undeclared: Sequence[UndeclaredBase],
    licenses: Sequence[LicenseFinding],
    copies: Sequence[CopyGroup],
    merges: Sequence[TakenApart],
) -> tuple[str, ...]:
    """The five lines that matter, in their order: each with its figures and one example.

    Each names the models that its figures are of, unless these are all: a page of all models, as
    the inbox, counts others.
    """
    is_part = evidence.period.since is not None and size.models
    scope = f" of {_of_these(size.models)}" if is_part else ""
    lines = {
        "Declared bases": _of_contradicted(size, contradicted),
        "Undeclared bases": _of_undeclared(size, undeclared),
        "Licences": _of_licenses(size, licenses),
        "Copies and merges": _of_copies(size, copies, merges),
        "Storage": _of_savings(size),
    }
    return tuple(f"{about}{scope}: {said}" for about, said in lines.items())


def _of_these(models: int) -> str:
    return "this model" if models == 1 else f"these {count_text(models, 'model')}"


def _of_contradicted(size: ReportSize, found: Sequence[ContradictedBase]) -> str:
    judged = count_text(size.declared, "declared base")
    if not found:
        return f"none is contradicted, of {judged} that could be judged."
    first = found[0]
    return (
        f"{size.contradicted:,} of {judged} that could be judged "
        f"{_is(size.contradicted)} contradicted by the weights{_such_as(size.contradicted)} "
        f"{first.declared_base} as the base of {first.model}."
    )


def _of_undeclared(size: ReportSize, found: Sequence[UndeclaredBase]) -> str:
    if not found:
        return "no model shares weights with an older one without naming it."
    first = found[0]
    share = "" if first.share is None else f" ({share_text(first.share)} of its lines)"
    return (
        f"{count_text(size.undeclared, 'model')} "
        f"{'shares' if size.undeclared == 1 else 'share'} weights with an older one without "
        f"naming it{_such_as(size.undeclared)} {first.model} with {first.base}{share}."
    )


def _of_licenses(size: ReportSize, found: Sequence[LicenseFinding]) -> str:
    if not found:
        return "no model declares another licence than the base whose weights it shares."
    first = found[0]
    own = f"declares {first.license}" if first.license else "declares none"
    return (
        f"in {count_text(size.licenses, 'case')} a model declares another licence than a "
        f"base whose weights are in it, or none{_such_as(size.licenses)} {first.model}, which "
        f"{own}, while {first.base} declares {first.base_license}."
    )


def _of_copies(size: ReportSize, copies: Sequence[CopyGroup], merges: Sequence[TakenApart]) -> str:
    said = []
    if copies:
        first = copies[0]
        said.append(
            f"{count_text(size.copies, 'model')} {_is(size.copies)} "
            f"{'a copy' if size.copies == 1 else 'copies'} of another one"
            f"{_such_as(size.copies)} {first.models[-1]} of {first.models[0]}"
        )
    if merges:
        averages = sum(each.kind == "average" for each in merges)
        said.append(
            f"{count_text(size.merges, 'model')} {_is(size.merges)} merged of several "
            f"({averages:,} by averaging){_such_as(size.merges)} {merges[0].model}"
        )
    return f"{', and '.join(said) or 'none was found'}."


def _of_savings(size: ReportSize) -> str:
    if not size.file_bytes:
        return "nobody has stated how large the files are, so no saving is estimated."
    share = share_text(size.saved / size.file_bytes)
    return (
        f"storing differences to bases and copies would take about "
        f"{bytes_text(size.saved)} less than the {bytes_text(size.file_bytes)} of whole files "
        f"({share}); this is an estimate."
    )


def notes(evidence: Evidence) -> tuple[str, ...]:
    """What the report cannot say, or did not look at."""
    said = [
        ORIGIN,
        "A model counts as the base of another one where it is declared and found, where it has "
        "all lines of the other one and is not younger, or where it was published earlier and has "
        "5% of them or more.",
        "That nothing is found proves nothing: weights can be changed so that no line is left.",
        "Licences are shown as they are declared. Nobody has checked them, and the report does not "
        "say what follows from them.",
        ESTIMATE,
    ]
    if evidence.unknown:
        said.append(
            f"{count_text(evidence.unknown, 'declared base')} {_is(evidence.unknown)} not stored "
            f"here, so nothing could be measured against "
            f"{'it' if evidence.unknown == 1 else 'them'}."
        )
    return (*said, *evidence.notes)


def undated(models: int) -> tuple[str, ...]:
    """What is said of models whose undeclared base no date shows."""
    if not models:
        return ()
    declare, they = ("declares", "it is") if models == 1 else ("declare", "they are")
    return (
        f"{count_text(models, 'model')} {declare} no base and may be made from another one, or "
        f"another one from {'it' if models == 1 else 'them'}: weights are in common, and no date "
        f"of publication says which came first. So {they} not among the undeclared bases. "
        f"Lineages of a space list what stands out there.",
    )


ESTIMATE: Final = (
    "What storing differences would save is estimated: half of a model's bytes times the share of "
    "its lines that are found in the model that would be stored whole, and all bytes of an exact "
    "copy. Lines that are found are near to those of the other model, and seldom equal."
)
"""How savings are estimated."""


def count_text(count: int, noun: str) -> str:
    """A count with its noun: ``1 model``, ``1,234 models``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def share_text(share: float) -> str:
    """A share in percent, which says 0% and 100% of nothing else."""
    if 0 < share < 0.01:
        return f"{max(share, 0.0001):.2%}"
    return f"{min(share, 0.999):.1%}" if 0.99 <= share < 1 else f"{share:.0%}"


def bytes_text(count: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    value, unit = float(count), 0
    while value >= _THOUSAND - 0.5 and unit < len(_UNITS) - 1:
        value, unit = value / _THOUSAND, unit + 1
    if unit == 0:
        return f"{count:,} bytes"
    return f"{value:,.{1 if value < _FEW else 0}f} {_UNITS[unit]}"


def moment_text(moment: datetime) -> str:
    """A moment to the minute, in UTC: ``29 November 2026, 21:50 UTC``."""
    utc = moment.astimezone(UTC)
    return f"{utc.day} {_MONTHS[utc.month - 1]} {utc.year}, {utc:%H:%M} UTC"


def period_text(since: datetime | None, until: datetime) -> str:
    """The time of a report; without a begin it is about all models."""
    if since is None:
        return f"All models, as of {moment_text(until)}"
    return f"{moment_text(since)} to {moment_text(until)}"


_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
"""English whatever the locale of the service is."""


def _such_as(count: int) -> str:
    """What stands before an example, which may be the only one."""
    return ":" if count == 1 else ", such as"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
