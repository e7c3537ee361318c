"""The command ``push``: store a support, a signature, a data subspace, or those of checkpoints."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from modelkin._terminal_text import one_line
from modelkin._validation import check_model_name
from modelkin.checkpoints import Checkpoint
from modelkin.checkpoints.catalogues.statements import Statements, moment_of
from modelkin.checkpoints.pushes.pushed_file import PushedFile
from modelkin.cli.blinding import add_blinding, blinding_of_source
from modelkin.cli.commands.push_folder import (
    absent_space,
    add_folder,
    is_of_folder,
    push_folder,
)
from modelkin.cli.fitting import require_fit
from modelkin.cli.inputs import (
    Source,
    check_kind,
    check_options,
    open_source,
    plan_of,
    whole_layout,
)
from modelkin.cli.options import FILE, add_selection, add_service
from modelkin.cli.origins import unchecked_note
from modelkin.cli.output import Answer, fields_of, quantity
from modelkin.cli.progress import ShareLine
from modelkin.client import Client
from modelkin.client._protocol.calls.requests import Content
from modelkin.core.blinding import Blinding
from modelkin.core.kinship.lineage import BASE_RELATIONS
from modelkin.core.sketching.signature import Signature
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import (
    ApiError,
    ConflictError,
    InvalidInput,
    InvalidParameter,
    NotFoundError,
    PermissionDeniedError,
)
from modelkin.types.models import ModelInfo
from modelkin.types.spaces import SpaceInfo, SubspaceSpec

__all__ = ["push", "push_options"]


def push_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``push``."""
    parser.add_argument(
        "input", metavar="FILE|CHECKPOINT|FOLDER", help=f"{FILE}; or a folder of checkpoints"
    )
    parser.set_defaults(inputs=("input",))
    add_service(
        parser,
        space="the index space, or auto for that of each model's family; else MODELKIN_SPACE",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="the model's name, org/name for one; without it a folder is one of checkpoints",
    )
    parser.add_argument(
        "--tag",
        action="append",
        metavar="TAG",
        help="a tag; all of them replace the model's tags; repeats",
    )
    parser.add_argument(
        "--create", action="store_true", help="make the space where it does not exist yet"
    )
    parser.add_argument(
        "--signature-only",
        action="store_true",
        help="send the signature alone: no index leaves this machine",
    )
    parser.add_argument(
        "--no-fingerprint",
        action="store_true",
        help="send no fingerprint of a checkpoint beside its support, by which models of other "
        "layouts are found",
    )
    add_blinding(parser)
    add_folder(parser)
    about = parser.add_argument_group("about the model")
    about.add_argument("--base-model", metavar="NAME", help="the model that it derives from")
    about.add_argument(
        "--attribute",
        action="append",
        metavar="KEY=VALUE",
        help="an attribute; all replace the model's; numbers, true, false, null are JSON; repeats",
    )
    about.add_argument("--source", metavar="URL", help="the address that the model comes from")
    stated = parser.add_argument_group(
        "about the model, beside its fingerprint; by default as its model card or its file says"
    )
    stated.add_argument("--license", metavar="NAME", help="its licence, 'apache-2.0' for one")
    stated.add_argument(
        "--published", metavar="DATE", help="when it was published, 2026-05-04 for one"
    )
    stated.add_argument(
        "--base-relation", choices=BASE_RELATIONS, help="what it is of the models it derives from"
    )
    add_selection(parser)


def push(arguments: argparse.Namespace) -> Answer:
    """``modelkin push``: store a support or signature in a space, or those of a folder."""
    if is_of_folder(arguments):
        return push_folder(arguments)
    described = _metadata(arguments)
    notes: tuple[str, ...] = ()
    check_options(arguments, arguments.input)
    with Client(arguments.url, arguments.api_key) as client:
        space, source = _space_and_source(client, arguments)
        value: Content
        blinding = blinding_of_source(arguments, source)
        if space is not None:
            require_fit(arguments.input, source, blinding, space, ordered=True)
        file: PushedFile | None = None
        if isinstance(source, Checkpoint):
            file = _read(arguments, source, space)
            value, notes = _agreed_support(client, arguments, file, blinding)
        else:
            value, notes = source, unchecked_note(arguments.input, source, space)
        if blinding is not None and isinstance(value, Support):
            value = blinding.blind(value)
        if arguments.signature_only and isinstance(value, Support):
            value = _sign(value, space or client.spaces.get(arguments.space))
        info = _describe(client, _put(client, arguments, value), described)
        if file is not None and _tells_of_weights(arguments):
            notes = (*notes, *_state_weights(client, info, file))
            if arguments.base_model is None and (unread := file.unread_base) is not None:
                notes = (*notes, unread)
            if not arguments.no_fingerprint:
                notes = (*notes, *_send_fingerprint(client, arguments, info, file))
    more = f", tags {', '.join(info.tags)}" if info.tags else ""
    more += f", base model {info.base_model}" if info.base_model else ""
    if info.kind == "subspace":
        size = quantity(info.support_size, "direction")
        where = f"{info.model} in space {info.space}: revision {info.revision}"
        text = f"{where}, a data subspace of {size}{more}"
        return Answer(one_line(text), fields_of(info), notes)
    what = "support" if info.kind == "support" else "signature of a support"
    return Answer(
        text=one_line(
            f"{info.model} in space {info.space}: revision {info.revision}, a {what} "
            f"of {info.support_size:,} indices{more}"
        ),
        fields=fields_of(info),
        notes=notes,
    )


def _space_and_source(
    client: Client, arguments: argparse.Namespace
) -> tuple[SpaceInfo | None, Source]:
    """The space of a push, made with ``--create`` where it does not exist, and the input for it.

    The space is None for a key that may write and not read: the service then compares.
    """
    path: str = arguments.input
    space = _find_space(client, arguments)
    if space is None and arguments.create:
        space = _create_space(client, arguments, open_source(arguments, path))
    return space, open_source(arguments, path, space)


def _find_space(client: Client, arguments: argparse.Namespace) -> SpaceInfo | None:
    try:
        return client.spaces.get(arguments.space)
    except PermissionDeniedError:
        return None
    except NotFoundError as error:
        if error.problem_code == "space_not_found" and arguments.create:
            return None
        raise absent_space(error) from error


def _create_space(
    client: Client, arguments: argparse.Namespace, source: Source
) -> SpaceInfo | None:
    """Create a space for the input; None where another space has the name and cannot be read."""
    if isinstance(source, Subspace):
        spec = SubspaceSpec(constant=source.constant, weighting=source.weighting)
        return client.ensure_space(
            arguments.space,
            kind="subspaces",
            num_parameters=source.num_features,
            subspaces=spec,
        )
    blinding = blinding_of_source(arguments, source)
    if not isinstance(source, Checkpoint):
        m = source.num_parameters
        return client.ensure_space(arguments.space, num_parameters=m, blinding=blinding)
    importance = replace(plan_of(arguments, source).importance, note=None)  # it is of one model
    if blinding is not None:
        return client.ensure_space(arguments.space, blinding=blinding, importance=importance)
    layout, exclude = whole_layout(arguments, source)
    try:
        return client.ensure_space(
            arguments.space, layout=layout, importance=importance, exclude=exclude
        )
    except ConflictError:  # another client has created the space meanwhile
        return _find_space(client, arguments)


def _tells_of_weights(arguments: argparse.Namespace) -> bool:
    """Whether digests and a fingerprint may be sent beside a support."""
    return not arguments.signature_only and arguments.blinding_key is None


def _read(
    arguments: argparse.Namespace, checkpoint: Checkpoint, space: SpaceInfo | None
) -> PushedFile:
    lines = _tells_of_weights(arguments) and not arguments.no_fingerprint
    plan = plan_of(arguments, checkpoint, space, digest=False)
    fixed = None if space is None else space.support_size.k
    with ShareLine(f"reading {one_line(checkpoint.name)}") as line:
        file = PushedFile(
            plan,
            fixed,
            lines=lines,
            exclude=arguments.exclude,
            count=lambda done, total: line.draw(done / max(total, 1)),
        )
    check_kind(file.importance, space, plan.base)
    return file


def _agreed_support(
    client: Client, arguments: argparse.Namespace, file: PushedFile, blinding: Blinding | None
) -> tuple[Support, tuple[str, ...]]:
    """The checkpoint's support of the size that the space asks for, with notes.

    A size on the command line is kept. Otherwise the command reports the file's own K*, and the
    space answers with the size.
    """
    chosen = file.support()
    if arguments.support_size is not None or arguments.fraction is not None:
        return chosen, file.notes
    size = client.spaces.report_support_size(
        arguments.space,
        chosen.k,
        client=arguments.model,
        support=chosen,
        blinding=blinding,
    )
    if size.k is None or size.k == chosen.k:
        return chosen, file.notes
    whose = "is fixed" if size.policy == "fixed" else f"is the median of {size.reports} reports"
    note = f"K is {size.k:,}, which {whose}; alone this file would have {chosen.k:,}"
    return file.support(size.k), (*file.notes, note)


def _put(client: Client, arguments: argparse.Namespace, value: Content) -> ModelInfo:
    space, model, tags = arguments.space, arguments.model, arguments.tag
    if isinstance(value, Subspace):
        return client.subspaces.put(space, model, value, tags=tags)
    if isinstance(value, Support):
        return client.put_support(space, model, value, tags=tags, progress=True)
    return client.put_signature(space, model, value, tags=tags, progress=True)


def _state_weights(client: Client, info: ModelInfo, file: PushedFile) -> tuple[str, ...]:
    """State the digests of the weights, and name a model of the space that has the same."""
    try:
        client.models.put_weights(info.space, info.model, file.weights(), revision=info.revision)
        [*copies] = client.models.duplicates(info.space, info.model)
    except (NotFoundError, ConflictError, PermissionDeniedError):
        return ()  # an older service, a later revision, or a key that may not read
    says = [
        item.says
        for group in copies
        for item in group
        if (item.space, item.model, group[0].space) == (info.space, info.model, info.space)
    ]
    return tuple(text for text in says if text is not None)


def _send_fingerprint(
    client: Client, arguments: argparse.Namespace, info: ModelInfo, file: PushedFile
) -> tuple[str, ...]:
    """Store the fingerprint of a checkpoint under the model's name, with what is said of it."""
    said = _stated(arguments, file.statements)
    try:
        client.fingerprints.put(
            info.model,
            file.fingerprint(),
            base_models=said.base_models,
            base_relation=said.base_relation,
            license=said.license,
            published_at=said.published_at,
            file_bytes=file.size,
        )
    except (NotFoundError, PermissionDeniedError):
        return ()  # an older service, or a key that may not write it
    except (ApiError, InvalidInput) as error:
        return (f"its fingerprint is not stored: {error}",)
    return ()


def _stated(arguments: argparse.Namespace, found: Statements) -> Statements:
    """What the command line says of the model, else its files."""
    given: dict[str, Any] = {
        "license": arguments.license,
        "published_at": _published(arguments),
        "base_models": None if arguments.base_model is None else (arguments.base_model,),
        "base_relation": arguments.base_relation,
    }
    if given["base_models"] is not None:  # the files may speak of others
        found = replace(found, base_relation=None)
    return replace(found, **{name: each for name, each in given.items() if each is not None})


def _published(arguments: argparse.Namespace) -> datetime | None:
    if arguments.published is None:
        return None
    found = moment_of(arguments.published)
    if found is None:
        raise InvalidParameter(
            f"--published {arguments.published}: write a date, such as 2026-05-04, or a time"
        )
    return found


def _metadata(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of the model that the command line sets, checked before anything is sent.

    Raises:
        InvalidName, InvalidParameter: a field is malformed.
    """
    given: dict[str, Any] = {}
    _published(arguments)
    if arguments.base_model is not None:
        given["base_model"] = check_model_name(arguments.base_model, field="--base-model")
    if arguments.source is not None:
        given["source"] = arguments.source
    if arguments.attribute is not None:
        given["attributes"] = dict(map(_attribute, arguments.attribute))
    return given


def _attribute(text: str) -> tuple[str, Any]:
    """Parse ``KEY=VALUE``; the value is JSON if it can be read as such, otherwise a text."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise InvalidParameter(f"--attribute {text}: write KEY=VALUE, such as epochs=3")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


def _describe(client: Client, info: ModelInfo, given: Mapping[str, Any]) -> ModelInfo:
    """Return the model with these fields; if they differ, another request sets them."""
    if all(getattr(info, name) == value for name, value in given.items()):
        return info
    return client.models.update(info.space, info.model, **given)


def _sign(support: Support, space: SpaceInfo) -> Signature:
    """The signature with the parameters of the space, made here so that the indices stay here."""
    spec = space.signature
    return support.signature(num_perm=spec.num_perm, seed=spec.seed, scheme=spec.scheme)
