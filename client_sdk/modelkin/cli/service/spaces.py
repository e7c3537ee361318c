"""The command ``spaces``: list, show, make and delete index spaces."""

from __future__ import annotations

import argparse
from typing import Final

from modelkin.cli.confirmation import confirm
from modelkin.cli.options import add_confirmation, add_limit, add_service, first_rows
from modelkin.cli.output import Answer, fields_of, names, pairs, quantity, table
from modelkin.cli.texts import count_text, text_or_dash, time_text
from modelkin.client import Client
from modelkin.core.importance import Importance
from modelkin.types.spaces import SpaceInfo

__all__ = [
    "create",
    "create_options",
    "list_all",
    "list_all_options",
    "remove",
    "remove_options",
    "short_importance",
    "show",
    "show_options",
]

_DIGITS: Final = 12
_MAX_BASE: Final = 40
"""Characters of a base in a table."""


def list_all_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``spaces list``."""
    add_service(parser, space=None)
    add_limit(parser)
    parser.add_argument("--names", action="store_true", help="the names alone, one a line")


def show_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``spaces show``."""
    parser.add_argument("space", metavar="NAME", help="the name of the space")
    add_service(parser, space=None)


def create_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``spaces create``."""
    parser.add_argument(
        "space", metavar="NAME", help="the name, of lower-case letters, digits and . _ -"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--like",
        metavar="CHECKPOINT",
        help="the checkpoint whose tensors are the layout",
    )
    what.add_argument(
        "--num-parameters", type=int, metavar="M", help="M, for a space without a layout"
    )
    parser.add_argument(
        "--importance",
        metavar="KIND",
        help="the importance: weight, delta, fisher, ...; by default the space takes any",
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="tensors that supports leave out, '*.running_*' for one; repeats",
    )
    parser.add_argument(
        "--support-size",
        type=_support_size,
        metavar="SIZE",
        help="the rule for K: agreed for the clients' median, or a fixed count or share like 0.05",
    )
    parser.add_argument(
        "--ordered",
        action="store_true",
        help="make a space of ordered supports, for --measure ordered",
    )
    add_service(parser, space=None)


def remove_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``spaces rm``."""
    parser.add_argument("space", metavar="NAME", help="the name of the space")
    add_confirmation(parser)
    add_service(parser, space=None)


def list_all(arguments: argparse.Namespace) -> Answer:
    """``modelkin spaces``: the spaces by name."""
    with Client(arguments.url, arguments.api_key) as client:
        found, more = first_rows(client.spaces.list(), arguments)
    fields = {"items": [_fields(space) for space in found]}
    if arguments.names:
        return Answer(names(space.name for space in found), fields, whole=True)
    columns = ("SPACE", "KIND", "PARAMETERS", "MODELS", "IMPORTANCE", "LAYOUT", "CREATED")
    rows = [
        (
            space.name,
            space.kind,
            count_text(space.num_parameters),
            count_text(space.models),
            text_or_dash(short_importance(space.importance)),
            "yes" if space.layout_digest else "no",
            time_text(space.created_at),
        )
        for space in found
    ]
    return Answer(table(columns, rows) + more if rows else "no spaces", fields)


def show(arguments: argparse.Namespace) -> Answer:
    """``modelkin spaces show``: a space with its counts and its rules."""
    with Client(arguments.url, arguments.api_key) as client:
        return _answer(client.spaces.get(arguments.space))


def create(arguments: argparse.Namespace) -> Answer:
    """``modelkin spaces create``: create a space, unless the same one exists."""
    layout = None
    if arguments.like is not None:
        from modelkin.checkpoints import open_checkpoint  # no other action reads a file

        layout = open_checkpoint(arguments.like).layout
    with Client(arguments.url, arguments.api_key) as client:
        made = client.ensure_space(
            arguments.space,
            layout=layout,
            num_parameters=arguments.num_parameters,
            importance=arguments.importance,
            exclude=arguments.exclude,
            support_size=arguments.support_size,
            ordered=arguments.ordered,
        )
    return _answer(made)


def remove(arguments: argparse.Namespace) -> Answer:
    """``modelkin spaces rm``: delete a space with every model in it."""
    name = arguments.space
    with Client(arguments.url, arguments.api_key) as client:
        models = client.spaces.get(name).models
        confirm(arguments, f"delete space {name} with {quantity(models, 'model')}")
        client.spaces.delete(name)
    text = f"{name}: deleted, with {quantity(models, 'model')}"
    return Answer(text, {"space": name, "models": models})


def _answer(space: SpaceInfo) -> Answer:
    size = space.support_size
    fixed = "" if size.k is None else f", {size.k:,}"
    tensors = None if space.layout is None else quantity(len(space.layout.tensors), "tensor")
    summary = {
        "space": space.name,
        "kind": space.kind,
        "parameters": count_text(space.num_parameters),
        "layout": text_or_dash(tensors),
        "left out": ", ".join(space.exclude) or text_or_dash(None),
        "importance": text_or_dash(_importance(space)),
        "support size": f"{size.policy}{fixed}",
        "models": f"{space.models:,}: {space.supports:,} with a support, "
        f"{space.signatures:,} with a signature alone",
        "signature": f"{space.signature.scheme}, {space.signature.num_perm} permutations, "
        f"seed {space.signature.seed}",
        "created": time_text(space.created_at),
    }
    if space.ordered:
        summary["supports"] = "ordered"
    if space.kind == "subspaces":
        shared = space.subspaces
        for name in ("support size", "signature", "left out", "importance", "layout"):
            del summary[name]
        summary["models"] = count_text(space.models)
        summary["features"] = text_or_dash((shared.features if shared else None) or None)
    return Answer(pairs(summary), _fields(space))


def _fields(space: SpaceInfo) -> dict[str, object]:
    fields = fields_of(space)
    fields["layout"] = None
    if space.layout is not None:
        fields["layout"] = [
            {"name": each.name, "shape": list(each.shape)} for each in space.layout.tensors
        ]
    fields["importance"] = _importance(space)
    return fields


def short_importance(importance: Importance) -> str | None:
    """A kind of importance in a table: its base by name, or by some digits of a digest."""
    if importance.base is None:
        return importance.kind if importance.is_stated else None
    name, _, digest = importance.base.rpartition("@")
    algorithm, _, digits = digest.partition(":")
    base = name or f"{algorithm}:{digits[:_DIGITS]}"
    cut = base if len(base) <= _MAX_BASE else f"{base[: _MAX_BASE - 3]}..."
    return f"{importance.kind} against {cut}"


def _importance(space: SpaceInfo) -> str | None:
    return str(space.importance) if space.importance.is_stated else None


def _support_size(text: str) -> str | float | int:
    if text == "agreed":
        return text
    return int(text) if text.isdecimal() else float(text)


_support_size.__name__ = "agreed, count or share"  # argparse prints this in its errors
