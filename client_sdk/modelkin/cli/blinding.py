"""The option ``--blinding-key``: blind sent content under the key of a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from modelkin.checkpoints import Checkpoint
from modelkin.cli.inputs import Source
from modelkin.core.blinding import Blinding
from modelkin.core.layout import Layout
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter

__all__ = ["add_blinding", "blinding_of_source"]


def add_blinding(parser: argparse.ArgumentParser) -> None:
    """``--blinding-key``; a key on the command line itself would show in lists of processes."""
    parser.add_argument(
        "--blinding-key",
        metavar="FILE",
        help="blind the indices under the key in this file, which the members of the space share",
    )


def _blinding_of(arguments: argparse.Namespace, layout: Layout | int) -> Blinding | None:
    """The blinding that a command asks for, or None.

    Args:
        arguments: the command's arguments.
        layout: the layout of the content that the command sends, or M where there is none.

    Raises:
        InvalidParameter: the file cannot be read, or holds no key.
    """
    path: str | None = arguments.blinding_key
    if path is None:
        return None
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not a text of hexadecimal digits"
        raise InvalidParameter(f"--blinding-key {path}: {why}") from None
    return Blinding(text, layout)


def blinding_of_source(arguments: argparse.Namespace, source: Source) -> Blinding | None:
    """The blinding for a file's content, with the layout that the content has before.

    Raises:
        InvalidParameter: the file of the key is wrong, or the content cannot be blinded.
    """
    if isinstance(source, Checkpoint):
        return _blinding_of(arguments, source.layout)
    if not isinstance(source, Support):
        if arguments.blinding_key is not None:
            raise InvalidParameter(
                "--blinding-key: only supports are blinded, and checkpoints that they are made "
                "from; blind a support before it is signed"
            )
        return None
    layout = None if source.origin is None else source.origin.layout
    return _blinding_of(arguments, source.num_parameters if layout is None else layout)
