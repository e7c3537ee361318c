"""The commands about kin: ``lineage``, ``clusters``, ``graph`` and ``revisions``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from modelkin._progress_bar import ProgressLine, is_terminal
from modelkin.cli.cells import (
    SCORED,
    count_cell,
    error_cell,
    scored,
    share_cell,
    text_cell,
    time_cell,
)
from modelkin.cli.output import Answer, counted, fields_of, noted, pairs, table
from modelkin.client import Client
from modelkin.errors import InvalidParameter, NotFoundError
from modelkin.types.clusterings import Clustering
from modelkin.types.jobs import JobInfo
from modelkin.types.kinship import Graph, Lineage
from modelkin.types.revisions import Revision

__all__ = ["clusters", "graph", "lineage", "revisions"]

_IN_NO_CLUSTER: Final = -1
_FORM_OF_SUFFIX: Final = {".json": "json", ".graphml": "graphml"}
"""What an output file of this suffix holds."""


def lineage(arguments: argparse.Namespace) -> Answer:
    """``modelkin lineage``: compare the declared base of a model with its similarities."""
    with Client(arguments.url, arguments.api_key) as client:
        found = client.lineage(arguments.space, arguments.model)
    rows = [
        (*scored(kin), _three_way(kin.stands_out), text_cell(kin.relation)) for kin in found.kin
    ]
    text = pairs(_lineage_summary(found))
    if rows:
        text += "\n\n" + table((*SCORED, "STANDS OUT", "RELATION"), rows)
    return Answer(text, fields_of(found), noted(found.note))


def clusters(arguments: argparse.Namespace) -> Answer:
    """``modelkin clusters``: the newest clustering of a space, or the cluster of one model."""
    if arguments.algorithm is not None and not arguments.run:
        raise InvalidParameter("--algorithm is for a new clustering: add --run")
    with Client(arguments.url, arguments.api_key) as client:
        if arguments.run:
            found = _new_clustering(client, arguments)
        else:
            found = _newest_clustering(client, arguments)
    if arguments.model is not None:
        return _cluster_of(found, arguments.model)
    summary = {
        "clustering": f"{found.number}, {time_cell(found.created_at)}, by {found.algorithm}",
        "models": f"{found.models:,} in {counted(found.num_clusters, 'cluster')}, "
        f"{found.noise:,} in none",
        "silhouette": share_cell(found.quality.silhouette),
    }
    rows = [(str(c.cluster), count_cell(c.size), c.exemplar) for c in found.clusters]
    text = pairs(summary)
    if rows:
        text += "\n\n" + table(("CLUSTER", "SIZE", "EXEMPLAR"), rows)
    return Answer(text, fields_of(found))


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
    return Answer(_pairs_of_models(found), fields, (*late, *noted(found.note)))


def revisions(arguments: argparse.Namespace) -> Answer:
    """``modelkin revisions``: the contents that a model had, and how similar they are."""
    with Client(arguments.url, arguments.api_key) as client:
        found = client.revisions.list(arguments.space, arguments.model)
    columns = ("REVISION", "TIME", "INDICES", "KEPT", "S TO PREVIOUS", "S TO FIRST")
    text = table(columns, [_revision_row(revision) for revision in found])
    return Answer(text, fields_of(found))


class _ClusteringLine:
    """Shows the progress of a clustering job, on a terminal alone."""

    def __init__(self) -> None:
        self._line = ProgressLine() if is_terminal() else None

    def __call__(self, job: JobInfo) -> None:
        """Draws what the job has reported."""
        if self._line is not None:
            done = job.progress
            share = done.done / done.total if done is not None and done.total else None
            self._line.draw(f"clustering, {job.state if done is None else done.stage}", share)

    def wipe(self) -> None:
        """Empties the line for the answer."""
        if self._line is not None:
            self._line.wipe()


def _new_clustering(client: Client, arguments: argparse.Namespace) -> Clustering:
    line = _ClusteringLine()
    try:
        return client.clusterings.create(
            arguments.space, arguments.algorithm, on_progress=line, tags=arguments.tag
        )
    finally:
        line.wipe()


def _newest_clustering(client: Client, arguments: argparse.Namespace) -> Clustering:
    """The newest clustering.

    Raises:
        InvalidParameter: there is none yet; the message names ``--run``.
    """
    try:
        return client.clusterings.get(arguments.space, tags=arguments.tag)
    except NotFoundError as error:
        if error.problem_code != "clustering_not_found":
            raise
        models = "models with these tags" if arguments.tag else "all its models"
        raise InvalidParameter(
            f"space {arguments.space!r} has no clustering of {models}: make one with --run"
        ) from None


def _lineage_summary(found: Lineage) -> dict[str, str]:
    usual = found.usual
    summary = {
        "verdict": found.verdict,
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


def _cluster_of(found: Clustering, model: str) -> Answer:
    """The cluster of one model, with its members.

    Raises:
        InvalidParameter: the model was not among those that were clustered.
    """
    if model not in found.labels:
        raise InvalidParameter(
            f"{model!r} is not in clustering {found.number} of space {found.space}, which is of "
            f"{time_cell(found.created_at)}: make another one with --run"
        )
    label = found.labels[model]
    fields: dict[str, Any] = {"clustering": found.id, "model": model, "cluster": label}
    cluster = next((c for c in found.clusters if c.cluster == label), None)
    if cluster is None:
        return Answer(f"{model} is in no cluster", {**fields, "members": []})
    summary = {
        "cluster": str(cluster.cluster),
        "size": count_cell(cluster.size),
        "exemplar": cluster.exemplar,
    }
    members = table(("MODEL",), [(member,) for member in cluster.members])
    return Answer(f"{pairs(summary)}\n\n{members}", {**fields, **fields_of(cluster)})


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
    """A graph as a document: written to the output file, or itself the answer."""
    if arguments.output is None:
        fields = json.loads(document) if form == "json" else {}
        return Answer(document, fields)
    data = document.encode()
    Path(arguments.output).write_bytes(data)
    fields = {"file": arguments.output, "format": form, "bytes": len(data)}
    return Answer(f"{arguments.output}: {form}, {len(data):,} bytes", fields)


def _pairs_of_models(found: Graph) -> str:
    models = counted(len(found.nodes), "model")
    if not found.edges:
        return f"{models}, no edges"
    rows = [
        (
            *(edge.a, edge.b, share_cell(edge.similarity)),
            *(error_cell(edge.estimate, edge.standard_error), share_cell(edge.kappa)),
        )
        for edge in found.edges
    ]
    edges = table(("MODEL", "AND", "SIMILARITY", "ERROR", "KAPPA"), rows)
    return f"{models}, {counted(len(rows), 'edge')}\n\n{edges}"


def _revision_row(revision: Revision) -> tuple[str, ...]:
    return (
        str(revision.revision),
        time_cell(revision.created_at),
        count_cell(revision.support_size),
        "yes" if revision.kept else "no",
        share_cell(revision.similarity_previous),
        share_cell(revision.similarity_first),
    )
