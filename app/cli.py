"""What an operator does besides serving: ``python -m app keys ...``, ``rebuild-buckets``,
``stop-lists``, ``split-kinds`` and ``renew-secrets``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from app.auth.service import SCOPES, KeyService, generate
from app.errors import Conflict, SpaceNotFound, SupportMissing, Unavailable, explain
from app.hubs.kind_split import KindSplit, KindSplitService
from app.index.banding import BandValueService
from app.infra.db import secret_rotation as stored
from app.infra.db.database import Database
from app.infra.db.migrations import migrate
from app.infra.storage.encryption import Secrets
from app.maintenance.stop_lists import DEFAULT_SHARE, Progress, StopListService
from app.settings import Settings, unknown_variables, validation_messages
from app.spaces.records import SpaceRecord, StopList
from app.spaces.repository import all_spaces
from app.spaces.service import SpaceService
from app.stores import open_buckets, open_reader, open_redis, open_writer
from modelkin._progress_bar import ProgressLine, is_terminal
from modelkin.errors import InvalidParameter, ModelkinError

__all__ = ["keys", "rebuild_buckets", "renew_secrets", "split_kinds", "stop_lists"]

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def keys(arguments: list[str]) -> int:
    """``keys create|list|revoke|generate``; 0 done, 1 it could not be, 2 wrong settings."""
    return _carried_out(_parser().parse_args(arguments))


def rebuild_buckets(arguments: list[str]) -> int:
    """``rebuild-buckets [--space NAME]``; exit code 0 done, 1 failed, 2 wrong settings."""
    parser = argparse.ArgumentParser(
        prog="python -m app rebuild-buckets",
        description="Rebuild the LSH buckets from the database, while services go on.",
    )
    parser.add_argument("--space", help="only the spaces of this name (default: all)")
    parser.set_defaults(run=_rebuild_buckets)
    return _carried_out(parser.parse_args(arguments))


def stop_lists(arguments: list[str]) -> int:
    """``stop-lists [--space NAME] [--share S | --drop]``; 0 done, 1 it could not be, 2 wrong
    settings.
    """
    parser = argparse.ArgumentParser(
        prog="python -m app stop-lists",
        description="Find the indices that most models of a space hold, and leave them out of its "
        "LSH buckets, while services go on.",
    )
    parser.add_argument("--space", help="only the spaces of this name (default: all)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--share",
        type=float,
        default=DEFAULT_SHARE,
        help="of the supports, how many must hold an index that is left out (0.5)",
    )
    what.add_argument("--drop", action="store_true", help="go back to buckets of all indices")
    parser.set_defaults(run=_drop_stop_lists if "--drop" in arguments else _make_stop_lists)
    return _carried_out(parser.parse_args(arguments))


def split_kinds(arguments: list[str]) -> int:
    """``split-kinds [--space NAME]``; 0 done, 1 it could not be, 2 wrong settings."""
    parser = argparse.ArgumentParser(
        prog="python -m app split-kinds",
        description="Part the weights and the deltas that sources have stored in one space: deltas "
        "move to a space for each base, while services go on. It may be repeated.",
    )
    parser.add_argument("--space", help="only the spaces of this name (default: all)")
    parser.set_defaults(run=_split_kinds)
    return _carried_out(parser.parse_args(arguments))


def renew_secrets(arguments: list[str]) -> int:
    """``renew-secrets``; 0 done, 1 it could not be, 2 wrong settings."""
    parser = argparse.ArgumentParser(
        prog="python -m app renew-secrets",
        description="Encrypt all stored secrets again, with the first key of "
        "MODELKIN_ENCRYPTION_KEYS, so that the others can be removed; services go on.",
    )
    parser.set_defaults(run=_renew_secrets)
    return _carried_out(parser.parse_args(arguments))


def _carried_out(options: argparse.Namespace) -> int:
    run: Callable[[argparse.Namespace], int] = options.run
    for line in unknown_variables():
        print(f"modelkin: {line}", file=sys.stderr)
    try:
        return run(options)
    except ValidationError as error:
        for line in validation_messages(error):
            print(f"modelkin: {line}", file=sys.stderr)
        return 2
    except ModelkinError as error:
        print(f"modelkin: {explain(error)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m app keys", description="API keys.")
    commands = parser.add_subparsers(required=True, metavar="create|list|revoke|generate")
    create = commands.add_parser("create", help="store a new key and print it, this once")
    create.add_argument("--tenant", default="default", help="whose data it opens (default)")
    create.add_argument("--label", default="", help="what it is for, for the list")
    create.add_argument(
        "--scope",
        action="append",
        choices=SCOPES,
        help="what it may do; repeat for several (default: read and write)",
    )
    create.add_argument("--valid-for", help="how long it opens anything: 12h, 90d, 52w")
    create.set_defaults(run=_create)
    listed = commands.add_parser("list", help="list the keys by their first characters")
    listed.set_defaults(run=_list)
    revoke = commands.add_parser("revoke", help="make a key open nothing from now on")
    revoke.add_argument("prefix", help="the first characters of the key, as listed")
    revoke.set_defaults(run=_revoke)
    new = commands.add_parser("generate", help="print a new key without storing it")
    new.set_defaults(run=_generate)
    return parser


def _create(options: argparse.Namespace) -> int:
    with _open() as database, database.writing() as session:
        key = KeyService().create(
            session,
            options.tenant,
            label=options.label,
            scopes=options.scope or ("read", "write"),
            valid_for=_duration(options.valid_for),
        )
    print(key)
    print("Keep it: it is not stored, and not shown again.", file=sys.stderr)
    return 0


def _list(_: argparse.Namespace) -> int:
    with _open() as database, database.reading() as session:
        records = KeyService().list(session)
    now = datetime.now(UTC)
    print(f"{'KEY':12} {'TENANT':16} {'STATE':8} {'SCOPES':20} {'CREATED':10} LABEL")
    for key in records:
        expired = key.expires_at is not None and key.expires_at <= now
        state = "revoked" if key.revoked_at else "expired" if expired else "good"
        scopes = ",".join(sorted(key.scopes))
        print(
            f"{key.prefix:12} {key.tenant.name:16} {state:8} {scopes:20} "
            f"{key.created_at:%Y-%m-%d} {key.label}"
        )
    return 0


def _revoke(options: argparse.Namespace) -> int:
    with _open() as database, database.writing() as session:
        revoked = KeyService().revoke(session, options.prefix)
    if not revoked:
        print(f"modelkin: no good key begins with {options.prefix}", file=sys.stderr)
    return 0 if revoked else 1


def _generate(_: argparse.Namespace) -> int:
    print(generate())
    return 0


def _rebuild_buckets(options: argparse.Namespace) -> int:
    settings = Settings()
    with _open(settings) as database:
        chosen = _chosen(database, options.space)
        with (
            open_redis(settings) as server,
            open_buckets(settings, database, BandValueService(), server) as buckets,
        ):
            for space in chosen:
                buckets.rebuild(space)
                print(f"{space.name}: {space.models} models, {space.banding}")
    return 0


def _make_stop_lists(options: argparse.Namespace) -> int:
    settings = Settings()
    refused = 0
    with _open(settings) as database:
        service = StopListService(database, open_reader(settings, database))
        for space in _chosen(database, options.space):
            try:
                with _drawn(space.name) as progress:
                    made = service.make(space, share=options.share, progress=progress)
            except SupportMissing as error:
                if options.space is not None:
                    raise
                print(f"{space.name}: {error}")
            except (Conflict, SpaceNotFound) as error:  # another process handles this space
                refused = 1
                print(f"modelkin: {error}", file=sys.stderr)
            else:
                print(f"{space.name}: {_summary(made, options.share)}")
    return refused


def _drop_stop_lists(options: argparse.Namespace) -> int:
    settings = Settings()
    with _open(settings) as database:
        service = StopListService(database, open_reader(settings, database))
        for space in _chosen(database, options.space):
            dropped = service.drop(space)
            outcome = "no stop-list" if dropped is None else f"stop-list {dropped.version} dropped"
            print(f"{space.name}: {outcome}")
    return 0


def _summary(made: StopList | None, share: float) -> str:
    if made is None:
        return f"no index is in {share:.0%} of the supports, hence no stop-list"
    recall = {s: made.recall_at(s) for s in (0.3, 0.5, 0.7, 0.9)}
    found = ", ".join(f"{'?' if r is None else f'{r:.2f}'} at S = {s}" for s, r in recall.items())
    return (
        f"stop-list {made.version}, {made.size} indices in {share:.0%} or more of {made.models} "
        f"supports; buckets find {found}"
    )


def _split_kinds(options: argparse.Namespace) -> int:
    settings = Settings()
    refused = 0
    with _open(settings) as database, open_writer(settings, database) as writer:
        reader = open_reader(settings, database)
        service = KindSplitService(database, SpaceService(), reader, writer)
        for space in _chosen(database, options.space):
            try:
                with _drawn(space.name) as progress:
                    result = service.split(space, progress)
            except (Conflict, SpaceNotFound, Unavailable) as error:
                refused = 1
                print(f"modelkin: {space.name}: {error}", file=sys.stderr)
            else:
                print(f"{space.name}: {_parted(space, result)}")
    return refused


def _parted(space: SpaceRecord, result: KindSplit) -> str:
    """The result of a split, in a line."""
    if space.importance.is_stated:
        return f"states {space.importance} already"
    facts = [f"{count} deltas moved to {name}" for name, count in sorted(result.moved.items())]
    if result.importance.is_stated:
        return "; ".join([*facts, f"states {result.importance} for {result.weights} models"])
    if result.unrecorded:
        facts.append(f"what {result.unrecorded} models were selected by is not recorded")
    if result.taken:
        facts.append(
            f"{len(result.taken)} deltas stay, since the space of deltas has their names, such as "
            f"{result.taken[0]!r}"
        )
    return "; ".join([*(facts or ["no models"]), "states no kind"])


@contextmanager
def _drawn(space: str) -> Iterator[Progress | None]:
    """A progress line, on a terminal."""
    if not is_terminal():
        yield None
        return
    line = ProgressLine()
    try:
        yield lambda done, total, stage: line.draw(f"{space}: {stage}", done / max(total, 1))
    finally:
        line.wipe()


def _chosen(database: Database, name: str | None) -> Sequence[SpaceRecord]:
    with database.reading() as session:
        chosen = all_spaces(session, name)
    if not chosen and name is not None:
        raise SpaceNotFound(f"there is no space {name!r}")
    return chosen


def _renew_secrets(_: argparse.Namespace) -> int:
    settings = Settings()
    secrets = Secrets(settings.encryption_key_list, settings.encryption_key_file)
    with _open() as database, database.writing() as session:
        renewed = stored.renew_secrets(session, secrets.renew)
    print(f"{renewed} secrets are encrypted with the first key")
    return 0


@contextmanager
def _open(settings: Settings | None = None) -> Iterator[Database]:
    settings = settings or Settings()
    database = Database(settings.database_url, timeout=settings.database_timeout_seconds)
    try:
        migrate(database)
        yield database
    finally:
        database.close()


def _duration(text: str | None) -> timedelta | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,4})([hdw])", text)
    if found is None:
        raise InvalidParameter(f"--valid-for is 12h, 90d or 52w, not {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
