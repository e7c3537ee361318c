"""The command ``sources``: the hubs whose models spaces follow."""

from __future__ import annotations

import argparse
import secrets
import sys
from datetime import datetime
from pathlib import Path
from typing import Final

from modelkin.cli.cells import count_cell, text_cell, time_cell
from modelkin.cli.output import Answer, fields_of, pairs, table
from modelkin.client import Client
from modelkin.errors import InvalidParameter
from modelkin.types.hubs import Source
from modelkin.types.paging import UNCHANGED, Unchanged

__all__ = ["add", "list_all", "remove", "status_of"]

_SECRET_BYTES: Final = 32


def list_all(arguments: argparse.Namespace) -> Answer:
    """``modelkin sources list``: the sources with their last poll and error, the newest first."""
    with Client(arguments.url, arguments.api_key) as client:
        found = [s for s in client.sources.list() if arguments.space in {None, s.space}]
    columns = ("SOURCE", "KIND", "SPACE", "HUB", "MODELS", "LAST POLL", "STATUS")
    text = table(columns, map(_row, found)) if found else "no sources"
    return Answer(text, {"items": [fields_of(source) for source in found]})


def add(arguments: argparse.Namespace) -> Answer:
    """``modelkin sources add``: follow the models of a hub."""
    secret = _content(arguments.secret_file) or secrets.token_urlsafe(_SECRET_BYTES)
    given = {"repos": arguments.repo, "owners": arguments.owner, "tags": arguments.tag}
    with Client(arguments.url, arguments.api_key) as client:
        made = client.sources.create(
            arguments.kind,
            arguments.space,
            secret=secret,
            url=arguments.hub_url,
            token=_content(arguments.token_file),
            importance=arguments.importance,
            base_model=arguments.base_model,
            exclude=arguments.exclude,
            filters={name: values for name, values in given.items() if values} or None,
            on_delete=arguments.on_delete,
            poll_seconds=_poll_seconds(arguments.poll_seconds),
        )
    summary = {"source": made.id, "space": made.space, "webhook": made.hook}
    fields = fields_of(made)
    if arguments.secret_file is None:  # the service never answers it, so it is shown here
        summary["secret"] = fields["secret"] = secret
    return Answer(pairs(summary), fields)


def remove(arguments: argparse.Namespace) -> Answer:
    """``modelkin sources remove``: stop following a hub; the models that came from it stay."""
    with Client(arguments.url, arguments.api_key) as client:
        client.sources.delete(arguments.source)
    return Answer(f"{arguments.source}: removed", {"source": arguments.source})


def _row(source: Source) -> tuple[str, ...]:
    models = None if source.last_poll is None else source.last_poll.get("models")
    return (
        source.id,
        source.kind,
        source.space,
        text_cell(source.url),
        count_cell(models),
        time_cell(source.last_poll_at),
        status_of(source),
    )


def status_of(source: Source) -> str:
    """The code of the last error, unless a poll succeeded after it."""
    error, polled = source.last_error, source.last_poll_at
    if error is not None and (polled is None or polled <= datetime.fromisoformat(error["at"])):
        return str(error["code"])
    if polled is not None:
        return "ok"
    return "events only" if source.url is None else "not polled yet"


def _poll_seconds(given: int | None) -> int | Unchanged | None:
    """0 is never; without a number the service decides."""
    return UNCHANGED if given is None else given or None


def _content(file: str | None) -> str | None:
    """The first line of a file or, for ``-``, of standard input: a secret that no command shows.

    Raises:
        InvalidParameter: it is empty.
    """
    if file is None:
        return None
    text = sys.stdin.readline() if file == "-" else Path(file).read_text()
    line = text.partition("\n")[0].strip()
    if not line:
        raise InvalidParameter(f"{file}: its first line is empty, and should be the secret")
    return line
