"""The commands that compare: ``neighbors``, ``donors``, ``overlap`` and ``matrix``."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from itertools import islice
from pathlib import Path
from typing import Final

from modelkin._whole_files import write_whole
from modelkin.cli.blinding import add_blinding
from modelkin.cli.inputs import check_options, refuse_selection
from modelkin.cli.options import add_count, add_selection, add_service, add_tags
from modelkin.cli.output import Answer, as_notes, fields_of, pairs, table
from modelkin.cli.questions import question
from modelkin.cli.texts import count_text, part_text, score_cells, share_text
from modelkin.client import Client
from modelkin.client._protocol.calls.requests import Query
from modelkin.core.matching.network_order import NetworkOrder
from modelkin.errors import InvalidParameter
from modelkin.types.search import Neighbor, Neighbors, SimilarityMatrix

__all__ = [
    "caveats",
    "donors",
    "donors_options",
    "matrix",
    "matrix_options",
    "neighbors",
    "neighbors_options",
    "overlap",
    "overlap_options",
]

_MOST_COMPARED: Final = 1_000
"""The most models that one request compares with each other."""


def neighbors_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``neighbors``."""
    add_service(parser)
    _add_query(parser)
    parser.add_argument(
        "--min-similarity",
        type=float,
        metavar="S",
        help="the least similarity that is shown, 0 to 1",
    )
    parser.add_argument(
        "--min-kappa", type=float, metavar="KAPPA", help="the least kappa that is shown"
    )
    parser.add_argument(
        "--method",
        default="auto",
        choices=("auto", "exact", "scan", "lsh"),
        help="the way to search; auto, the default, is the fastest that is exact enough",
    )
    parser.add_argument(
        "--measure",
        choices=("similarity", "ordered"),
        default="similarity",
        help="the order of results; ordered takes the ranks of indices, in an ordered space",
    )
    add_selection(parser)


def donors_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``donors``."""
    add_service(parser)
    _add_query(parser)
    parser.add_argument(
        "--include-unrelated", action="store_true", help="weigh models at chance, too"
    )
    add_selection(parser)


def _add_query(parser: argparse.ArgumentParser) -> None:
    query = parser.add_mutually_exclusive_group(required=True)
    query.add_argument("named", nargs="?", metavar="MODEL", help="a model of the space")
    query.add_argument("--model", metavar="NAME", help="a model of the space, in place of MODEL")
    query.add_argument(
        "--file",
        metavar="FILE|CHECKPOINT",
        help="a support, signature or checkpoint, which is not stored; - for standard input",
    )
    parser.set_defaults(inputs=("file",))
    add_count(parser.add_argument, "how many models; default 10")
    add_tags(parser)
    add_blinding(parser)


def overlap_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``overlap``."""
    parser.add_argument("a", metavar="A", help="a model of the space")
    parser.add_argument("b", metavar="B", help="another model of the space")
    add_service(parser)


def matrix_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``matrix``."""
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="models of the space, by default all; - reads a name a line from standard input",
    )
    add_service(parser)
    add_tags(parser)
    parser.add_argument(
        "--measure",
        choices=("similarity", "kappa", "ordered"),
        default="similarity",
        help="the measure; kappa is beyond chance; ordered, in ordered spaces, weighs by rank",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the .csv or .json file to write; - for CSV on standard output",
    )


def neighbors(arguments: argparse.Namespace) -> Answer:
    """``modelkin neighbors``: neighbours of a stored model, or of a file that is not stored."""
    with Client(arguments.url, arguments.api_key) as client:
        query, notes = _query(client, arguments, by_ranks=arguments.measure == "ordered")
        found = client.neighbors(
            arguments.space,
            query,
            k=arguments.count,
            min_similarity=arguments.min_similarity,
            min_kappa=arguments.min_kappa,
            method=arguments.method,
            tags=arguments.tag,
            measure=arguments.measure,
        )
    more = ("ORDERED",) if found.measure == "ordered" else ()
    marked = ("",) if any(map(_standing, found)) else ()
    columns, scores = score_cells(found)
    rows = [
        (
            *(*score, share_text(n.jaccard), count_text(n.shared_indices)),
            *(share_text(n.ordered_similarity) for _ in more),
            *(_standing(n) for _ in marked),
        )
        for score, n in zip(scores, found, strict=True)
    ]
    text = table((*columns, "JACCARD", "SHARED", *more, *marked), rows) if rows else "no neighbours"
    return Answer(text, fields_of(found), (*notes, *caveats(found)))


def _standing(neighbor: Neighbor) -> str:
    """What a neighbour is beside others, if that is to be said."""
    if neighbor.identical:
        return "identical"
    return "at chance" if neighbor.unrelated else ""


def donors(arguments: argparse.Namespace) -> Answer:
    """``modelkin donors``: donors of a stored model, or of a file that is not stored."""
    with Client(arguments.url, arguments.api_key) as client:
        query, notes = _query(client, arguments)
        found = client.donors(
            arguments.space,
            query,
            k=arguments.count,
            tags=arguments.tag,
            include_unrelated=arguments.include_unrelated,
        )
    columns, scores = score_cells(found)
    rows = [
        (*score, share_text(d.weight), "unrelated" if d.unrelated else "")
        for score, d in zip(scores, found, strict=True)
    ]
    text = table((*columns, "WEIGHT", ""), rows) if rows else "no donors"
    return Answer(text, fields_of(found), (*notes, *as_notes(_as_options(found.note))))


def _as_options(note: str | None) -> str | None:
    """A note of donors with the option of the command line for the service's parameter."""
    return note and note.replace("include_unrelated=true", "--include-unrelated")


def overlap(arguments: argparse.Namespace) -> Answer:
    """``modelkin overlap``: compare two stored models."""
    with Client(arguments.url, arguments.api_key) as client:
        found = client.overlap(arguments.space, arguments.a, arguments.b)
    summary = {
        "similarity": share_text(found.similarity),
        "by chance": share_text(found.expected),
        "kappa": share_text(found.kappa),
        "jaccard": share_text(found.jaccard),
        "shared indices": count_text(found.shared_indices),
    }
    if found.covered is not None:
        summary["compared over"] = f"{part_text(found.covered)} of the parameters"
    if found.ordered_similarity is not None:
        summary["ordered similarity"] = share_text(found.ordered_similarity)
    text = pairs(summary)
    if found.tensors:
        columns = ("TENSOR", "PARAMETERS", "A", "B", "SHARED", "SIMILARITY", "CHANCE", "KAPPA")
        rows = [
            (
                t.name,
                *(f"{count:,}" for count in (t.size, t.a, t.b, t.shared_indices)),
                *map(share_text, (t.similarity, t.expected, t.kappa)),
            )
            for t in NetworkOrder.of([t.name for t in found.tensors]).arrange(found.tensors)
        ]
        text += "\n\n" + table(columns, rows)
    return Answer(text, fields_of(found), as_notes(found.note))


def matrix(arguments: argparse.Namespace) -> Answer:
    """``modelkin matrix``: the similarities of all pairs, as a table, CSV or JSON."""
    output = arguments.output
    if output not in {None, "-"} and Path(output).suffix not in {".csv", ".json"}:
        raise InvalidParameter(f"{output}: end the name in .csv or .json")
    if arguments.models and arguments.tag:
        raise InvalidParameter("--tag narrows all models of the space: leave the names out")
    with Client(arguments.url, arguments.api_key) as client:
        found = client.similarity(
            arguments.space, _model_names(client, arguments), measure=arguments.measure
        )
    fields = {
        "models": list(found.models),
        "values": _values(found),
        "estimated": list(found.estimated),
        "measure": found.measure,
        "note": found.note,
        "constant_tensors": list(found.constant_tensors),
    }
    if output is None:
        return Answer(_matrix_table(found), fields, as_notes(found.note))
    document = _csv(found) if output == "-" or output.endswith(".csv") else json.dumps(fields)
    if output == "-":
        return Answer(document.rstrip("\n"), fields, whole=True)
    data = document.encode()
    write_whole(output, data)
    text = f"{output}: {len(found.models):,} models, {len(data):,} bytes"
    return Answer(text, {"file": output, "bytes": len(data)})


def caveats(found: Neighbors) -> tuple[str, ...]:
    """Reasons why these may not be the nearest neighbours, a sentence each."""
    said = []
    if found.degraded:
        said.append(
            "found by another method: the buckets are unavailable, or a stored file is damaged"
        )
    if found.truncated:
        said.append(
            "the time for the answer was over: other models may be as near"
            if found.method == "exact"
            else "buckets with too many models were left out: other models may be as near"
        )
    if found.ties_left_out:
        said.append(
            f"{found.ties_left_out:,} more models may be as near, and S of the last one too low by "
            f"{found.similarity_slack:.3f}: --method exact compares them all"
        )
    return (*said, *as_notes(found.note))


def _model_names(client: Client, arguments: argparse.Namespace) -> list[str]:
    """The names of the models to compare.

    Raises:
        InvalidParameter: there are too few or too many.
    """
    names: list[str] = arguments.models
    if names == ["-"]:
        names = [line.strip() for line in sys.stdin if line.strip()]
    elif not names:
        listed = client.models.list(arguments.space, tags=arguments.tag)
        names = [info.model for info in islice(listed, _MOST_COMPARED + 1)]
    if not 2 <= len(names) <= _MOST_COMPARED:
        count = f"{len(names):,}" if len(names) <= _MOST_COMPARED else f"over {_MOST_COMPARED:,}"
        raise InvalidParameter(
            f"a matrix is of 2 to {_MOST_COMPARED:,} models, and these are {count}: name some, or "
            f"narrow them with --tag"
        )
    return names


def _matrix_table(found: SimilarityMatrix) -> str:
    """A table with a row and a numbered column for each model."""
    columns = ("MODEL", *(str(at) for at, _ in enumerate(found.models, 1)))
    rows = [
        (f"{at} {model}", *(share_text(value) for value in row))
        for at, (model, row) in enumerate(zip(found.models, _values(found), strict=True), 1)
    ]
    return table(columns, rows)


def _values(found: SimilarityMatrix) -> list[list[float | None]]:
    """The rows of values; a pair without a kappa has None."""
    return [[None if math.isnan(s) else s for s in row] for row in found.values.tolist()]


def _csv(found: SimilarityMatrix) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", *found.models])
    rows = zip(found.models, _values(found), strict=True)
    writer.writerows([model, *row] for model, row in rows)
    return text.getvalue()


def _query(
    client: Client, arguments: argparse.Namespace, *, by_ranks: bool = False
) -> tuple[Query, tuple[str, ...]]:
    """The query of a search: a stored model, or a file in the form of the space's models."""
    if arguments.file is None:
        refuse_selection(arguments)
        if arguments.blinding_key is not None:
            raise InvalidParameter(
                "--blinding-key is for --file: stored models are blinded already"
            )
        name: str = arguments.named or arguments.model
        return name, ()
    check_options(arguments, arguments.file)
    space = client.spaces.get(arguments.space)
    return question(client, arguments, arguments.file, space, by_ranks=by_ranks)
