"""``lineage``, ``revisions`` and ``duplicates``: origins of models, their drift, exact copies."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from modelkin._terminal_text import one_line
from modelkin.cli.options import add_limit, add_service, first_rows, usual_space
from modelkin.cli.output import Answer, as_notes, fields_of, pairs, quantity, table
from modelkin.cli.texts import (
    count_text,
    score_cells,
    share_text,
    state_text,
    text_or_dash,
    time_text,
)
from modelkin.client import Client
from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.core.kinship.lineage import MIN_KIN_KAPPA
from modelkin.errors import InvalidParameter
from modelkin.types.lineages import DeclaredBase, FingerprintLineage, Lineage
from modelkin.types.models import DuplicateWeights
from modelkin.types.reports.audits import LineageFinding, LineageTotals
from modelkin.types.revisions import Revision

__all__ = [
    "acknowledge",
    "acknowledge_options",
    "duplicates",
    "duplicates_options",
    "lineage",
    "lineage_options",
    "revisions",
    "revisions_options",
]

_Judged: TypeAlias = Lineage | LineageFinding | FingerprintLineage

_DIGITS = len("sha256:") + 12
"""Characters that a table has of a digest."""


def lineage_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``lineage``."""
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a model of the space; without one, all of them"
    )
    parser.add_argument(
        "--verdict",
        action="append",
        default=[],
        choices=("consistent", "mismatch", "inconclusive", "unknown_base", "undeclared", "cycle"),
        help="only models with this verdict; repeats",
    )
    parser.add_argument("--base-model", metavar="NAME", help="only models that declare this base")
    parser.add_argument(
        "--acknowledged", action="store_true", help="show acknowledged findings, too"
    )
    parser.add_argument(
        "--fingerprint",
        action="store_true",
        help="judge MODEL by its fingerprint, in no space; so it is where no space is known",
    )
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="exit with 1 where a finding is other than consistent, for scripts; in a space of "
        "differences, which contradict no base, only where a base is not the one of the space",
    )
    add_limit(parser)
    add_service(parser, required=False)


def revisions_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``revisions``."""
    parser.add_argument("model", metavar="MODEL", help="a model of the space")
    add_service(parser)


def duplicates_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``duplicates``."""
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a model of the space; without one, all weights"
    )
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 where there are some, for scripts"
    )
    add_limit(parser)
    add_service(
        parser,
        space="only weights of which this space has a model; with MODEL, else MODELKIN_SPACE",
        required=False,
    )


def lineage(arguments: argparse.Namespace) -> Answer:
    """``modelkin lineage``: compare declared bases with similarities, of one model or all."""
    space = None if arguments.fingerprint else arguments.space or usual_space()
    if arguments.model is None:
        return _audit(arguments, space)
    if arguments.verdict or arguments.base_model:
        raise InvalidParameter("--verdict and --base-model narrow all models: leave out MODEL")
    with Client(arguments.url, arguments.api_key) as client:
        if space is None:
            return _of_fingerprint(arguments, client.fingerprint_lineage(arguments.model))
        found = client.lineage(space, arguments.model)
    columns, scores = score_cells(found.kin)
    rows = [
        (*score, state_text(_three_way(kin.stands_out)), text_or_dash(kin.relation))
        for score, kin in zip(scores, found.kin, strict=True)
    ]
    text = pairs(_lineage_summary(found))
    if rows:
        text += "\n\n" + table((*columns, "STANDS OUT", "RELATION"), rows)
    code = _exit_code(
        arguments, [found] if found.verdict != "undeclared" or found.likely_base else []
    )
    return Answer(text, fields_of(found), as_notes(found.note), code)


def _of_fingerprint(arguments: argparse.Namespace, found: FingerprintLineage) -> Answer:
    """The lineage of a model of no space: what lines say of its declared bases."""
    lines = found.lines
    summary = {
        "verdict": state_text(found.verdict),
        "why": found.summary,
        "declared base": text_or_dash(found.declared_base),
        "likely base": text_or_dash(found.likely_base),
        **_relation_rows(found),
    }
    if lines is not None:
        summary["tensors"] = f"{lines.found:,} of {lines.tensors:,} have lines of the base"
        summary["new tensors"] = text_or_dash(lines.new_tensors)
    if len(found.declared_bases) > 1:
        summary["declared bases"] = ", ".join(
            f"{each.base_model} {state_text(each.verdict)}" for each in found.declared_bases
        )
    if found.chain:
        links = [f"{link.base_model} ({share_text(link.share_of_lines)})" for link in found.chain]
        summary["chain"] = " < ".join([found.model, *links])
    says = found.verdict != "undeclared" or found.likely_base
    code = _exit_code(arguments, [found] if says else [])
    return Answer(pairs(summary), fields_of(found), code=code)


def _audit(arguments: argparse.Namespace, space: str | None) -> Answer:
    if space is None:
        raise InvalidParameter(
            "name a model, or a space with --space (or set MODELKIN_SPACE)", field="space"
        )
    with Client(arguments.url, arguments.api_key) as client:
        base = arguments.base_model
        everything = None if arguments.acknowledged else False
        listed = client.lineages(
            space, verdict=arguments.verdict, base_model=base, acknowledged=everything
        )
        findings = list(listed)
        totals = client.lineage_totals(space, base_model=base)
    found, more = first_rows(findings, arguments, len(findings))
    columns = (
        *("MODEL", "VERDICT", "DECLARED BASE", "S TO BASE", "KAPPA", "NEAREST", "S TO NEAREST"),
        "LIKELY BASE",
    )
    text = table(columns, map(_finding_row, found)) + more if found else "no findings"
    if found and not arguments.verdict:
        text = f"in all: {_counts(totals)}\n\n{text}"
    fields = {"items": [fields_of(each) for each in found], "totals": fields_of(totals)}
    notes = tuple(_left_out(totals, all_shown=arguments.acknowledged))
    return Answer(text, fields, notes, code=_exit_code(arguments, findings))


def _exit_code(arguments: argparse.Namespace, findings: Iterable[_Judged]) -> int:
    """1 if the command asks for an exit code and any finding, shown or not, is doubtful; else 0."""
    return int(arguments.exit_code and any(map(_is_doubtful, findings)))


def _is_doubtful(found: _Judged) -> bool:
    """Whether a verdict is other than consistent, in a space that can give another one."""
    return found.verdict != "consistent" and found.reason != "differences"


def _counts(totals: LineageTotals) -> str:
    """The findings of a space by verdict, in words."""
    return ", ".join(f"{n:,} {state_text(name)}" for name, n in totals.found.items() if n)


def _left_out(totals: LineageTotals, *, all_shown: bool) -> Iterator[str]:
    """What an audit does not list, in words."""
    known = sum(totals.acknowledged.values())
    if known and not all_shown:
        yield f"{quantity(known, 'acknowledged finding')} left out; --acknowledged shows them, too"
    if totals.pending:
        yield f"{quantity(totals.pending, 'model')} not judged yet; ask again in a while"


def _finding_row(found: LineageFinding) -> tuple[str, ...]:
    return (
        found.model,
        state_text(found.verdict),
        text_or_dash(", ".join(found.declared_bases) or found.declared_base),
        share_text(found.base_similarity),
        share_text(found.kappa),
        text_or_dash(found.nearest),
        share_text(found.nearest_similarity),
        text_or_dash(found.likely_base),
    )


def acknowledge_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``acknowledge``."""
    parser.add_argument("model", metavar="MODEL", help="a model of the space")
    parser.add_argument("--note", metavar="TEXT", help="why, for others; 500 characters at most")
    parser.add_argument(
        "--withdraw", action="store_true", help="have its finding open again instead"
    )
    add_service(parser)


def acknowledge(arguments: argparse.Namespace) -> Answer:
    """``modelkin acknowledge``: say that what an audit finds about a model is known."""
    space, model = arguments.space, arguments.model
    with Client(arguments.url, arguments.api_key) as client:
        if arguments.withdraw:
            client.models.withdraw_acknowledgement(space, model)
            return Answer(f"the finding about {model} is open again", {"model": model})
        found = client.models.acknowledge(space, model, note=arguments.note)
    about = found.declared_base or found.likely_base
    named = "" if about is None else f" about {about}"
    text = f"acknowledged: {found.model} is {state_text(found.verdict)}{named}"
    noted = found.acknowledgement and found.acknowledgement.note
    return Answer(one_line(f"{text}; noted: {noted}" if noted else text), fields_of(found))


def revisions(arguments: argparse.Namespace) -> Answer:
    """``modelkin revisions``: the past contents of a model, and how similar they are."""
    with Client(arguments.url, arguments.api_key) as client:
        found = client.revisions.list(arguments.space, arguments.model)
    columns = ("REVISION", "TIME", "INDICES", "KEPT", "S TO PREVIOUS", "S TO FIRST")
    text = table(columns, [_revision_row(revision) for revision in found])
    return Answer(text, fields_of(found))


def _lineage_summary(found: Lineage) -> dict[str, str]:
    usual = found.usual
    summary = {
        "verdict": state_text(found.verdict),
        "why": found.summary,
        "declared base": text_or_dash(found.declared_base),
        "likely base": text_or_dash(found.likely_base),
        "stands out from": _limit_text(found),
        "usual": f"{share_text(usual.similarity)} ±{share_text(usual.deviation)} "
        f"of {quantity(usual.models, 'model')}",
    }
    if len(found.declared_bases) > 1:
        summary["declared bases"] = ", ".join(map(_base_text, found.declared_bases))
    summary |= _relation_rows(found)
    if found.chain:
        links = [f"{link.base_model} ({share_text(link.similarity)})" for link in found.chain]
        summary["chain"] = " < ".join([found.model, *links])
    return summary


def _limit_text(found: Lineage) -> str:
    """From where on a model stands out; by kappa where models below the limit of S do.

    Kappa decides first. Where all models beside it are kin of each other, the limit is theirs.
    """
    by_kappa = any(each.stands_out and each.similarity <= found.limit for each in found.kin)
    return f"kappa {MIN_KIN_KAPPA}" if by_kappa else share_text(found.limit)


def _relation_rows(found: Lineage | FingerprintLineage) -> dict[str, str]:
    """What the model is said to be of its bases, what lines show, and the P of the verdict."""
    rows = {"relation": found.base_relation, "measured": found.relation}
    if found.lines is not None:
        share, p = share_text(found.lines.share_of_lines), power_of_ten(found.lines.log10_p)
        rows["lines"] = f"{share} of the declared base, P {p}"
    rows["P"] = _chance_text(found)
    return {name: value for name, value in rows.items() if value is not None}


def _chance_text(found: Lineage | FingerprintLineage) -> str | None:
    """P, or why there is none; an older service says neither."""
    if found.log10_p is not None:
        return power_of_ten(found.log10_p)
    return None if found.no_p is None else f"none: {found.no_p}"


def _base_text(base: DeclaredBase) -> str:
    similarity = "" if base.similarity is None else f" ({share_text(base.similarity)})"
    return f"{base.base_model}{similarity} {state_text(base.verdict)}"


def _three_way(value: bool | None) -> str:
    return "unsure" if value is None else "yes" if value else "no"


def _revision_row(revision: Revision) -> tuple[str, ...]:
    return (
        str(revision.revision),
        time_text(revision.created_at),
        count_text(revision.support_size),
        "yes" if revision.kept else "no",
        share_text(revision.similarity_previous),
        share_text(revision.similarity_first),
    )


def duplicates(arguments: argparse.Namespace) -> Answer:
    """``modelkin duplicates``: models with the very same weights, whatever their files."""
    space = arguments.space
    if arguments.model is not None and space is None and (space := usual_space()) is None:
        raise InvalidParameter(
            "name the space of MODEL with --space (or set MODELKIN_SPACE)", field="space"
        )
    with Client(arguments.url, arguments.api_key) as client:
        listed = client.models.duplicates(space, arguments.model)
        found, more = first_rows(listed, arguments)
    fields = {"items": [fields_of(group) for group in found]}
    if not found:
        of_one = "no other model is known to have its weights"
        none = of_one if arguments.model else "no two are known to have the same"
        return Answer(none, fields)
    columns = ("WEIGHTS", "MODEL", "SPACE", "FILES", "SIZE", "STORED", "REMARK")
    rows = [row for group in found for row in _rows(group)]
    notes = tuple(
        f"{group.digest[:_DIGITS]}: only {quantity(len(group), 'model')} of them are shown"
        for group in found
        if group.truncated
    )
    code = 1 if arguments.exit_code else 0
    return Answer(table(columns, rows) + more, fields, notes, code)


def _rows(group: DuplicateWeights) -> Iterator[tuple[str, ...]]:
    """The models with the same weights, a line each."""
    for at, item in enumerate(group):
        yield (
            '"' if at else group.digest[:_DIGITS],
            item.model,
            item.space,
            f"{item.files:,}",
            f"{item.size:,}",
            time_text(item.stored_at),
            text_or_dash(item.says),
        )
