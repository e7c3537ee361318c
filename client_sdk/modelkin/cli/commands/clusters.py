"""The commands ``cluster`` and ``clusters``: group the models of a space, and show the groups."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from typing import Any, Final

from modelkin._terminal_text import width_of
from modelkin.cli.options import add_service, add_tags
from modelkin.cli.output import Answer, fields_of, pairs, quantity, table
from modelkin.cli.service.jobs import JobLine
from modelkin.cli.style import is_wide_open
from modelkin.cli.texts import count_text, share_text, time_text
from modelkin.client import Client
from modelkin.errors import InvalidParameter, NotFoundError
from modelkin.types.clusterings import Cluster, Clustering

__all__ = ["cluster", "cluster_options", "clusters", "clusters_options"]

_COLUMNS: Final = ("CLUSTER", "SIZE", "EXEMPLAR")
_MOST_LISTED: Final = 50
"""The most models of a clustering whose clusters are shown with their members."""


def cluster_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``cluster``."""
    add_service(parser)
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="leiden, agglomerative, hdbscan or affinity_propagation; by default the one that "
        "suits the number of models",
    )
    parser.add_argument(
        "--n-clusters", type=int, metavar="COUNT", help="the number of clusters, for agglomerative"
    )
    parser.add_argument(
        "--distance-threshold",
        type=float,
        metavar="1-S",
        help="the distance from which clusters stay apart, for agglomerative",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the algorithm, n_clusters=3 for one; repeats",
    )
    add_tags(parser)


def clusters_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``clusters``."""
    add_service(parser)
    parser.add_argument("--model", metavar="NAME", help="the group of this model, with its members")
    add_tags(parser)


def cluster(arguments: argparse.Namespace) -> Answer:
    """``modelkin cluster``: a new clustering of a space, or of its models with some tags."""
    parameters = dict(map(_parameter, arguments.set))
    for name in ("n_clusters", "distance_threshold"):
        if (value := getattr(arguments, name)) is not None:
            parameters[name] = value
    cuts = {"n_clusters", "distance_threshold"} & parameters.keys()
    with Client(arguments.url, arguments.api_key) as client, JobLine("clustering") as line:
        found = client.clusterings.create(
            arguments.space,
            arguments.algorithm or ("agglomerative" if cuts else None),
            on_progress=line,
            tags=arguments.tag,
            **parameters,
        )
    return _answer(found)


def clusters(arguments: argparse.Namespace) -> Answer:
    """``modelkin clusters``: the newest clustering of a space, or the cluster of one model."""
    with Client(arguments.url, arguments.api_key) as client:
        found = _newest_clustering(client, arguments)
    return _answer(found) if arguments.model is None else _cluster_of(found, arguments.model)


def _answer(found: Clustering) -> Answer:
    summary = {
        "clustering": f"{found.number}, {time_text(found.created_at)}, by {found.algorithm}",
        "id": found.id,
        "models": f"{found.models:,} in {quantity(found.num_clusters, 'cluster')}, "
        f"{found.noise:,} in none",
        "silhouette": share_text(found.quality.silhouette),
    }
    text = pairs(summary | ({} if found.note is None else {"note": found.note}))
    if found.clusters:
        text += "\n\n" + _table(found.clusters, listed=found.models <= _MOST_LISTED)
    return Answer(text, fields_of(found))


def _table(clusters: Sequence[Cluster], *, listed: bool) -> str:
    """A row for each cluster; where ``listed``, with the members that a terminal has room for."""
    rows = [(str(c.cluster), count_text(c.size), c.exemplar) for c in clusters]
    if not listed:
        return table(_COLUMNS, rows)
    taken = sum(max(map(width_of, column)) + 2 for column in zip(_COLUMNS, *rows, strict=True))
    room = None if is_wide_open() else shutil.get_terminal_size().columns - taken
    shown = [(*row, _names(c.members, room)) for row, c in zip(rows, clusters, strict=True)]
    return table((*_COLUMNS, "MEMBERS"), shown)


def _names(members: Sequence[str], room: int | None) -> str:
    """As many names as fit, at least one, and the count of the remaining ones."""
    text = ", ".join(members)
    for left in range(len(members) - 1, 0, -1):
        if room is None or width_of(text) <= room:
            break
        text = f"{', '.join(members[:left])} and {len(members) - left:,} more"
    return text


def _parameter(text: str) -> tuple[str, Any]:
    """Parse ``NAME=VALUE``; the value is JSON if it can be read as such, otherwise a text."""
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise InvalidParameter(f"--set {text}: write NAME=VALUE, such as n_clusters=3")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _newest_clustering(client: Client, arguments: argparse.Namespace) -> Clustering:
    """Return the newest clustering of the space.

    Raises:
        InvalidParameter: there is none yet; the message names the command that makes one.
    """
    try:
        return client.clusterings.get(arguments.space, tags=arguments.tag)
    except NotFoundError as error:
        if error.problem_code != "clustering_not_found":
            raise
        models = "models with these tags" if arguments.tag else "all its models"
        raise InvalidParameter(
            f"space {arguments.space!r} has no clustering of {models}: make one with "
            f"`modelkin cluster`"
        ) from None


def _cluster_of(found: Clustering, model: str) -> Answer:
    """The cluster of one model, with its members.

    Raises:
        InvalidParameter: the clustering does not have the model.
    """
    if model not in found.labels:
        raise InvalidParameter(
            f"{model!r} is not in clustering {found.number} of space {found.space}, which is of "
            f"{time_text(found.created_at)}: make another one with `modelkin cluster`"
        )
    label = found.labels[model]
    fields: dict[str, Any] = {"clustering": found.id, "model": model, "cluster": label}
    cluster = next((c for c in found.clusters if c.cluster == label), None)
    if cluster is None:
        return Answer(f"{model} is in no cluster", {**fields, "members": []})
    summary = {
        "cluster": str(cluster.cluster),
        "size": count_text(cluster.size),
        "exemplar": cluster.exemplar,
    }
    members = table(("MODEL",), [(member,) for member in cluster.members])
    return Answer(f"{pairs(summary)}\n\n{members}", {**fields, **fields_of(cluster)})
