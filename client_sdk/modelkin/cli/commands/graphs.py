"""The command ``graph``: the nearest pairs of a space, as a table, node-link JSON or GraphML."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from modelkin._whole_files import write_whole
from modelkin.cli.options import add_count, add_service, add_tags
from modelkin.cli.output import Answer, as_notes, quantity, table
from modelkin.cli.texts import error_text, share_text
from modelkin.client import Client
from modelkin.errors import InvalidParameter
from modelkin.types.kinship import Graph

__all__ = ["graph", "graph_options"]

_FORM_OF_SUFFIX: Final = {".json": "json", ".graphml": "graphml"}
"""The form of a graph by the suffix of its file."""


def graph_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``graph``."""
    add_service(parser)
    edges = parser.add_mutually_exclusive_group()
    add_count(edges.add_argument, "edges of a model; default 10", default=None)
    edges.add_argument(
        "--threshold", type=float, metavar="S", help="all pairs of this similarity S or more"
    )
    add_tags(parser)
    parser.add_argument(
        "--format",
        choices=("json", "graphml"),
        help="node-link JSON or GraphML, in place of a table; by default the ending of --output",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the file to write; - for standard output"
    )


def graph(arguments: argparse.Namespace) -> Answer:
    """``modelkin graph``: the nearest pairs of a space, as a table, node-link JSON or GraphML."""
    form = _graph_form(arguments)
    options: dict[str, Any] = {"k": arguments.count, "threshold": arguments.threshold}
    with Client(arguments.url, arguments.api_key) as client:
        if form == "graphml":
            return _document(
                arguments,
                form,
                client.spaces.graphml(arguments.space, **options, tags=arguments.tag),
            )
        found = client.spaces.graph(arguments.space, **options, tags=arguments.tag)
    fields = dict(found.to_node_link())
    if form == "json":
        return _document(arguments, form, json.dumps(fields))
    late = ("the time for the answer was over: edges may be missing",) * found.truncated
    return Answer(_pairs_of_models(found), fields, (*late, *as_notes(found.note)))


def _graph_form(arguments: argparse.Namespace) -> str | None:
    """``json`` or ``graphml`` for a document; None for a table.

    Raises:
        InvalidParameter: the name of the output file does not say, or --json asks for another form.
    """
    form: str | None = arguments.format
    if form is None and arguments.output is not None:
        form = _FORM_OF_SUFFIX.get(Path(arguments.output).suffix)
        if form is None:
            raise InvalidParameter(
                f"{arguments.output}: end the name in .json or .graphml, or give --format"
            )
    if arguments.json and form == "graphml" and arguments.output is None:
        raise InvalidParameter("--json prints JSON: write GraphML to a file with --output")
    return form


def _document(arguments: argparse.Namespace, form: str, document: str) -> Answer:
    """A graph as a document, written to the output file or printed as the answer."""
    if arguments.output is None:
        fields = json.loads(document) if form == "json" else {}
        return Answer(document, fields)
    data = document.encode()
    write_whole(arguments.output, data)
    fields = {"file": arguments.output, "format": form, "bytes": len(data)}
    return Answer(f"{arguments.output}: {form}, {len(data):,} bytes", fields)


def _pairs_of_models(found: Graph) -> str:
    models = quantity(len(found.nodes), "model")
    if not found.edges:
        return f"{models}, no edges"
    rows = [
        (
            *(edge.a, edge.b, share_text(edge.similarity)),
            *(error_text(edge.estimate, edge.standard_error), share_text(edge.kappa)),
        )
        for edge in found.edges
    ]
    edges = table(("MODEL", "AND", "SIMILARITY", "ERROR", "KAPPA"), rows)
    return f"{models}, {quantity(len(rows), 'edge')}\n\n{edges}"
