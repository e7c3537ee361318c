"""The command line: commands, options and their help.

Values that the domain checks anyway are not checked here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from modelkin._version import __version__
from modelkin.cli import commands

__all__ = ["parse"]

if TYPE_CHECKING:  # argparse has no public name for what adds commands
    _Adder: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_CHECKPOINT = (
    "a .safetensors file, the index of a sharded one, or a folder that holds one or a LoRA adapter"
)
_FILE = f"a file of modelkin, {_CHECKPOINT}"


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of one command; ``command`` is the function that executes it.

    Raises:
        SystemExit: with 2 for a usage error, with 0 after ``--help``.
    """
    return _parser().parse_args(argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="modelkin",
        description="Which models are kin, by the indices of their most salient parameters.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"modelkin {__version__}")
    adder = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_support(adder)
    _add_push(adder)
    _add_neighbors(adder)
    _add_donors(adder)
    _add_overlap(adder)
    _add_inspect(adder)
    return parser


def _command(adder: _Adder, name: str, summary: str) -> argparse.ArgumentParser:
    parser = adder.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        allow_abbrev=False,
    )
    parser.set_defaults(command=getattr(commands, name))
    parser.add_argument("--json", action="store_true", help="answer one JSON object")
    return parser


def _add_support(adder: _Adder) -> None:
    parser = _command(adder, "support", "the support of a checkpoint, written to a file")
    parser.add_argument("checkpoint", help=_CHECKPOINT)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where it goes")
    _add_selection(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how a checkpoint becomes a support")
    group.add_argument("--base", metavar="CHECKPOINT", help="what the model was made from")
    group.add_argument(
        "--kind",
        choices=("weight", "delta"),
        help="importance |w|, or |w - base|; by default delta with --base, else weight",
    )
    size = group.add_mutually_exclusive_group()
    size.add_argument(
        "--coverage",
        type=float,
        metavar="SHARE",
        help="the fewest parameters that hold this share of all importance",
    )
    size.add_argument("--k", type=int, metavar="COUNT", help="this many parameters")
    size.add_argument(
        "--fraction",
        type=float,
        metavar="SHARE",
        help="this share of them; by default 0.05, of an adapter 0.1",
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


_share_or_count.__name__ = "share or count"  # argparse prints it in its errors


def _add_push(adder: _Adder) -> None:
    parser = _command(adder, "push", "store a support, a signature or a checkpoint's support")
    parser.add_argument("source", metavar="FILE|CHECKPOINT", help=_FILE)
    _add_service(parser)
    parser.add_argument("--model", required=True, metavar="NAME", help="its name, org/name for one")
    parser.add_argument(
        "--tag", action="append", metavar="TAG", help="replaces the model's tags; repeats"
    )
    parser.add_argument(
        "--create", action="store_true", help="make the space where it does not exist yet"
    )
    parser.add_argument(
        "--signature-only",
        action="store_true",
        help="send the signature alone: no index leaves this machine",
    )
    _add_selection(parser)


def _add_neighbors(adder: _Adder) -> None:
    parser = _command(adder, "neighbors", "the models most similar to one")
    _add_service(parser)
    _add_query(parser)
    parser.add_argument("--min-similarity", type=float, metavar="S", help="none below this, 0 to 1")
    parser.add_argument("--method", default="auto", help="auto (the default), exact, scan, lsh")
    _add_selection(parser)


def _add_donors(adder: _Adder) -> None:
    parser = _command(adder, "donors", "the models that one may learn from, and in what proportion")
    _add_service(parser)
    _add_query(parser)
    parser.add_argument(
        "--include-unrelated", action="store_true", help="weigh models at chance, too"
    )
    _add_selection(parser)


def _add_query(parser: argparse.ArgumentParser) -> None:
    query = parser.add_mutually_exclusive_group(required=True)
    query.add_argument("--model", metavar="NAME", help="a model of the space")
    query.add_argument(
        "--file",
        metavar="FILE|CHECKPOINT",
        help="a support, signature or checkpoint, which is not stored",
    )
    parser.add_argument("-k", type=int, default=10, metavar="COUNT", dest="count", help="how many")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="only with this tag; repeats"
    )


def _add_overlap(adder: _Adder) -> None:
    parser = _command(adder, "overlap", "two models compared exactly, tensor by tensor")
    parser.add_argument("a", help="a model of the space")
    parser.add_argument("b", help="another")
    _add_service(parser)


def _add_inspect(adder: _Adder) -> None:
    parser = _command(adder, "inspect", "what a support, a signature or a checkpoint holds")
    parser.add_argument("source", metavar="FILE|CHECKPOINT", help=_FILE)


def _add_service(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the service")
    group.add_argument("--space", required=True, help="the index space")
    group.add_argument("--url", help="else MODELKIN_URL, else http://127.0.0.1:8000")
    group.add_argument(
        "--api-key", metavar="KEY", help="else MODELKIN_API_KEY, which other users cannot see"
    )
