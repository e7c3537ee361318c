"""The command ``keys``: list, make and revoke API keys."""

from __future__ import annotations

import argparse
from datetime import timedelta

from modelkin.cli.confirmation import confirm
from modelkin.cli.options import add_confirmation, add_limit, add_service, first_rows
from modelkin.cli.output import Answer, fields_of, pairs, table
from modelkin.cli.texts import state_text, text_or_dash, time_text
from modelkin.client import Client

__all__ = [
    "create",
    "create_options",
    "list_all",
    "list_all_options",
    "revoke",
    "revoke_options",
]


def list_all_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``keys list``."""
    add_service(parser, space=None)
    add_limit(parser)


def create_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``keys create``."""
    parser.add_argument("--label", default="", metavar="TEXT", help="a note of what the key is for")
    parser.add_argument(
        "--scope",
        action="append",
        metavar="NAME",
        help="a scope: read, write, values, metrics or admin; repeats; by default read and write",
    )
    parser.add_argument(
        "--days",
        type=float,
        metavar="COUNT",
        help="how long the key is valid; by default until it is revoked",
    )
    add_service(parser, space=None)


def revoke_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``keys revoke``."""
    parser.add_argument(
        "key", metavar="PREFIX", help="the key's first 11 characters, as `keys` shows them"
    )
    add_confirmation(parser)
    add_service(parser, space=None)


def list_all(arguments: argparse.Namespace) -> Answer:
    """``modelkin keys``: the keys of the tenant, the newest first."""
    with Client(arguments.url, arguments.api_key) as client:
        found, more = first_rows(client.keys.list(), arguments)
    columns = ("KEY", "LABEL", "SCOPES", "STATE", "CREATED", "EXPIRES", "LAST USED")
    rows = [
        (
            f"{key.prefix} (this one)" if key.current else key.prefix,
            text_or_dash(key.label or None),
            ", ".join(key.scopes),
            state_text(key.state),
            time_text(key.created_at),
            time_text(key.expires_at),
            time_text(key.last_used_at),
        )
        for key in found
    ]
    text = table(columns, rows) + more if rows else "no keys"
    return Answer(text, {"items": [fields_of(key) for key in found]})


def create(arguments: argparse.Namespace) -> Answer:
    """``modelkin keys create``: a new key; later answers show only its beginning."""
    valid_for = None if arguments.days is None else timedelta(days=arguments.days)
    with Client(arguments.url, arguments.api_key) as client:
        made = client.keys.create(
            label=arguments.label, scopes=arguments.scope, valid_for=valid_for
        )
    summary = {
        "key": text_or_dash(made.key),
        "scopes": ", ".join(made.scopes),
        "expires": time_text(made.expires_at),
    }
    return Answer(pairs(summary), fields_of(made))


def revoke(arguments: argparse.Namespace) -> Answer:
    """``modelkin keys revoke``: the key opens nothing from now on."""
    confirm(arguments, f"revoke key {arguments.key}")
    with Client(arguments.url, arguments.api_key) as client:
        client.keys.revoke(arguments.key)
    return Answer(f"{arguments.key}: revoked", {"key": arguments.key})
