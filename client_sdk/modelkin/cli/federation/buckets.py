"""The command ``bucket``: averages of checkpoints through a bucket or a shared folder alone."""

from __future__ import annotations

import argparse

from modelkin import checkpoints
from modelkin.cli.federation.parties import (
    Line,
    check_files,
    end_of,
    files_of,
    part_of,
    party_options,
    secret_of,
    shown,
)
from modelkin.cli.output import Answer
from modelkin.core.layout import Layout
from modelkin.errors import InvalidParameter
from modelkin.federation.buckets import BucketMerge, BucketStore, FolderStore, Store
from modelkin.federation.shards.plan import MIN_MEMBERS

__all__ = ["create", "create_options", "join", "join_options", "show", "show_options"]


def create_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``bucket create``."""
    show_options(parser)
    parser.add_argument("checkpoint", help="a checkpoint with the tensors that all members have")
    parser.add_argument(
        "--member",
        action="append",
        required=True,
        metavar="MODEL",
        help="a model that takes part, or MODEL=WEIGHT for all of them; repeats",
    )
    parser.add_argument(
        "--leader", required=True, metavar="MODEL", help="the party that ends each state"
    )
    parser.add_argument(
        "--neutral",
        action="append",
        default=[],
        metavar="NAME",
        help="a party that aggregates alone; repeats",
    )
    parser.add_argument("--weights", choices=("examples", "equal"), help="default examples")
    parser.add_argument(
        "--of", choices=("weights", "delta"), default="weights", help="what is averaged"
    )
    parser.add_argument(
        "--aggregators",
        type=int,
        metavar="COUNT",
        help="the number of shards; default 4, or fewer so that one member may be away",
    )
    parser.add_argument(
        "--plain", action="store_true", help="let aggregators see the members' shards"
    )
    parser.add_argument(
        "--one-in", type=int, default=1, metavar="C", help="with --of delta: send one value in C"
    )
    parser.add_argument(
        "--min-members", type=int, default=MIN_MEMBERS, metavar="COUNT", help="default 3"
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="the longest time in each state; default 3600",
    )


def join_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``bucket join``."""
    _store_option(parser)
    party_options(parser)


def show_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``bucket show``."""
    _store_option(parser)
    parser.add_argument("--merge", required=True, metavar="NAME", help="the name of the merge")
    parser.add_argument(
        "--group-secret-file",
        required=True,
        metavar="FILE",
        help="a file of 16 random bytes or more that all parties have, and nobody else",
    )


def create(arguments: argparse.Namespace) -> Answer:
    """``modelkin bucket create``: write down who averages, with which weights."""
    made = _merge(arguments).create(
        _layout(arguments.checkpoint),
        _members(arguments.member),
        leader=arguments.leader,
        neutral=arguments.neutral,
        weights=arguments.weights,
        of=arguments.of,
        aggregators=arguments.aggregators,
        conceal=not arguments.plain,
        one_in=arguments.one_in,
        min_members=arguments.min_members,
        deadline=arguments.deadline,
    )
    return shown(made)


def show(arguments: argparse.Namespace) -> Answer:
    """``modelkin bucket show``: the merge, and whom it waits for."""
    return shown(_merge(arguments).show())


def join(arguments: argparse.Namespace) -> Answer:
    """``modelkin bucket join``: take part to the end; the average is written to a file."""
    check_files(arguments)
    layout = None if arguments.checkpoint is None else _layout(arguments.checkpoint)
    values, sink = (None, None) if layout is None else files_of(arguments, layout)
    with Line() as line:
        merged = _merge(arguments).join(
            arguments.model,
            values,
            layout=layout,
            output=sink,
            on_progress=line.draw,
            **part_of(arguments),
        )
    return end_of(merged, arguments.output)


def _store_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        required=True,
        metavar="WHERE",
        help="a bucket, s3://bucket/prefix, gs: or az: likewise, or a folder that all share",
    )


def _merge(arguments: argparse.Namespace) -> BucketMerge:
    where, secret = arguments.store, secret_of(arguments.group_secret_file)
    store: Store = BucketStore(where) if "://" in where else FolderStore(where)
    return BucketMerge(store, arguments.merge, group_secret=secret or b"")


def _layout(path: str) -> Layout:
    """The tensors by their names: files of the same tensors have them in any order."""
    tensors = checkpoints.open_checkpoint(path).layout.tensors
    return Layout.of(sorted((tensor.name, tensor.shape) for tensor in tensors))


def _members(given: list[str]) -> list[str] | dict[str, float]:
    """The members, with their weights if these are given.

    Raises:
        InvalidParameter: a weight is no number, or some members have none.
    """
    parts = [each.rpartition("=") for each in given]
    if not any(separator for _, separator, _ in parts):
        return given
    try:
        return {name: float(weight) for name, _, weight in parts}
    except ValueError:
        raise InvalidParameter("--member MODEL=WEIGHT: a number, for each member") from None
