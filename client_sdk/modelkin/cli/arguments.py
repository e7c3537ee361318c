"""The command line: commands, options and their help.

Values that the domain checks anyway are not checked here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from modelkin._version import __version__
from modelkin.cli import (
    commands,
    kinship,
    learngene_registry,
    learngenes,
    merges,
    sources,
    subspaces,
)
from modelkin.cli.output import Answer

__all__ = ["parse"]

if TYPE_CHECKING:  # argparse has no public name for what adds commands
    _Adder: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_Command: TypeAlias = Callable[[argparse.Namespace], Answer]

_CHECKPOINT = (
    "a .safetensors file, the index of a sharded one, or a folder that holds one or a LoRA adapter"
)
_FILE = f"a file of modelkin, {_CHECKPOINT}"


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of one command; ``command`` is the function that executes it.

    Raises:
        SystemExit: with 2 for a usage error, with 0 after ``--help``.
    """
    return _parser().parse_args(argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="modelkin",
        description="Which models are kin, by the indices of their most salient parameters.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"modelkin {__version__}")
    adder = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_support(adder)
    _add_subspace(adder)
    _add_push(adder)
    _add_neighbors(adder)
    _add_donors(adder)
    _add_overlap(adder)
    _add_lineage(adder)
    _add_clusters(adder)
    _add_start(adder)
    _add_graph(adder)
    _add_revisions(adder)
    _add_sources(adder)
    _add_merge(adder)
    _add_learngene(adder)
    _add_inspect(adder)
    return parser


def _command(adder: _Adder, name: str, command: _Command, summary: str) -> argparse.ArgumentParser:
    parser = adder.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        allow_abbrev=False,
    )
    parser.set_defaults(command=command)
    parser.add_argument("--json", action="store_true", help="answer one JSON object")
    return parser


def _add_support(adder: _Adder) -> None:
    summary = "the support of a checkpoint, written to a file"
    parser = _command(adder, "support", commands.support, summary)
    parser.add_argument("checkpoint", help=_CHECKPOINT)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where it goes")
    _add_selection(parser, "--support-size", "--k")


def _add_selection(parser: argparse.ArgumentParser, *size_options: str) -> None:
    group = parser.add_argument_group("how a checkpoint becomes a support")
    group.add_argument("--base", metavar="CHECKPOINT", help="what the model was made from")
    group.add_argument(
        "--kind",
        choices=("weight", "delta"),
        help="importance |w|, or |w - base|; by default delta with --base, else weight",
    )
    size = group.add_mutually_exclusive_group()
    size.add_argument(
        "--coverage",
        type=float,
        metavar="SHARE",
        help="the fewest parameters that hold this share of all importance",
    )
    size.add_argument(
        *size_options, type=int, metavar="COUNT", dest="support_size", help="this many parameters"
    )
    size.add_argument(
        "--fraction",
        type=float,
        metavar="SHARE",
        help="this share of them; by default 0.05, of an adapter 0.1",
    )
    group.add_argument(
        "--k-max",
        type=_share_or_count,
        metavar="SHARE|COUNT",
        help="the most that --coverage may choose: 0.2 (the default) or a whole number",
    )
    group.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out tensors named like this, 'lm_head.*' for one; repeats",
    )


def _share_or_count(text: str) -> float | int:
    return int(text) if text.isdecimal() else float(text)


_share_or_count.__name__ = "share or count"  # argparse prints it in its errors


def _add_subspace(adder: _Adder) -> None:
    summary = "the subspace of samples, a fingerprint of data, written to a file"
    parser = _command(adder, "subspace", subspaces.subspace, summary)
    subspaces.add_subspace(parser)


def _add_start(adder: _Adder) -> None:
    summary = "the cluster of a newcomer's data, and where it starts"
    parser = _command(adder, "start", subspaces.start, summary)
    subspaces.add_start(parser)
    _add_service(parser)


def _add_push(adder: _Adder) -> None:
    summary = "store a support, a signature or a checkpoint's support"
    parser = _command(adder, "push", commands.push, summary)
    parser.add_argument("input", metavar="FILE|CHECKPOINT", help=_FILE)
    _add_service(parser)
    parser.add_argument("--model", required=True, metavar="NAME", help="its name, org/name for one")
    parser.add_argument(
        "--tag", action="append", metavar="TAG", help="replaces the model's tags; repeats"
    )
    parser.add_argument(
        "--create", action="store_true", help="make the space where it does not exist yet"
    )
    parser.add_argument(
        "--signature-only",
        action="store_true",
        help="send the signature alone: no index leaves this machine",
    )
    about = parser.add_argument_group("about the model")
    about.add_argument("--base-model", metavar="NAME", help="the model that it derives from")
    about.add_argument(
        "--attribute",
        action="append",
        metavar="KEY=VALUE",
        help="replaces the model's attributes; a number, true, false or null is JSON; repeats",
    )
    about.add_argument("--source", metavar="URL", help="where the model comes from")
    _add_selection(parser, "--support-size", "--k")


def _add_neighbors(adder: _Adder) -> None:
    summary = "the models most similar to one"
    parser = _command(adder, "neighbors", commands.neighbors, summary)
    _add_service(parser)
    _add_query(parser)
    parser.add_argument("--min-similarity", type=float, metavar="S", help="none below this, 0 to 1")
    parser.add_argument("--min-kappa", type=float, metavar="KAPPA", help="none below this")
    parser.add_argument("--method", default="auto", help="auto (the default), exact, scan, lsh")
    _add_selection(parser, "--support-size")


def _add_donors(adder: _Adder) -> None:
    summary = "the models that one may learn from, and in what proportion"
    parser = _command(adder, "donors", commands.donors, summary)
    _add_service(parser)
    _add_query(parser)
    parser.add_argument(
        "--include-unrelated", action="store_true", help="weigh models at chance, too"
    )
    _add_selection(parser, "--support-size")


def _add_query(parser: argparse.ArgumentParser) -> None:
    query = parser.add_mutually_exclusive_group(required=True)
    query.add_argument("--model", metavar="NAME", help="a model of the space")
    query.add_argument(
        "--file",
        metavar="FILE|CHECKPOINT",
        help="a support, signature or checkpoint, which is not stored",
    )
    parser.add_argument(
        *("-k", "--k"),
        action=_Count,
        type=int,
        default=10,
        dest="count",
        metavar="COUNT",
        help="how many; default 10",
    )
    parser.set_defaults(long_k=False)
    _add_tags(parser)


class _Count(argparse.Action):
    """Stores a count, and as ``long_k`` whether it was spelled ``--k``.

    That was the size of a checkpoint's support once.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        del parser
        setattr(namespace, self.dest, values)
        namespace.long_k = namespace.long_k or option_string == "--k"


def _add_tags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="only with this tag; repeats"
    )


def _add_overlap(adder: _Adder) -> None:
    summary = "two models compared exactly, tensor by tensor"
    parser = _command(adder, "overlap", commands.overlap, summary)
    parser.add_argument("a", help="a model of the space")
    parser.add_argument("b", help="another")
    _add_service(parser)


def _add_lineage(adder: _Adder) -> None:
    summary = "the declared base of a model, compared with what is measured"
    parser = _command(adder, "lineage", kinship.lineage, summary)
    parser.add_argument("model", metavar="MODEL", help="a model of the space")
    _add_service(parser)


def _add_clusters(adder: _Adder) -> None:
    summary = "the groups of kin in a space, by its newest clustering"
    parser = _command(adder, "clusters", kinship.clusters, summary)
    _add_service(parser)
    parser.add_argument("--model", metavar="NAME", help="the group of this model, with its members")
    parser.add_argument("--run", action="store_true", help="cluster the space now, and wait")
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="with --run: leiden, agglomerative, hdbscan or affinity_propagation",
    )
    _add_tags(parser)


def _add_graph(adder: _Adder) -> None:
    summary = "the nearest pairs of models in a space"
    parser = _command(adder, "graph", kinship.graph, summary)
    _add_service(parser)
    edges = parser.add_mutually_exclusive_group()
    edges.add_argument(
        *("-k", "--k"), type=int, metavar="COUNT", dest="count", help="edges of a model; default 10"
    )
    edges.add_argument("--threshold", type=float, metavar="S", help="all pairs of this S or more")
    _add_tags(parser)
    parser.add_argument(
        "--format",
        choices=("json", "graphml"),
        help="node-link JSON or GraphML, in place of a table; by default what --output ends in",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write it to a file")


def _add_revisions(adder: _Adder) -> None:
    summary = "the contents that a model had, and how far it drifted"
    parser = _command(adder, "revisions", kinship.revisions, summary)
    parser.add_argument("model", metavar="MODEL", help="a model of the space")
    _add_service(parser)


def _add_sources(adder: _Adder) -> None:
    summary = "the hubs whose models spaces follow"
    group = adder.add_parser(
        "sources", help=summary, description=f"{summary.capitalize()}.", allow_abbrev=False
    )
    actions = group.add_subparsers(required=True, metavar="list|add|remove")
    listed = _command(actions, "list", sources.list_all, "the sources, with their state")
    _add_service(listed, space="only those of this index space")
    _add_source(actions)
    removed = _command(actions, "remove", sources.remove, "stop following a hub; models stay")
    removed.add_argument("source", metavar="SOURCE", help="its id, as `sources list` shows it")
    _add_service(removed, space=None)


def _add_source(actions: _Adder) -> None:
    parser = _command(actions, "add", sources.add, "follow the models of a hub")
    parser.add_argument("kind", choices=("huggingface", "mlflow"), help="of hub")
    _add_service(parser)
    parser.add_argument("--hub-url", metavar="URL", help="without it events are only recorded")
    parser.add_argument(
        "--secret-file",
        metavar="FILE",
        help="its first line verifies the hub's events, - for standard input; by default a new "
        "secret is made and printed",
    )
    parser.add_argument("--token-file", metavar="FILE", help="its first line opens the hub")
    parser.add_argument(
        "--importance",
        choices=("weight", "delta"),
        help="by default both, where there is a base",
    )
    parser.add_argument("--base-model", metavar="NAME", help="the base of models without one")
    parser.add_argument(
        "--exclude",
        action="append",
        metavar="PATTERN",
        help="leave out tensors named like this, '*.running_*' for one; repeats",
    )
    for name, what in (("repo", "of this name"), ("owner", "of this owner"), ("tag", "so tagged")):
        parser.add_argument(
            f"--{name}", action="append", metavar="NAME", help=f"only models {what}; repeats"
        )
    parser.add_argument("--on-delete", choices=("keep", "remove"), default="keep")
    parser.add_argument(
        "--poll-seconds", type=int, metavar="COUNT", help="between two polls; 0 for never"
    )


def _add_merge(adder: _Adder) -> None:
    summary = "averages of models that no party sees"
    group = adder.add_parser(
        "merge", help=summary, description=f"{summary.capitalize()}.", allow_abbrev=False
    )
    actions = group.add_subparsers(required=True, metavar="create|show|join|plan")
    created = _command(actions, "create", merges.create, "settle who averages, with which weights")
    _add_service(created)
    merges.add_creation(created)
    shown = _command(actions, "show", merges.show, "the state of a merge, or all of a space")
    shown.add_argument("--merge", metavar="NAME", help="by default all merges of the space")
    _add_service(shown)
    joined = _command(actions, "join", merges.join, "take part in a merge, to its end")
    _add_service(joined)
    merges.add_joining(joined)
    planned = _command(actions, "plan", merges.plan, "what an average costs, beside other methods")
    merges.add_planning(planned)


def _add_learngene(adder: _Adder) -> None:
    summary = "layers of models, as starts for others"
    group = adder.add_parser(
        "learngene", help=summary, description=f"{summary.capitalize()}.", allow_abbrev=False
    )
    actions = group.add_subparsers(required=True, metavar="cut|average|publish|show")
    cut = _command(actions, "cut", learngenes.cut, "some layers of a checkpoint, written to a file")
    learngenes.add_cut(cut)
    averaged = _command(
        actions, "average", learngenes.average, "the mean of checkpoints, tensor by tensor"
    )
    learngenes.add_average(averaged)
    published = _command(
        actions, "publish", learngene_registry.publish, "a file as what a cluster starts from"
    )
    learngene_registry.add_publishing(published)
    _add_service(published)
    shown = _command(
        actions, "show", learngene_registry.show, "what a cluster starts from, or all of a space"
    )
    learngene_registry.add_showing(shown)
    _add_service(shown)


def _add_inspect(adder: _Adder) -> None:
    summary = "what a support, a signature or a checkpoint holds"
    parser = _command(adder, "inspect", commands.inspect, summary)
    parser.add_argument("input", metavar="FILE|CHECKPOINT", help=_FILE)


def _add_service(parser: argparse.ArgumentParser, *, space: str | None = "the index space") -> None:
    """Where the service is, and the space: required by default, None for a command without one."""
    group = parser.add_argument_group("the service")
    if space is not None:
        group.add_argument("--space", required=space == "the index space", help=space)
    group.add_argument("--url", help="else MODELKIN_URL, else http://127.0.0.1:8000")
    group.add_argument(
        "--api-key", metavar="KEY", help="else MODELKIN_API_KEY, which other users cannot see"
    )
