"""The command ``relatives``: the stored models that have lines in common with a checkpoint."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from modelkin import checkpoints
from modelkin.checkpoints.anatomies import fingerprint_of, is_fingerprint
from modelkin.cli.commands.fingerprints import add_scale, made_of
from modelkin.cli.options import WEIGHTS, add_count, add_service
from modelkin.cli.output import Answer, fields_of, quantity, table
from modelkin.cli.style import FAINT, GOOD, Styled
from modelkin.cli.texts import part_text
from modelkin.client import Client
from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.quoting import quote
from modelkin.errors import ApiError, ConnectionFailed, InvalidParameter
from modelkin.types.anatomies.anatomy import AWAY, MORE, ModelAnatomy, stated_by_clients
from modelkin.types.anatomies.relatives import Relative, Relatives

__all__ = [
    "incomplete_notes",
    "relatives",
    "relatives_options",
    "stated_note",
    "stored_or_read",
    "told_where",
]

_ENDINGS: Final = (".safetensors", ".gguf", ".mkfp", ".json", ".bin", ".pt")
"""Endings of names of files, which no model has."""


def relatives_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``relatives``."""
    parser.add_argument(
        "subject",
        metavar="MODEL|FILE",
        help="the name of a model whose fingerprint the service has; or a fingerprint that "
        f"`modelkin fingerprint` wrote, or {WEIGHTS}, of which nothing is stored",
    )
    add_count(parser.add_argument, "how many models, up to 100; default 10")
    add_scale(parser)
    parser.set_defaults(inputs=("subject",))
    add_service(parser, space=None)


def relatives(arguments: argparse.Namespace) -> Answer:
    """``modelkin relatives``: the stored models that have lines in common with one."""
    with Client(arguments.url, arguments.api_key) as client:
        subject, notes = stored_or_read(arguments.subject, arguments.scale)
        with told_where(client, arguments.subject, subject):
            found = client.relatives(subject, k=arguments.count)
    rows = [_cells(each) for each in found]
    whom = quantity(found.compared, "stored model")
    columns = ("MODEL", "WHAT IT IS TO IT", "LINES", "OF ITS LINES", "P", "BASE BY", "SENTENCE")
    if rows:
        text = f"{table(columns, rows)}\n\ncompared: with {whom}"
    else:
        text = f"no lines in common with any of {whom}, as far as lines show; that proves nothing"
    stated = [each.model for each in found if each.stated_by == "client" and each.verdict]
    said = () if found.note is None else (found.note,)
    answer = (*notes, *said, *stated_note(stated), *incomplete_notes(found))
    return Answer(text, fields_of(found), answer)


def stored_or_read(subject: str, scale: int | None) -> tuple[str | Fingerprint, tuple[str, ...]]:
    """The name of a stored model, or the fingerprint of a file, with the notes on it.

    Raises:
        InvalidParameter: it is no file, and no name of a model.
    """
    if os.path.exists(subject):
        if is_fingerprint(subject):
            return fingerprint_of(subject, scale), ()
        checkpoint = checkpoints.open_checkpoint(subject)
        return made_of(checkpoint, scale), checkpoint.notes
    if subject.endswith(_ENDINGS) or subject.startswith((os.sep, os.curdir, "~")):
        raise InvalidParameter(f"there is no file {quote(subject)}")
    if scale is not None:
        raise InvalidParameter(
            f"--scale is of a file, and there is no file {quote(subject)}: a stored fingerprint "
            f"has its own"
        )
    return subject, ()


@contextmanager
def told_where(client: Client, asked: str, subject: str | Fingerprint) -> Iterator[None]:
    """Say of a name that it is neither a file here nor a model there."""
    try:
        yield
    except ApiError as error:
        if error.problem_code != "fingerprint_not_found":
            raise
        raise InvalidParameter(
            f"{quote(asked)} is no file here, and the service at {client.url} says: {error}. "
            f"`modelkin push` stores fingerprints, and --with compares files without a service"
        ) from None
    except ConnectionFailed as error:
        if isinstance(subject, str):
            hint = f"{quote(asked)} is no file here, so a service is asked"
        else:
            hint = "without --with, a service is asked for models that it may come from"
        raise type(error)(f"{hint}: {error}") from None


def stated_note(names: Sequence[str]) -> tuple[str, ...]:
    """A note on models whose files the service has not read itself."""
    return (f"stated {stated_by_clients(names)}",) if names else ()


def incomplete_notes(found: Relatives | ModelAnatomy) -> tuple[str, ...]:
    """Reasons why an answer may not name all kin, a sentence each."""
    return ((MORE,) if found.truncated else ()) + ((AWAY,) if found.degraded else ())


def _cells(relative: Relative) -> tuple[str, ...]:
    cells = (
        relative.model,
        Styled(relative.words, GOOD if relative.verdict else FAINT),
        part_text(relative.share_of_lines),
        part_text(relative.share_of_model),
        power_of_ten(relative.log10_p),
        relative.edge or "",
        relative.sentence,
    )
    return cells if relative.verdict else tuple(Styled(cell, FAINT) for cell in cells)
