"""The command ``advise``: does a model for each group pay for a federation's clients?"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from modelkin._terminal_text import one_line
from modelkin.checkpoints.pushes.csv_rows import rows_of, wrong_line
from modelkin.cli.options import add_service, add_tags, usual_space
from modelkin.cli.output import Answer, quantity, table
from modelkin.cli.output import pairs as lines_of
from modelkin.client import Client
from modelkin.core.layout import Layout
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter
from modelkin.federation.advice.advice import Advice
from modelkin.federation.advice.advice import advise as advise_on
from modelkin.federation.advice.structure import Structure, structure_of

__all__ = ["advise", "advise_options"]

_MOST_NAMED = 8
"""The most members of a group that are named."""


def advise_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``advise``."""
    parser.add_argument(
        "files",
        nargs="*",
        metavar="SUPPORT",
        help="the file of each client's support, taken at common weights; by default all models "
        "of --space",
    )
    parser.set_defaults(inputs=("files",))
    parser.add_argument(
        "--samples",
        metavar="FILE",
        help="a .csv file with a client's name, or its file's without ending, and its number of "
        "samples in each line",
    )
    add_service(parser, required=False)
    add_tags(parser)


def advise(arguments: argparse.Namespace) -> Answer:
    """``modelkin advise``: what to train, with the measured reasons."""
    names, supports, layout = _clients(arguments)
    structure = structure_of(supports, layout)
    counts = None if arguments.samples is None else _samples(arguments.samples, names)
    found = advise_on(structure, counts)
    notes = () if structure.by_tensor else (_NO_LAYOUT,)
    return Answer(_text(found, names), _fields(found, names), notes)


_NO_LAYOUT = (
    "files say nothing of tensors, so chance is that of the model as a whole: kappa may be too "
    "large; a space with a layout knows better"
)


def _clients(
    arguments: argparse.Namespace,
) -> tuple[list[str], list[Support], Layout | None]:
    """Names and supports of all clients, and the layout where it is known."""
    if arguments.files:
        if arguments.tag:
            raise InvalidParameter("--tag narrows the models of a space, and files are given")
        return (
            [Path(path).stem for path in arguments.files],
            [Support.load(path) for path in arguments.files],
            None,
        )
    space = arguments.space or usual_space()
    if space is None:
        raise InvalidParameter("give the clients' support files, or their --space")
    with Client(arguments.url, arguments.api_key) as client:
        layout = client.spaces.get(space).layout
        names = [each.model for each in client.models.list(space, tags=arguments.tag)]
        return names, [client.supports.get(space, name) for name in names], layout


def _samples(path: str, names: list[str]) -> list[int]:
    """The number of samples of each client.

    Raises:
        InvalidParameter: a line is not a name and a number, or a client has none or two.
    """
    counts: dict[str, int] = {}
    for line, row in rows_of(Path(path), "samples"):
        if len(row) != 2 or not row[1].isdecimal():
            why = "write a name and a number of samples, and no line of titles"
            raise wrong_line(Path(path), line, why, "samples")
        if row[0] in counts:
            raise wrong_line(Path(path), line, f"{one_line(row[0])} has a line already", "samples")
        counts[row[0]] = int(row[1])
    if lacking := [name for name in names if name not in counts]:
        raise InvalidParameter(f"{path} has no number of samples of {one_line(lacking[0])}")
    return [counts[name] for name in names]


def _text(found: Advice, names: list[str]) -> str:
    structure = found.structure
    apart = f"kappa {structure.kappa:.2f} on average, where 0 is chance and 1 is equal"
    if structure.within is not None and structure.between is not None:
        apart += f"; {structure.within:.2f} within groups, {structure.between:.2f} between"
    near = "like" if found.is_like else "unlike all that were measured; nearest"
    head = {
        "clients": f"{structure.clients}, "
        + ("no groups" if structure.groups == 1 else f"{structure.groups} groups"),
        "alike": apart,
        near: f"{found.like.name}, of 20 clients (distance {found.distance:.1f})",
    }
    answers = [(each.question, each.take, each.why) for each in found.answers]
    text = f"{lines_of(head)}\n\n{table(('DOES IT PAY', 'ANSWER', 'WHY'), answers)}"
    if structure.groups > 1:
        rows = [(str(at), str(len(all_)), _some(all_)) for at, all_ in _groups(structure, names)]
        text += f"\n\n{table(('GROUP', 'SIZE', 'MEMBERS'), rows)}"
    return f"{text}\n\n{_BEFORE}"


_BEFORE = (
    "Measured on images of digits: train in two of these ways, and compare, before you decide "
    "(docs/federation.md)."
)


def _groups(structure: Structure, names: list[str]) -> list[tuple[int, list[str]]]:
    return [
        (at, [name for name, label in zip(names, structure.labels, strict=True) if label == at])
        for at in range(structure.groups)
    ]


def _some(members: list[str]) -> str:
    more = len(members) - _MOST_NAMED
    shown = ", ".join(members[:_MOST_NAMED])
    return shown if more <= 0 else f"{shown} and {quantity(more, 'other')}"


def _fields(found: Advice, names: list[str]) -> dict[str, object]:
    clients = zip(names, found.structure.labels, found.structure.covers, strict=True)
    structure = asdict(found.structure)
    del structure["labels"], structure["covers"]
    return {
        **structure,
        "groups": found.structure.groups,
        "like": asdict(found.like),
        "distance": found.distance,
        "answers": [asdict(each) for each in found.answers],
        "items": [
            {"client": name, "group": label, "cover": round(cover, 3)}
            for name, label, cover in clients
        ],
    }
