"""The command ``merge``: create, show, join and plan averages of models that no party sees."""

from __future__ import annotations

import argparse
import re
from typing import Any, Final

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
from modelkin.cli.options import add_service
from modelkin.cli.output import Answer, fields_of, table
from modelkin.cli.texts import text_or_dash, time_text
from modelkin.client import Client
from modelkin.errors import InvalidParameter
from modelkin.federation.shards.costs import METHODS, client_bytes, distribution_time
from modelkin.federation.shards.leakage import leakage_bound

__all__ = [
    "create",
    "create_options",
    "join",
    "join_options",
    "plan",
    "plan_options",
    "show",
    "show_options",
]

_UNITS: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:e[0-9]+)?)\s*([kMGT]?)(bit|B)(?:/s)?")


def create_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``merge create``."""
    add_service(parser)
    parser.add_argument("--merge", required=True, metavar="NAME", help="the name of the merge")
    members = parser.add_mutually_exclusive_group(required=True)
    members.add_argument(
        "--member", action="append", metavar="MODEL", help="a model that takes part; repeats"
    )
    members.add_argument(
        "--donors-of", metavar="MODEL", help="the best donors of this model, with their weights"
    )
    members.add_argument(
        "--clustering", metavar="ID", help="the id of a clustering, or latest; with --cluster"
    )
    parser.add_argument(
        "--cluster", type=int, metavar="NUMBER", help="the cluster's number in the clustering"
    )
    parser.add_argument("-k", type=int, metavar="COUNT", help="the number of donors; default 10")
    parser.add_argument(
        "--aggregators",
        type=int,
        metavar="COUNT",
        help="the number of shards; default 4, or fewer so that one member may be away",
    )
    parser.add_argument(
        "--weights",
        choices=("donors", "examples", "equal"),
        help="how members are weighed; by default as suits the members",
    )
    parser.add_argument(
        "--of",
        choices=("weights", "delta"),
        help="what is averaged: weights, or differences to a common base",
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="let aggregators see the members' shards, in place of sums",
    )
    parser.add_argument(
        "--one-in", type=int, metavar="C", help="with --of delta: send one value in C"
    )
    parser.add_argument(
        "--min-members",
        type=int,
        metavar="COUNT",
        help="the fewest members that are averaged; default 3",
    )
    parser.add_argument(
        "--deadline",
        type=int,
        metavar="SECONDS",
        help="the longest time in each state; default 3600",
    )


def join_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``merge join``."""
    add_service(parser)
    party_options(parser)


def show_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``merge show``."""
    parser.add_argument(
        "--merge", metavar="NAME", help="the name of one merge; by default all merges of the space"
    )
    add_service(parser)


def plan_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``merge plan``."""
    parser.add_argument("--members", type=int, required=True, metavar="COUNT")
    parser.add_argument(
        "--parameters",
        type=float,
        required=True,
        metavar="COUNT",
        help="the parameters of a model, such as 1e9",
    )
    parser.add_argument(
        "--rate",
        default="100Mbit",
        help="the rate of each party's connection, 100Mbit or 12MB a second",
    )
    parser.add_argument(
        "--aggregators",
        type=int,
        metavar="COUNT",
        help="the number of aggregators; default: all members",
    )
    parser.add_argument("--one-in", type=int, default=1, metavar="C", help="send one value in C")
    parser.add_argument("--rounds", type=int, default=1, metavar="COUNT")
    parser.add_argument(
        "--snr",
        type=float,
        default=1.0,
        help="the ratio of signal to noise of a value, for the bound",
    )


def create(arguments: argparse.Namespace) -> Answer:
    """``modelkin merge create``: settle members and weights, and await the members."""
    with Client(arguments.url, arguments.api_key) as client:
        made = client.merges.create(
            arguments.space,
            arguments.merge,
            members=arguments.member,
            donors_of=arguments.donors_of,
            k=arguments.k,
            clustering=arguments.clustering,
            cluster=arguments.cluster,
            aggregators=arguments.aggregators,
            weights=arguments.weights,
            of=arguments.of,
            conceal=False if arguments.plain else None,
            one_in=arguments.one_in,
            min_members=arguments.min_members,
            deadline=arguments.deadline,
        )
    return shown(made)


def show(arguments: argparse.Namespace) -> Answer:
    """``modelkin merge show``: one merge, or all merges of a space, the newest first."""
    with Client(arguments.url, arguments.api_key) as client:
        if arguments.merge is not None:
            return shown(client.merges.get(arguments.space, arguments.merge))
        found = list(client.merges.list(arguments.space))
    rows = [(m.name, m.state, time_text(m.created_at), text_or_dash(m.failure)) for m in found]
    text = table(("MERGE", "STATE", "CREATED", "FAILURE"), rows) if rows else "no merges"
    return Answer(text, {"items": [fields_of(merge) for merge in found]})


def join(arguments: argparse.Namespace) -> Answer:
    """``modelkin merge join``: take part to the end; the average is written to a file."""
    check_files(arguments)
    with Client(arguments.url, arguments.api_key) as client:
        space = client.spaces.get(arguments.space)
        values, sink = files_of(arguments, space.layout, space.exclude)
        with Line() as line:
            merged = client.merges.join(
                arguments.space,
                arguments.merge,
                arguments.model,
                values,
                output=sink,
                group_secret=secret_of(arguments.group_secret_file),
                on_progress=line.draw,
                **part_of(arguments),
            )
    return end_of(merged, arguments.output)


def plan(arguments: argparse.Namespace) -> Answer:
    """``modelkin merge plan``: bytes, times and the bound, beside other methods."""
    size = 4 * arguments.parameters
    rate = _rate(arguments.rate)
    shards = arguments.aggregators or arguments.members
    given: dict[str, Any] = {
        "n": arguments.members,
        "size": size,
        "aggregators": shards,
        "one_in": float(arguments.one_in),
    }
    times = {method: distribution_time(method, up=rate, down=rate, **given) for method in METHODS}
    sent = {method: client_bytes(method, **given) for method in METHODS}
    bound = leakage_bound(
        num_parameters=int(arguments.parameters),
        rounds=arguments.rounds,
        shards=shards,
        one_in=float(arguments.one_in),
        snr=arguments.snr,
    )
    rows = [
        (method, *(f"{part / 1e6:,.1f} MB" for part in sent[method]), f"{times[method]:,.1f} s")
        for method in sorted(METHODS, key=lambda method: times[method])
    ]
    text = table(("METHOD", "A MEMBER SENDS", "RECEIVES", "A ROUND"), rows)
    notes = (
        "times are of transfers alone, at the same rate both ways; through a hub, which relays "
        "every cell, the hub's rate counts",
        f"an aggregator of plain shards learns {bound:,.3g} nats of a member at most; the bound is "
        f"loose and promises nothing: see docs/sharing.md",
    )
    fields = {"seconds": times, "bytes": sent, "leakage_bound": bound}
    return Answer(text, fields, notes)


def _rate(text: str) -> float:
    """Parse ``100Mbit`` or ``12MB`` as bytes a second.

    Raises:
        InvalidParameter: the text has another form.
    """
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise InvalidParameter(f"--rate {text}: write 100Mbit or 12MB")
    value = float(found[1]) * _UNITS[found[2]]
    return value / 8 if found[3] == "bit" else value
