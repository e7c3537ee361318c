"""Actions about public spaces: publish, withdraw, list and ask."""

from __future__ import annotations

import argparse
from pathlib import Path

from modelkin.cli.confirmation import confirm
from modelkin.cli.inputs import refuse_fingerprint
from modelkin.cli.options import add_confirmation, add_count, add_limit, add_service, first_rows
from modelkin.cli.output import Answer, fields_of, pairs, table
from modelkin.cli.texts import count_text, text_or_dash
from modelkin.client import Client
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter
from modelkin.types.public import PublicSpace

__all__ = [
    "ask",
    "ask_options",
    "list_all",
    "list_all_options",
    "publish",
    "publish_options",
    "withdraw",
    "withdraw_options",
]

_SIGNATURE = b"MKSG"
"""The first bytes of a signature."""


def publish_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``spaces publish``."""
    parser.add_argument("space", metavar="NAME", help="the name of the space")
    parser.add_argument(
        "--step",
        type=float,
        default=0.05,
        help="the step of scores: 0.01, 0.02, 0.05 (the default), 0.1, 0.2 or 0.25; an option that "
        "is left out gets its default, also where the space is public with another value",
    )
    parser.add_argument(
        "--floor",
        type=float,
        default=0.3,
        metavar="SCORE",
        help="the least score that is shown, more than one step; default 0.3",
    )
    parser.add_argument(
        "--daily-queries",
        type=int,
        default=1_000,
        metavar="COUNT",
        help="the queries of each tenant a day; default 1,000",
    )
    parser.add_argument(
        "--description", default="", metavar="TEXT", help="a description for other tenants"
    )
    add_confirmation(parser)
    add_service(parser, space=None)


def withdraw_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``spaces withdraw``."""
    parser.add_argument("space", metavar="NAME", help="the name of the space")
    parser.add_argument(
        "-y", "--yes", action="store_true", help="as for publish; nothing is asked here"
    )
    add_service(parser, space=None)


def list_all_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``spaces public``."""
    add_service(parser, space=None)
    add_limit(parser)


def ask_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``spaces ask``."""
    parser.add_argument(
        "space", metavar="OWNER/NAME", help="the space, as `spaces public` shows it"
    )
    parser.add_argument("file", metavar="FILE", help="a support or a signature; it is not stored")
    add_count(parser.add_argument, "how many models, at most 100; default 10")
    add_service(parser, space=None)


def publish(arguments: argparse.Namespace) -> Answer:
    """``modelkin spaces publish``: every tenant may ask the space from now on."""
    described = f", described as {arguments.description!r}" if arguments.description else ""
    confirm(
        arguments,
        f"let every tenant of the service ask space {arguments.space}, in steps of "
        f"{arguments.step:g} from {arguments.floor:g} on, {arguments.daily_queries:,} queries a "
        f"day{described}",
    )
    with Client(arguments.url, arguments.api_key) as client:
        made = client.public.publish(
            arguments.space,
            step=arguments.step,
            floor=arguments.floor,
            daily_queries=arguments.daily_queries,
            description=arguments.description,
        )
    summary = {
        "public": _name(made),
        "step": f"{made.step:g}",
        "floor": f"{made.floor:g}",
        "queries a day": count_text(made.daily_queries),
        "description": text_or_dash(made.description or None),
    }
    return Answer(pairs(summary), fields_of(made))


def withdraw(arguments: argparse.Namespace) -> Answer:
    """``modelkin spaces withdraw``: no other tenant may ask the space any more."""
    with Client(arguments.url, arguments.api_key) as client:
        client.public.withdraw(arguments.space)
    return Answer(f"{arguments.space}: not public", {"space": arguments.space})


def list_all(arguments: argparse.Namespace) -> Answer:
    """``modelkin spaces public``: the public spaces of all tenants."""
    with Client(arguments.url, arguments.api_key) as client:
        found, more = first_rows(client.public.list(), arguments)
    columns = ("SPACE", "STEP", "FLOOR", "QUERIES A DAY", "DESCRIPTION")
    rows = [
        (
            _name(public),
            f"{public.step:g}",
            f"{public.floor:g}",
            count_text(public.daily_queries),
            text_or_dash(public.description or None),
        )
        for public in found
    ]
    text = table(columns, rows) + more if rows else "no public spaces"
    return Answer(text, {"items": [fields_of(public) for public in found]})


def ask(arguments: argparse.Namespace) -> Answer:
    """``modelkin spaces ask``: the models of a public space that are nearest to a file."""
    owner, slash, space = arguments.space.partition("/")
    if not slash:
        raise InvalidParameter(
            f"a public space is named OWNER/NAME, not {arguments.space!r}: see `modelkin spaces "
            f"public`",
            field="space",
        )
    content = Path(arguments.file).read_bytes()
    refuse_fingerprint(arguments.file)
    form = Signature if content.startswith(_SIGNATURE) else Support
    with Client(arguments.url, arguments.api_key) as client:
        found = client.public.neighbors(owner, space, form.from_bytes(content), k=arguments.count)
    rows = [(item.model, f"{item.score:g}") for item in found]
    text = table(("MODEL", "SCORE"), rows) if rows else f"no model from {found.floor:g} on"
    left = f"queries left today: {found.remaining:,}"
    return Answer(f"{text}\n\n{left}", fields_of(found))


def _name(public: PublicSpace) -> str:
    return f"{public.owner}/{public.space}"
