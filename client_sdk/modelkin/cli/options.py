"""Options that several commands have."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

from modelkin.cli.style import is_wide_open

__all__ = [
    "CHECKPOINT",
    "FILE",
    "ROWS",
    "WEIGHTS",
    "add_confirmation",
    "add_count",
    "add_limit",
    "add_selection",
    "add_service",
    "add_tags",
    "first_rows",
    "usual_space",
]

T = TypeVar("T")

WEIGHTS: Final = (
    "a .safetensors or .gguf file, the index of a sharded one, or a folder that holds one"
)
CHECKPOINT: Final = f"{WEIGHTS}; or an adapter"
FILE: Final = f"a file of modelkin, {CHECKPOINT}; - for standard input"
ROWS: Final = 50
"""The rows of a listing that a terminal gets without ``--all``."""


def add_service(
    parser: argparse.ArgumentParser,
    *,
    space: str | None = "the index space; else MODELKIN_SPACE",
    required: bool = True,
) -> None:
    """Add the options for the service's address and for the space.

    Args:
        parser: the command's parser.
        space: the help of ``--space``; None for a command without a space.
        required: whether a space has to be given, by the option or ``MODELKIN_SPACE``. Where the
            space only narrows a listing, ``MODELKIN_SPACE`` is ignored.
    """
    group = parser.add_argument_group("the service")
    if space is not None:
        known = usual_space() if required else None
        group.add_argument(
            "--space", metavar="NAME", default=known, required=required and not known, help=space
        )
    group.add_argument(
        "--url", help="the address of the service; else MODELKIN_URL, else http://127.0.0.1:8000"
    )
    group.add_argument(
        "--api-key",
        metavar="KEY",
        help="the key; else MODELKIN_API_KEY, which other users cannot see",
    )


def usual_space() -> str | None:
    """The space that ``MODELKIN_SPACE`` names, or None."""
    return os.environ.get("MODELKIN_SPACE") or None


def add_count(add: Callable[..., object], what: str, *, default: int | None = 10) -> None:
    """Add ``-k``, the number of models in the answer.

    Args:
        add: ``add_argument`` of a parser or of one of its groups.
    """
    add(*("-k", "--k"), type=int, default=default, dest="count", metavar="COUNT", help=what)


def add_tags(parser: argparse.ArgumentParser) -> None:
    """Add ``--tag``, which narrows the models."""
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="TAG",
        help="only models with this tag; repeats",
    )


def add_confirmation(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``, for a command that cannot be undone."""
    parser.add_argument("-y", "--yes", action="store_true", help="do it without a question")


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add ``--limit`` and ``--all``, for a listing that has no end."""
    parser.add_argument(
        "--limit",
        type=_positive,
        metavar="COUNT",
        help=f"the most rows; by default all, on a terminal {ROWS}",
    )


def first_rows(
    rows: Iterable[T], arguments: argparse.Namespace, total: int | None = None
) -> tuple[list[T], str]:
    """The rows to show, and a line that counts the remaining ones.

    Args:
        rows: all rows; if ``total`` is known, only the rows to show are read.
        arguments: the command's arguments, with the options of :func:`add_limit`.
        total: the number of all rows, where it is known.

    Returns:
        The rows; and the line after a newline, empty if no row is left out.
    """
    limit = arguments.limit
    if limit is None and not (arguments.all or arguments.json or is_wide_open()):
        limit = ROWS
    if limit is None:
        return list(rows), ""
    left = iter(rows)
    shown = list(islice(left, limit))
    more = sum(1 for _ in left) if total is None else total - len(shown)
    return shown, f"\nand {more:,} more: --all shows them" if more > 0 else ""


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a checkpoint becomes a support."""
    group = parser.add_argument_group("how a checkpoint becomes a support")
    group.add_argument("--base", metavar="CHECKPOINT", help="the model that this one was made from")
    group.add_argument(
        "--kind",
        choices=("weight", "delta"),
        help="the importance: |w|, or |w - base|; by default delta with --base, else weight",
    )
    size = group.add_mutually_exclusive_group()
    size.add_argument(
        "--coverage",
        type=float,
        metavar="SHARE",
        help="the fewest parameters that hold this share of all importance",
    )
    size.add_argument("--support-size", type=int, metavar="COUNT", help="this many parameters")
    size.add_argument(
        "--fraction",
        type=float,
        metavar="SHARE",
        help="this share of the parameters; by default 0.05, of an adapter 0.1",
    )
    group.add_argument(
        "--k-max",
        type=_share_or_count,
        metavar="SHARE|COUNT",
        help="the most that --coverage may choose: 0.2 (the default) or a whole number",
    )
    group.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out tensors named like this, 'lm_head.*' for one; repeats",
    )


def _share_or_count(text: str) -> float | int:
    return int(text) if text.isdecimal() else float(text)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


# argparse prints the names of these functions in its errors.
_share_or_count.__name__ = "share or count"
_positive.__name__ = "positive"
