"""The commands ``catalogue build``, ``show`` and ``import``: well-known bases in one file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from modelkin._terminal_text import one_line
from modelkin._whole_files import require_ordinary
from modelkin.checkpoints.catalogues.building import Built, build, parts_of
from modelkin.checkpoints.catalogues.lists import Wanted, read_list
from modelkin.cli.options import add_service
from modelkin.cli.output import Answer, pairs, quantity, table
from modelkin.cli.progress import ShareLine
from modelkin.client import Client
from modelkin.core.catalogues.base import Base
from modelkin.core.catalogues.catalogue import Catalogue
from modelkin.errors import ConnectionFailed, InvalidParameter
from modelkin.types.fingerprints.stored import FingerprintItem
from modelkin.types.models import BulkResult

__all__ = [
    "build_catalogue",
    "build_catalogue_options",
    "import_catalogue",
    "import_catalogue_options",
    "show",
    "show_options",
]

_MOST_NOTES: Final = 20
_OF_A_HUB: Final = "fingerprint_exists"
"""The refusal of a client's fingerprint where the service has one that it read itself."""


def build_catalogue_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``catalogue build``."""
    parser.add_argument(
        "list",
        metavar="LIST",
        help="a file with a base in each line: a repository of the hub, org/name or "
        "org/name@commit, or the path of a checkpoint or a fingerprint; then what is known of it, "
        "as in license=mit url=... date=2024-05-01 name=... base=org/name relation=finetune; # "
        "begins a remark; - for standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the catalogue; of one that is there, bases whose commit it has are not fetched again",
    )
    parser.add_argument(
        "--hub",
        metavar="URL",
        help="the address of the hub; else HF_ENDPOINT, else the public one. HF_TOKEN, or the "
        "token that `hf auth login` has stored, is for the hub of HF_ENDPOINT alone",
    )


def build_catalogue(arguments: argparse.Namespace) -> Answer:
    """``modelkin catalogue build``: read the bases of a list, and write their catalogue."""
    target = Path(arguments.output)
    require_ordinary(target)
    if not target.parent.is_dir():
        raise InvalidParameter(f"{target}: there is no folder {target.parent}", field="-o")
    wanted = _wanted(arguments.list)
    with ShareLine("reading bases") as line:
        try:
            built = build(
                wanted,
                target,
                hub=arguments.hub,
                observe=lambda done, total: line.draw(done / total),
            )
        except ConnectionFailed as error:
            raise ConnectionFailed(
                f"{error}. What was read is kept in {parts_of(target)}: run the command again"
            ) from error
    return _built(built, arguments.output)


def _built(built: Built, path: str) -> Answer:
    catalogue, failures = built.catalogue, built.failures
    text = (
        f"{path}: {quantity(len(catalogue), 'base')}, {built.read:,} read now, "
        f"{catalogue.size:,} bytes\n{catalogue.digest}"
    )
    notes = [f"line {each.line}, {each.text}: {each.reason}" for each in failures[:_MOST_NOTES]]
    if failures:
        notes.append(
            f"{quantity(len(failures), 'line')} gave no base: the same command tries them again"
        )
    return Answer(
        text,
        {
            "file": path,
            "bases": len(catalogue),
            "read": built.read,
            "bytes": catalogue.size,
            "digest": catalogue.digest,
            "failures": [vars(each) for each in failures],
        },
        tuple(notes),
        code=int(bool(failures)),
    )


def _wanted(path: str) -> list[Wanted]:
    if path == "-":
        return list(read_list(sys.stdin, "the list"))
    with open(path, encoding="utf-8", errors="replace") as lines:
        return list(read_list(lines, path))


def show_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``catalogue show``."""
    parser.add_argument("file", metavar="FILE", help="a catalogue that `catalogue build` wrote")
    parser.add_argument(
        "base", metavar="NAME", nargs="?", help="one of its bases; else all of them"
    )


def show(arguments: argparse.Namespace) -> Answer:
    """``modelkin catalogue show``: the bases of a catalogue, or what is kept of one."""
    catalogue = Catalogue.load(arguments.file)
    if arguments.base is not None:
        return _one(catalogue, arguments.base)
    rows = [
        (
            base.name,
            f"{base.parameters:,}",
            base.license or "",
            "" if base.published_at is None else f"{base.published_at:%Y-%m-%d}",
            f"{base.size:,}",
        )
        for base in catalogue.values()
    ]
    head = pairs(
        {
            "catalogue": f"{quantity(len(catalogue), 'base')}, {catalogue.size:,} bytes",
            "digest": catalogue.digest,
        }
    )
    columns = ("BASE", "PARAMETERS", "LICENCE", "PUBLISHED", "BYTES")
    return Answer(
        f"{head}\n\n{table(columns, rows)}",
        {
            "bytes": catalogue.size,
            "digest": catalogue.digest,
            "bases": [base.to_json() for base in catalogue.values()],
        },
    )


def import_catalogue_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``catalogue import``."""
    parser.add_argument("file", metavar="FILE", help="a catalogue that `catalogue build` wrote")
    add_service(parser, space=None)


def import_catalogue(arguments: argparse.Namespace) -> Answer:
    """``modelkin catalogue import``: store the fingerprints of all bases in a service."""
    catalogue = Catalogue.load(arguments.file)
    refused = list[BulkResult]()
    with (
        Client(arguments.url, arguments.api_key) as client,
        ShareLine("sending fingerprints") as line,
    ):

        def note(result: BulkResult) -> None:
            refused.extend([result] * (result.status == "failed"))

        summary = client.fingerprints.put_many(_items(catalogue, line.draw), on_result=note)
    kept = [each for each in refused if each.code == _OF_A_HUB]
    others = [each for each in refused if each not in kept]
    return Answer(
        f"{quantity(len(catalogue), 'base')} of {arguments.file}: {summary.created:,} stored, "
        f"{summary.replaced:,} replaced, {summary.unchanged:,} as before",
        {
            "file": arguments.file,
            "digest": catalogue.digest,
            "created": summary.created,
            "replaced": summary.replaced,
            "unchanged": summary.unchanged,
            "of_a_hub": [each.model for each in kept],
            "failures": [{"base": each.model, "reason": each.detail} for each in others],
        },
        tuple(_notes(kept, others)),
        code=int(bool(others)),
    )


def _items(catalogue: Catalogue, draw: Callable[[float], None]) -> Iterator[FingerprintItem]:
    """The fingerprints of a catalogue, each read when it is sent."""
    for done, (name, base) in enumerate(catalogue.items()):
        draw(done / len(catalogue))
        yield FingerprintItem(
            name,
            catalogue.fingerprint(name),
            base.base_models,
            base.base_relation,
            base.license,
            base.published_at,
            base.file_bytes,
        )


def _notes(kept: Sequence[BulkResult], others: Sequence[BulkResult]) -> Iterator[str]:
    if kept:
        yield (
            f"{quantity(len(kept), 'base')} stay as the service itself read them from a hub, such "
            f"as {kept[0].model}"
        )
    for each in others[:_MOST_NOTES]:
        yield f"{each.model}: {each.detail}"
    if len(others) > _MOST_NOTES:
        yield f"and {len(others) - _MOST_NOTES:,} more were refused"


def _one(catalogue: Catalogue, name: str) -> Answer:
    fingerprint = catalogue.fingerprint(name)
    base = catalogue[name]
    keys, lines = int(fingerprint.distinct.size), sum(fingerprint.lines.values())
    text = pairs(
        {
            **_facts(base),
            "parameters": f"{base.parameters:,} in {quantity(len(fingerprint.tensors), 'tensor')}",
            "kept": f"{quantity(keys, 'key')} of {quantity(lines, 'line')}, at scale "
            f"{fingerprint.scale:,}, {base.size:,} bytes",
            "digest": base.digest,
        }
    )
    kept = {"scale": fingerprint.scale, "keys": keys, "lines": lines}
    return Answer(text, base.to_json() | kept | {"tensors": len(fingerprint.tensors)})


def _facts(base: Base) -> dict[str, str]:
    """What is known of a base, and was not measured."""
    date = base.published_at
    known = {
        "base": base.name,
        "url": base.url,
        "revision": base.revision,
        "licence": base.license,
        "published": None if date is None else one_line(f"{date:%Y-%m-%d %H:%M:%S}Z"),
        "declares": ", ".join(base.base_models) or None,
        "relation": base.base_relation,
        "files": None if base.file_bytes is None else f"{base.file_bytes:,} bytes",
    }
    return {name: text for name, text in known.items() if text is not None}
