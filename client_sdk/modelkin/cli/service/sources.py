"""The command ``sources``: the hubs whose models spaces follow."""

from __future__ import annotations

import argparse
import secrets
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, get_args

from modelkin._terminal_text import one_line
from modelkin.cli.confirmation import confirm
from modelkin.cli.options import add_confirmation, add_limit, add_service, first_rows
from modelkin.cli.output import Answer, fields_of, pairs, table
from modelkin.cli.texts import count_text, state_text, text_or_dash, time_text
from modelkin.client import Client
from modelkin.errors import InvalidParameter
from modelkin.types.hubs import Source
from modelkin.types.paging import UNCHANGED, Unchanged
from modelkin.types.vocabulary import KnownHubKind

__all__ = [
    "absence_notes",
    "add",
    "add_options",
    "events",
    "events_options",
    "list_all",
    "list_all_options",
    "poll",
    "poll_options",
    "remove",
    "remove_options",
    "status_of",
]

_SECRET_BYTES: Final = 32


def list_all_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``sources list``."""
    add_service(parser, space="only those of this index space", required=False)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``sources add``."""
    parser.add_argument("kind", choices=get_args(KnownHubKind), help="the kind of hub")
    add_service(parser)
    parser.add_argument(
        "--hub-url",
        metavar="URL",
        help="the address of the hub; without it events are only recorded",
    )
    parser.add_argument(
        "--secret-file",
        metavar="FILE",
        help="a file whose first line verifies the hub's events, - for standard input; by default "
        "a new secret is made and printed",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="a file whose first line opens the hub"
    )
    parser.add_argument(
        "--importance",
        choices=("weight", "delta"),
        help="the importance of what is stored; by default both, where there is a base",
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
        "--poll-seconds",
        type=int,
        metavar="COUNT",
        help="the seconds between two polls; 0 for none",
    )
    parser.add_argument(
        "--no-fingerprints",
        dest="fingerprints",
        action="store_false",
        help="make no fingerprints, by which models of any layout are found again",
    )
    parser.add_argument(
        "--backfill-per-hour",
        type=int,
        metavar="COUNT",
        help="how many stored models an hour are read again for their fingerprints, 60 by default; "
        "0 for no limit",
    )


def poll_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``sources poll``."""
    _add_source(parser)


def events_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``sources events``."""
    _add_source(parser)
    add_limit(parser)


def remove_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``sources remove``."""
    _add_source(parser)
    add_confirmation(parser)


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="the source's id, as `sources` shows it")
    add_service(parser, space=None)


def list_all(arguments: argparse.Namespace) -> Answer:
    """``modelkin sources list``: the sources with their last poll and error, the newest first."""
    with Client(arguments.url, arguments.api_key) as client:
        found = [s for s in client.sources.list() if arguments.space in {None, s.space}]
    columns = ("SOURCE", "KIND", "SPACE", "HUB", "MODELS", "FINGERPRINTS", "LAST POLL", "STATUS")
    text = table(columns, map(_row, found)) if found else "no sources"
    notes = tuple(note for source in found for note in absence_notes(source))
    return Answer(text, {"items": [fields_of(source) for source in found]}, notes)


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
            poll_seconds=_none_for_zero(arguments.poll_seconds),
            fingerprints=UNCHANGED if arguments.fingerprints else False,
            backfill_per_hour=_none_for_zero(arguments.backfill_per_hour),
        )
    summary = {"source": made.id, "space": made.space, "webhook": made.hook}
    fields = fields_of(made)
    if arguments.secret_file is None:  # the service never returns the secret, so it is shown here
        summary["secret"] = fields["secret"] = secret
    return Answer(pairs(summary), fields)


def poll(arguments: argparse.Namespace) -> Answer:
    """``modelkin sources poll``: start a comparison of a hub with the space."""
    with Client(arguments.url, arguments.api_key) as client:
        job = client.sources.poll(arguments.source)
    text = one_line(f"job {job.id}, {job.state}: `modelkin jobs wait {job.id}` waits for it")
    return Answer(text, fields_of(job))


def events(arguments: argparse.Namespace) -> Answer:
    """``modelkin sources events``: the events that a hub has sent, the newest first."""
    with Client(arguments.url, arguments.api_key) as client:
        found, more = first_rows(client.sources.hub_events(arguments.source), arguments)
    rows = [
        (
            time_text(each.received_at),
            each.event,
            text_or_dash(each.model),
            each.outcome,
            text_or_dash(each.reason or each.job),
        )
        for each in found
    ]
    columns = ("TIME", "EVENT", "MODEL", "OUTCOME", "WHY OR JOB")
    text = table(columns, rows) + more if rows else "no events"
    return Answer(text, {"items": [fields_of(each) for each in found]})


def remove(arguments: argparse.Namespace) -> Answer:
    """``modelkin sources remove``: stop following a hub; the models that came from it stay."""
    confirm(
        arguments, f"stop following the hub of source {arguments.source}, and forget what it sent"
    )
    with Client(arguments.url, arguments.api_key) as client:
        client.sources.delete(arguments.source)
    return Answer(f"{arguments.source}: removed", {"source": arguments.source})


def _row(source: Source) -> tuple[str, ...]:
    models = None if source.last_poll is None else source.last_poll.get("models")
    return (
        source.id,
        source.kind,
        source.space,
        text_or_dash(source.url),
        count_text(models if isinstance(models, int) else None),
        fingerprints_of(source),
        time_text(source.last_poll_at),
        state_text(status_of(source)),
    )


def fingerprints_of(source: Source) -> str:
    """How many models have one, are to be read for theirs, or have no file that is read."""
    if not source.fingerprints:
        return "none"
    counts = source.fingerprint_counts
    waiting, unread = counts.get("waiting", 0), counts.get("unread", 0)
    more = f", {waiting:,} to read" if waiting else ""
    more += f", {unread:,} not readable" if unread else ""
    return f"{counts.get('read', 0):,}{more}"


def absence_notes(source: Source) -> list[str]:
    """A note for owners of whom the hub listed no model, who may be misspelt; none without any."""
    owners = (source.last_poll or {}).get("absent_owners")
    if not isinstance(owners, list) or not owners:
        return []
    return [f"{source.id}: the hub listed no model of {', '.join(map(str, owners))}"]


def status_of(source: Source) -> str:
    """The code of the last error, unless a poll succeeded after it."""
    error, polled = source.last_error, source.last_poll_at
    if error is not None and (polled is None or polled <= _moment(error.get("at"))):
        return str(error.get("code"))
    if polled is not None:
        return "ok"
    return "events only" if source.url is None else "not polled yet"


def _moment(text: object) -> datetime:
    """The time that an error names; an error without a time with its offset counts as the last."""
    with suppress(TypeError, ValueError):
        moment = datetime.fromisoformat(text)  # type: ignore[arg-type]
        if moment.tzinfo is not None:
            return moment
    return datetime.max.replace(tzinfo=UTC)


def _none_for_zero(given: int | None) -> int | Unchanged | None:
    """A number, or None for 0: no polls, or no limit; without a number the service decides."""
    return UNCHANGED if given is None else given or None


def _content(file: str | None) -> str | None:
    """The first line of a file or, for ``-``, of standard input: a secret that no command shows.

    Raises:
        InvalidParameter: the input is empty.
    """
    if file is None:
        return None
    text = sys.stdin.readline() if file == "-" else Path(file).read_text()
    line = text.partition("\n")[0].strip()
    if not line:
        raise InvalidParameter(f"{file}: its first line is empty, and should be the secret")
    return line
