"""The command ``anatomy``: which models each tensor of a checkpoint comes from.

The models are files, or all that a service stores; then the checkpoint may be stored there, too.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Final

from modelkin import checkpoints
from modelkin._terminal_text import one_line
from modelkin.checkpoints import Checkpoint
from modelkin.checkpoints.anatomies import fingerprint_of, is_fingerprint, name_of
from modelkin.checkpoints.inner_products import points_of
from modelkin.cli.commands.fingerprints import add_scale, made_of
from modelkin.cli.commands.relatives import (
    incomplete_notes,
    stated_note,
    stored_or_read,
    told_where,
)
from modelkin.cli.options import WEIGHTS, add_service
from modelkin.cli.output import Answer, quantity, table
from modelkin.cli.pictures import Picture
from modelkin.cli.style import FAINT, GOOD, HEAD, Styled, paint
from modelkin.cli.texts import part_text
from modelkin.client import Client
from modelkin.core.catalogues.catalogue import Catalogue
from modelkin.core.fingerprints.anatomy import Anatomy, Parent, anatomy_of
from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.core.fingerprints.comparison import compare
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.inner_products import InnerProducts, inner_products
from modelkin.core.fingerprints.rows import COLUMNS, Row
from modelkin.errors import InvalidParameter
from modelkin.types.anatomies.anatomy import ModelAnatomy

__all__ = ["anatomy", "anatomy_options"]

_FEW: Final = 64
"""Lines of which hardly any would be found of a model that was trained on."""
_FILE: Final = f"a fingerprint that `modelkin fingerprint` wrote, or {WEIGHTS}"


def anatomy_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``anatomy``."""
    parser.add_argument(
        "file",
        metavar="FILE|MODEL",
        help=f"the checkpoint: {_FILE}; - for a pipe. Or the name of a model whose fingerprint the "
        "service has",
    )
    parser.add_argument(
        "--with",
        dest="models",
        action="extend",
        nargs="+",
        default=[],
        metavar="[NAME=]FILE",
        help="a model that it may come from; repeats. Its name is that of the file. Without one, "
        "the service compares its stored models",
    )
    parser.add_argument(
        "--catalogue",
        metavar="FILE",
        help="well-known bases that it may come from, as `modelkin catalogue build` writes them",
    )
    add_scale(parser)
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw it, too: .png, .svg or .pdf by matplotlib, .html by plotly",
    )
    parser.add_argument(
        "--inner-products",
        action="store_true",
        help="also show whether hidden units lie to each other as a model's do, which is left of a "
        "rotated one: evidence, and no verdict. It takes checkpoints, and reads them again",
    )
    parser.set_defaults(inputs=("file",))
    add_service(parser, space=None)


def anatomy(arguments: argparse.Namespace) -> Answer:
    """``modelkin anatomy``: where the tensors of a checkpoint come from."""
    if not arguments.models and arguments.catalogue is None:
        return _of_service(arguments)
    models = _named(arguments.models)
    if arguments.inner_products:
        _check_checkpoints([arguments.file, *models.values()])
    picture = None if arguments.plot is None else Picture.at(arguments.plot)
    notes = list[str]()
    child = _read(arguments.file, arguments.scale, notes, "")
    parents = {
        name: _read(path, arguments.scale, notes, f"{name}: ") for name, path in models.items()
    }
    asked, bases = None, None
    if arguments.catalogue is not None:
        bases = Catalogue.load(arguments.catalogue)
        parents = _candidates(bases, child, models) | parents
        asked = len(bases) + len(models)
    found = anatomy_of(
        child,
        [compare(child, *each) for each in parents.items()],
        asked=asked,
        of_catalogue=bases is not None and not models,
    )
    fields = {"file": arguments.file, "models": models, **found.to_json()}
    if bases is not None:
        fields["catalogue"] = {"bases": len(bases), "digest": bases.digest}
    if picture is not None:
        picture.draw(found, name_of(arguments.file) or arguments.file)
        fields["plot"] = arguments.plot
    notes += _coarser(arguments.scale, found.scale, {arguments.file: child, **parents})
    compared = int(child.at(found.scale).distinct.size)
    if compared < min(_FEW, sum(child.lines.values())):
        notes.append(
            f"at scale {found.scale:,} only {quantity(compared, 'line')} can be compared: give "
            f"checkpoints with --scale 1, or fingerprints that were made with it"
        )
    scale = f"{quantity(compared, 'line')} of the checkpoint, at scale {found.scale:,}"
    text = _text(found, scale, list(models), bases)
    if arguments.inner_products:
        own = points_of(arguments.file)
        evidence = {name: inner_products(own, points_of(path)) for name, path in models.items()}
        fields["inner_products"] = {name: each.to_json() for name, each in evidence.items()}
        text += f"\n\n{_evidence(evidence)}"
    return Answer(text, fields, tuple(notes))


def _candidates(
    bases: Catalogue, child: Fingerprint, models: Mapping[str, str]
) -> dict[str, Fingerprint]:
    """The bases that have keys of the checkpoint.

    Raises:
        InvalidParameter: one of them has the name of a given model.
    """
    found = bases.candidates(child)
    if both := sorted(found.keys() & models.keys()):
        raise InvalidParameter(
            f"--with: {models[both[0]]} would have the name of a base, {both[0]!r}: give another "
            f"name, as in --with {both[0]}-2={models[both[0]]}"
        )
    return found


def _of_service(arguments: argparse.Namespace) -> Answer:
    """Ask the service, which has read no file of its client."""
    if arguments.inner_products:
        raise InvalidParameter("--inner-products compares checkpoints: give them by --with")
    picture = None if arguments.plot is None else Picture.at(arguments.plot)
    with Client(arguments.url, arguments.api_key) as client:
        subject, notes = stored_or_read(arguments.file, arguments.scale)
        with told_where(client, arguments.file, subject):
            found = client.anatomy(subject)
        stored = None if isinstance(subject, str) else _stored_as(found)
        if stored is not None:  # itself in every row would say nothing
            found = client.anatomy(stored)
    fields = {"file": None if isinstance(subject, str) else arguments.file, **found.to_json()}
    if picture is not None:
        picture.draw(found, found.model or name_of(arguments.file) or arguments.file)
        fields["plot"] = arguments.plot
    whom = quantity(found.compared, "stored model")
    text = _text(found, f"with {whom}, at scale {found.scale:,}", [])
    if stored is not None:
        fields["stored_as"] = stored
        known = f"stored already as {stored}, whose anatomy this is:"
        text = f"{paint(one_line(known), HEAD)}\n\n{text}"
    stated = [name for name, each in found.models.items() if each.stated_by == "client"]
    return Answer(text, fields, (*notes, *stated_note(stated), *incomplete_notes(found)))


def _stored_as(found: ModelAnatomy) -> str | None:
    """The stored model that has all lines of a file, in tensors of the same names, and no others.

    Of several it is the first one; the anatomy of that names the others as its copies.
    """
    compared = [each for each in found.tensors if each.keys]
    for parent in found.parents:
        if parent.verdict == "copy" and all(
            any(
                s.model == parent.model and s.tensor.names == each.tensor.names
                for s in each.sources
            )
            for each in compared
        ):
            return parent.model
    return None


def _coarser(asked: int | None, scale: int, given: Mapping[str, Fingerprint]) -> list[str]:
    """A note where a finished fingerprint has fewer lines than were asked for."""
    if asked is None or scale <= asked:
        return []
    whose = next(name for name, each in given.items() if each.scale == scale)
    return [
        f"--scale {asked:,} is not that of the fingerprint {whose}, which has scale {scale:,}: "
        f"give its checkpoint, or make the fingerprint with --scale {asked}"
    ]


def _check_checkpoints(paths: Sequence[str]) -> None:
    """Refuse fingerprints, which have no inner products."""
    for path in paths:
        if is_fingerprint(path):
            raise InvalidParameter(
                f"--inner-products: {path} is a fingerprint, which has none: give its checkpoint"
            )


def _evidence(found: Mapping[str, InnerProducts]) -> str:
    rows = [
        (
            name,
            f"{len(each.alike)} of {quantity(each.compared, 'tensor')}",
            f"{each.kappa:.2f}" if each.alike else "",
            Styled(each.words, GOOD if each.is_evidence else FAINT),
        )
        for name, each in found.items()
    ]
    return table(("INNER PRODUCTS", "ALIKE", "KAPPA", "WHAT THEY SAY"), rows)


def _named(texts: Sequence[str]) -> dict[str, str]:
    """The files by their models' names: ``NAME=FILE``, or the name that the file has.

    Raises:
        InvalidParameter: two have one name.
    """
    found = dict[str, str]()
    for text in texts:
        name, separator, path = text.partition("=")
        if not separator or not name or not path or os.path.exists(text):
            name, path = name_of(text) or text, text
        if name in found:
            raise InvalidParameter(
                f"--with: {found[name]} and {path} would both be named {name!r}: give a name, as "
                f"in --with {name}-2={path}"
            )
        found[name] = path
    return found


def _read(path: str, scale: int | None, notes: list[str], whose: str) -> Fingerprint:
    """The fingerprint in a file, or of a checkpoint, whose notes are kept."""
    if is_fingerprint(path):
        return fingerprint_of(path, scale)
    checkpoint: Checkpoint = checkpoints.open_checkpoint(path)
    notes += [f"{whose}{note}" for note in checkpoint.notes]
    return made_of(checkpoint, scale)


def _text(
    found: Anatomy, compared: str, models: Sequence[str], bases: Catalogue | None = None
) -> str:
    tensors = table([column.upper() for column in COLUMNS], [_cells(row) for row in found.rows])
    left_out = [f"not compared: {each.sentence}" for each in found.left_out]
    said = [paint(_sentence(sentence), HEAD) for sentence in found.sentences]
    scale = f"compared: {compared}"
    unknown = sum(row.count for row in found.rows if row.model is None)
    if found.parents and unknown and found.scale > 1:
        scale += f"; {quantity(unknown, 'tensor')} unknown, for which --scale 1 compares all lines"
    if bases is not None:
        scale += f"\nlooked up: {quantity(len(bases), 'base')} of the catalogue, {bases.digest}"
    is_chosen = bases is not None or isinstance(found, ModelAnatomy)
    shown = [_models(found, models, is_chosen), ""] if models or found.parents else []
    return "\n".join([tensors, *left_out, scale, "", *shown, *said])


def _cells(row: Row) -> tuple[str, ...]:
    cells = row.cells
    return cells if row.model is not None else tuple(Styled(cell, FAINT) for cell in cells)


def _models(found: Anatomy, models: Sequence[str], chosen: bool) -> str:
    """The models that were given, those with lines in common first; with E where bases were."""
    columns = ("MODEL", "WHAT IT IS", "LINES", "ADDED", "PARAMETERS", "P", *("E",) * chosen)
    rows = [_parent(each)[: len(columns)] for each in found.parents]
    named = {each.model for each in found.parents}
    nothing = ("nothing found", *("",) * (len(columns) - 2))
    rows += [
        tuple(Styled(cell, FAINT) for cell in (name, *nothing))
        for name in models
        if name not in named
    ]
    return table(columns, rows)


def _parent(parent: Parent) -> tuple[str, ...]:
    shares = (parent.share_of_lines, parent.added, parent.share_of_parameters)
    return (
        parent.model,
        Styled(parent.words, GOOD),
        *map(part_text, shares),
        power_of_ten(parent.log10_p),
        power_of_ten(parent.log10_e),
    )


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
