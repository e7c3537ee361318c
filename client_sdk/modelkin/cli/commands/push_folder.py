"""``push`` of a folder of checkpoints, or to the space of a model's family."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from modelkin._progress_bar import is_terminal
from modelkin._terminal_text import one_line
from modelkin.cli.output import Answer, fields_of, quantity, table
from modelkin.client import Client
from modelkin.errors import InvalidParameter, NotFoundError
from modelkin.types.checkpoints.pushed import (
    AUTO,
    CheckpointItem,
    PushedCheckpoint,
    PushedCheckpoints,
)

__all__ = ["absent_space", "add_folder", "is_of_folder", "push_folder"]

_OF_FOLDERS: Final = ("prefix", "manifest", "dry_run", "resume", "jobs")
_OF_ONE: Final = (
    *("base", "kind", "coverage", "support_size", "fraction", "k_max"),
    *("signature_only", "blinding_key", "attribute", "source"),
    *("license", "published", "base_relation"),
)
"""The options of one checkpoint alone."""
_SHARES: Final = 10
"""The lines of progress where no terminal shows a bar."""


def add_folder(parser: argparse.ArgumentParser) -> None:
    """The options of a folder of checkpoints."""
    group = parser.add_argument_group("a folder of checkpoints")
    group.add_argument("--prefix", metavar="TEXT", help="the beginning of all names, acme/ for one")
    group.add_argument(
        "--manifest",
        metavar="CSV",
        help="names, bases and tags of its checkpoints: columns path, name, base, tags, space",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="say what would go where, and send nothing"
    )
    group.add_argument(
        "--resume",
        metavar="FILE",
        help="keep what is stored in this file, so that a later run does not read it again",
    )
    group.add_argument(
        "--jobs", type=int, metavar="COUNT", help="checkpoints at a time; by default the processors"
    )


def is_of_folder(arguments: argparse.Namespace) -> bool:
    """Whether a command line is about a folder of checkpoints, or leaves the space to be found.

    Raises:
        InvalidParameter: a name is missing, or options contradict each other.
    """
    path, named = arguments.input, arguments.model is not None
    if not named and os.path.isdir(path):
        return True
    if not named and not os.path.exists(path):
        raise InvalidParameter(f"there is no file or folder {path!r}")
    if not named:
        raise InvalidParameter(
            f"--model NAME is needed: {path} is one file, and only a folder gives names to models"
        )
    for option in _OF_FOLDERS:
        if getattr(arguments, option) not in (None, False):
            raise InvalidParameter(
                f"{_shown(option)} is for a folder of checkpoints, and --model for one: leave one "
                f"of them out"
            )
    return bool(arguments.space == AUTO)


def absent_space(error: NotFoundError) -> NotFoundError:
    """The error about a space that does not exist, with what to do; another one as it is."""
    if error.problem_code != "space_not_found":
        return error
    end = "" if error.detail.endswith("?") else ";"
    remedy = "--create makes it, and for checkpoints --space auto takes that of each one's family"
    said = f"{error.detail}{end} {remedy}"
    return NotFoundError(error.status, error.problem_code, said, request_id=error.request_id)


def push_folder(arguments: argparse.Namespace) -> Answer:
    """Push the checkpoints of a folder, or one whose space is to be found."""
    for option in (*_OF_ONE, *(["base_model"] if arguments.model is None else [])):
        if getattr(arguments, option) not in (None, False, []):
            raise InvalidParameter(
                f"{_shown(option)} is for one checkpoint and a space by its name: give --model and "
                f"--space, or say it in a manifest or in the models' cards"
            )
    given: str | list[CheckpointItem] = arguments.input
    if arguments.model is not None:
        given = [CheckpointItem(arguments.input, arguments.model, arguments.base_model)]
    with Client(arguments.url, arguments.api_key) as client, _absences():
        done = client.push_checkpoints(
            given,
            space=arguments.space,
            prefix=arguments.prefix or "",
            manifest=arguments.manifest,
            tags=arguments.tag or (),
            exclude=arguments.exclude,
            create=arguments.create,
            fingerprints=not arguments.no_fingerprint,
            dry_run=arguments.dry_run,
            concurrency=arguments.jobs,
            resume=arguments.resume,
            progress=is_terminal() or (False if arguments.json or arguments.dry_run else _say),
        )
    if not done.items:
        raise InvalidParameter(
            f"{arguments.input} holds no checkpoint: a safetensors or GGUF file, in it or in its "
            f"folders"
        )
    return _answer(done, Path(arguments.input))


@contextmanager
def _absences() -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        raise absent_space(error) from error


def _answer(done: PushedCheckpoints, root: Path) -> Answer:
    counts = ", ".join(f"{count:,} {state}" for state, count in done.counts.items())
    made = sorted({each.space for each in done if each.new_space and each.space is not None})
    lines = [counts]
    lines += [
        f"space {space}: {quantity(count, 'model')}{', new' if space in made else ''}"
        for space, count in done.spaces.items()
    ]
    failed = done.failed
    for rows in (failed, [each for each in done if each.state != "failed"]):
        lines += [f"\n{text}" for text in _tables(rows, root)]
    fields = {
        "counts": dict(done.counts),
        "spaces": dict(done.spaces),
        "items": fields_of(done)["items"],
    }
    return Answer("\n".join(map(str, lines)), fields, code=1 if failed else 0)


def _tables(rows: Sequence[PushedCheckpoint], root: Path) -> Iterator[str]:
    """One table, but for those with one reason or note: it stands above theirs, once."""
    counts = Counter((each.state, each.reason) for each in rows if each.reason)
    shared = [said for said, count in counts.items() if count > 1]
    alone = [each for each in rows if (each.state, each.reason) not in shared]
    if alone:
        yield _rows(alone, root, said=any(each.reason for each in alone))
    for state, reason in shared:
        same = [each for each in rows if (each.state, each.reason) == (state, reason)]
        yield f"{len(same):,} {state}: {reason}\n{_rows(same, root, said=False)}"


def _rows(rows: Sequence[PushedCheckpoint], root: Path, *, said: bool) -> str:
    return table(
        ("MODEL", "SPACE", "STATE", "PATH", *(["WHY"] if said else [])),
        (
            (
                each.model or "-",
                each.space or "-",
                each.state,
                _path(each.path, root),
                *([each.reason or ""] if said else []),
            )
            for each in rows
        ),
    )


def _path(text: str, root: Path) -> str:
    """A path from the pushed folder."""
    path = Path(text)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else text


def _say(done: int, total: int | None) -> None:
    """A line of progress for a log, ten at most."""
    if total and done * _SHARES // total > (done - 1) * _SHARES // total:
        sys.stderr.write(one_line(f"modelkin: {done:,} of {total:,} checkpoints") + "\n")


def _shown(option: str) -> str:
    return f"--{option.replace('_', '-')}"
