"""The commands ``learngene publish`` and ``learngene show``: layers that newcomers start from."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from modelkin.cli.options import add_service
from modelkin.cli.output import Answer, as_notes, fields_of, pairs, table
from modelkin.cli.texts import count_text, text_or_dash, time_text
from modelkin.client import Client
from modelkin.core.learngenes.references import (
    HUGGING_FACE,
    HttpsFile,
    HubFile,
    MlflowFile,
    Reference,
    reference_from_json,
)
from modelkin.errors import ApiError, InvalidParameter
from modelkin.types.learngenes import Learngene, LearngeneInfo

__all__ = ["publish", "publish_options", "show", "show_options"]

_CLUSTER = "the id that a clustering gives it, or all for the whole space"


def publish_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``learngene publish``."""
    add_service(parser)
    parser.add_argument("file", help="a .safetensors file, as learngene cut writes it")
    parser.add_argument("--cluster", required=True, metavar="ID", help=_CLUSTER)
    hub = parser.add_argument_group("where readers get it: a Hugging Face hub")
    hub.add_argument("--repo", metavar="NAME", help="the repository, org/start for one")
    hub.add_argument(
        "--revision", metavar="COMMIT", help="the commit, all 40 digits: a branch may move"
    )
    hub.add_argument(
        "--file-in-repo",
        metavar="PATH",
        help="the path of the file there; by default the file's own name",
    )
    hub.add_argument(
        "--hub",
        metavar="URL",
        default=HUGGING_FACE,
        help=f"the address of the hub; default {HUGGING_FACE}",
    )
    mlflow = parser.add_argument_group("or an MLflow registry")
    mlflow.add_argument("--mlflow", metavar="URL", help="the address of the tracking server")
    mlflow.add_argument("--model", metavar="NAME", help="a registered model")
    mlflow.add_argument("--version", metavar="NUMBER", help="the version of the model")
    mlflow.add_argument(
        "--artifact",
        metavar="PATH",
        help="the path of the file there; by default the file's own name",
    )
    others = parser.add_argument_group("or another server, or the service itself")
    others.add_argument("--https", metavar="URL", help="the address of the file, https://...")
    others.add_argument(
        "--keep", action="store_true", help="send the file, where the service keeps values"
    )
    said = parser.add_argument_group("what readers learn of it")
    said.add_argument(
        "--clustering",
        metavar="ID",
        help="the clustering that has the cluster; by default the newest",
    )
    said.add_argument(
        "--members", type=int, metavar="COUNT", help="the number of models that it is the mean of"
    )
    said.add_argument(
        "--rounds", type=int, metavar="COUNT", help="the number of rounds of training together"
    )
    said.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="a figure to show; repeats",
    )
    said.add_argument("--note", metavar="TEXT")


def show_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``learngene show``."""
    add_service(parser)
    parser.add_argument(
        "--cluster", metavar="ID", help=f"{_CLUSTER}; by default the learngenes of all clusters"
    )
    parser.add_argument(
        "--version", type=int, metavar="NUMBER", help="the version; by default the newest"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="get its file, too, checked by its digest"
    )


def publish(arguments: argparse.Namespace) -> Answer:
    """``modelkin learngene publish``: publish the next version of a cluster's learngene."""
    reference = _reference(arguments)
    if reference is None and not arguments.keep:
        raise InvalidParameter(
            "say where readers get the file: --repo with --revision, --mlflow with --model and "
            "--version, or --https; or let the service keep it with --keep"
        )
    with Client(arguments.url, arguments.api_key) as client:
        made = client.learngenes.publish(
            arguments.space,
            _cluster(arguments.cluster),
            arguments.file,
            reference=reference,
            keep=arguments.keep,
            clustering=arguments.clustering,
            members=arguments.members,
            rounds=arguments.rounds,
            metrics=_metrics(arguments.metric) or None,
            note=arguments.note,
        )
        note = _other_members(client, arguments, made)
    return replace(_manifest_answer(made), notes=as_notes(note))


def show(arguments: argparse.Namespace) -> Answer:
    """``modelkin learngene show``: one manifest or all of a space; ``-o`` also writes the file."""
    if arguments.cluster is None and (arguments.version or arguments.output):
        raise InvalidParameter("--version and --output are of one cluster: name it with --cluster")
    with Client(arguments.url, arguments.api_key) as client:
        if arguments.cluster is None:
            return _list_answer(list(client.learngenes.list(arguments.space)))
        cluster = _cluster(arguments.cluster)
        found = client.learngenes.get(arguments.space, cluster, version=arguments.version)
        if arguments.output is not None:
            client.learngenes.fetch(found, arguments.output)
    return _manifest_answer(found, arguments.output)


def _reference(arguments: argparse.Namespace) -> Reference | None:
    """The place of the file, by the options.

    Raises:
        InvalidParameter: the options name two places, or part of one.
    """
    own = Path(arguments.file).name
    given: list[Reference] = []
    if arguments.repo or arguments.revision:
        repo, revision = arguments.repo or "", arguments.revision or ""
        file = arguments.file_in_repo or own
        given.append(HubFile(repo=repo, revision=revision, file=file, url=arguments.hub))
    if arguments.mlflow or arguments.model or arguments.version:
        url, model = arguments.mlflow or "", arguments.model or ""
        path = arguments.artifact or own
        version = arguments.version or ""
        given.append(MlflowFile(url=url, model=model, version=version, path=path))
    if arguments.https:
        given.append(HttpsFile(url=arguments.https))
    if len(given) > 1:
        raise InvalidParameter("name one place where readers get the file, not several")
    return given[0] if given else None


def _other_members(client: Client, arguments: argparse.Namespace, made: Learngene) -> str | None:
    """A note where most members that the file's manifest lists are not in the cluster."""
    members = _members(Path(arguments.file).with_suffix(".json"))
    if not members or made.cluster == "all":
        return None
    try:
        found = client.clusterings.get(arguments.space, arguments.clustering or "latest")
    except ApiError:
        return None  # the learngene is published, and there is nothing to compare it with
    clusters = Counter(found.labels.get(name, -1) for name in members)
    inside = clusters[int(made.cluster)]
    if 2 * inside > len(members):
        return None
    most, count = clusters.most_common(1)[0]
    where = "in no cluster" if most < 0 else f"in cluster {most}"
    return (
        f"{inside} of the {len(members)} members that its manifest lists are in cluster "
        f"{made.cluster}, {count} are {where}: is it the right cluster?"
    )


def _members(manifest: Path) -> list[str]:
    """The models that a federation's manifest lists; none where there is no such manifest."""
    try:
        models = json.loads(manifest.read_bytes())["models"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return [name for name in models if isinstance(name, str)] if isinstance(models, list) else []


_SAID: Final = {"learngene", "digest", "bytes", "file", "members", "rounds", "note", "written"}
"""The words of an answer that no metric may take the place of."""


def _cluster(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


def _metrics(given: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in given:
        name, _, number = text.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise InvalidParameter(f"--metric {text}: write NAME=NUMBER, accuracy=0.91")
    return found


def _manifest_answer(learngene: Learngene, output: str | None = None) -> Answer:
    summary = {
        "learngene": f"of cluster {learngene.cluster}, version {learngene.version}"
        + (", stale: the newest clustering has no such cluster" if learngene.stale else ""),
        "digest": learngene.digest,
        "bytes": f"{learngene.bytes:,} in {len(learngene.tensors):,} tensors",
        "file": _place(learngene),
        "members": count_text(learngene.members),
        "rounds": count_text(learngene.rounds),
    }
    for name, value in learngene.metrics.items():  # its publisher chose them
        summary[f"metric {name}" if name in _SAID else name] = f"{value:.6g}"
    if learngene.note is not None:
        summary["note"] = text_or_dash(learngene.note)
    if output is not None:
        summary["written"] = output
    rows = [
        (tensor.name, tensor.dtype, " × ".join(map(str, tensor.shape)) or "scalar")
        for tensor in learngene.tensors
    ]
    fields: dict[str, Any] = fields_of(learngene)
    if output is not None:
        fields["output"] = output
    return Answer(f"{pairs(summary)}\n\n{table(('TENSOR', 'TYPE', 'SHAPE'), rows)}", fields)


def _list_answer(found: Sequence[LearngeneInfo]) -> Answer:
    rows = [
        (
            str(each.cluster),
            str(each.version),
            time_text(each.created_at),
            count_text(each.members),
            "yes" if each.stale else "no",
            _place(each),
        )
        for each in found
    ]
    columns = ("CLUSTER", "VERSION", "CREATED", "MEMBERS", "STALE", "FILE")
    text = table(columns, rows) if rows else "no learngenes"
    return Answer(text, {"items": [fields_of(each) for each in found]})


def _place(learngene: LearngeneInfo) -> str:
    if learngene.kept:
        return "kept by the service"
    if learngene.reference is None:
        return "not kept any more"
    return reference_from_json(learngene.reference).address
