"""The commands ``lineage`` and ``revisions``: where a model comes from, and how it drifted."""

from __future__ import annotations

import argparse

from modelkin.cli.cells import (
    SCORED,
    count_cell,
    scored,
    share_cell,
    state_cell,
    text_cell,
    time_cell,
)
from modelkin.cli.options import add_service
from modelkin.cli.output import Answer, counted, fields_of, noted, pairs, table
from modelkin.client import Client
from modelkin.types.kinship import Lineage
from modelkin.types.revisions import Revision

__all__ = ["lineage", "lineage_options", "revisions", "revisions_options"]


def lineage_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``lineage``."""
    parser.add_argument("model", metavar="MODEL", help="a model of the space")
    add_service(parser)


def revisions_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``revisions``."""
    parser.add_argument("model", metavar="MODEL", help="a model of the space")
    add_service(parser)


def lineage(arguments: argparse.Namespace) -> Answer:
    """``modelkin lineage``: compare the declared base of a model with its similarities."""
    with Client(arguments.url, arguments.api_key) as client:
        found = client.lineage(arguments.space, arguments.model)
    rows = [
        (*scored(kin), state_cell(_three_way(kin.stands_out)), text_cell(kin.relation))
        for kin in found.kin
    ]
    text = pairs(_lineage_summary(found))
    if rows:
        text += "\n\n" + table((*SCORED, "STANDS OUT", "RELATION"), rows)
    return Answer(text, fields_of(found), noted(found.note))


def revisions(arguments: argparse.Namespace) -> Answer:
    """``modelkin revisions``: the contents that a model had, and how similar they are."""
    with Client(arguments.url, arguments.api_key) as client:
        found = client.revisions.list(arguments.space, arguments.model)
    columns = ("REVISION", "TIME", "INDICES", "KEPT", "S TO PREVIOUS", "S TO FIRST")
    text = table(columns, [_revision_row(revision) for revision in found])
    return Answer(text, fields_of(found))


def _lineage_summary(found: Lineage) -> dict[str, str]:
    usual = found.usual
    summary = {
        "verdict": state_cell(found.verdict),
        "why": found.summary,
        "declared base": text_cell(found.declared_base),
        "likely base": text_cell(found.likely_base),
        "stands out from": share_cell(found.limit),
        "usual": f"{share_cell(usual.similarity)} ±{share_cell(usual.deviation)} "
        f"of {counted(usual.models, 'model')}",
    }
    if found.chain:
        links = [f"{link.base_model} ({share_cell(link.similarity)})" for link in found.chain]
        summary["chain"] = " < ".join([found.model, *links])
    return summary


def _three_way(value: bool | None) -> str:
    return "unsure" if value is None else "yes" if value else "no"


def _revision_row(revision: Revision) -> tuple[str, ...]:
    return (
        str(revision.revision),
        time_cell(revision.created_at),
        count_cell(revision.support_size),
        "yes" if revision.kept else "no",
        share_cell(revision.similarity_previous),
        share_cell(revision.similarity_first),
    )
