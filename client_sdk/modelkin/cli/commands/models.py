"""The commands about single models: ``models``, ``show``, ``tag``, ``rm`` and ``pull``."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress

from modelkin._terminal_text import one_line
from modelkin._whole_files import write_whole
from modelkin.cli.confirmation import confirm
from modelkin.cli.options import (
    add_confirmation,
    add_limit,
    add_service,
    add_tags,
    first_rows,
    usual_space,
)
from modelkin.cli.output import Answer, fields_of, names, pairs, quantity, table
from modelkin.cli.texts import count_text, text_or_dash, time_text
from modelkin.client import Client
from modelkin.core.importance import Origin
from modelkin.core.support_files import write_origin
from modelkin.errors import ApiError, InvalidParameter, NotFoundError, PermissionDeniedError
from modelkin.types.models import ModelInfo

__all__ = [
    "models",
    "models_options",
    "pull",
    "pull_options",
    "rm",
    "rm_options",
    "show",
    "show_options",
    "tag",
    "tag_options",
]


def models_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``models``."""
    add_service(parser)
    add_tags(parser)
    add_limit(parser)
    parser.add_argument("--names", action="store_true", help="the names alone, one a line")


def show_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``show``."""
    parser.add_argument("model", metavar="MODEL", help="a model of the space")
    add_service(parser)


def tag_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``tag``."""
    parser.add_argument("model", metavar="MODEL", help="a model of the space")
    parser.add_argument(
        "tags", nargs="*", metavar="TAG", help="the tags to add; without any the model's are shown"
    )
    parser.add_argument(
        "--remove", action="append", default=[], metavar="TAG", help="take this tag away; repeats"
    )
    parser.add_argument("--clear", action="store_true", help="first take all tags away")
    add_service(parser)


def rm_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``rm``."""
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="models of the space; - reads a name a line from standard input",
    )
    parser.add_argument(
        "--fingerprint",
        action="store_true",
        help="delete the fingerprints of these names, too; without a space, those alone",
    )
    add_service(parser, required=False)
    add_confirmation(parser)


def pull_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``pull``."""
    parser.add_argument("model", metavar="MODEL", help="a model of the space")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the file to write; - for standard output",
    )
    parser.set_defaults(outputs=("output",))
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--revision", type=int, metavar="NUMBER", help="the revision; by default the present one"
    )
    which.add_argument(
        "--signature", action="store_true", help="write the signature, not the indices"
    )
    add_service(parser)


def models(arguments: argparse.Namespace) -> Answer:
    """``modelkin models``: the models of a space by name."""
    with Client(arguments.url, arguments.api_key) as client:
        total = None if arguments.tag else client.spaces.get(arguments.space).models
        listed = client.models.list(arguments.space, tags=arguments.tag)
        found, more = first_rows(listed, arguments, total)
    fields = {"items": [fields_of(info) for info in found]}
    if arguments.names:
        return Answer(names(info.model for info in found), fields, whole=True)
    columns = ("MODEL", "KIND", "K", "REVISION", "UPDATED", "BASE", "TAGS")
    text = table(columns, map(_row, found)) + more if found else "no models"
    return Answer(text, fields)


def show(arguments: argparse.Namespace) -> Answer:
    """``modelkin show``: everything that is known of a model except its indices."""
    with Client(arguments.url, arguments.api_key) as client:
        found = client.models.get(arguments.space, arguments.model)
    noun = "direction" if found.kind == "subspace" else "index"
    size = f"{found.support_size:,} {noun if found.support_size == 1 else _PLURAL[noun]}"
    summary = {
        "model": found.model,
        "space": found.space,
        "content": f"{found.kind} of {size}, revision {found.revision}"
        + (", signature computed by the service" if found.verified else ""),
        "digest": text_or_dash(found.digest),
        "base": text_or_dash(_bases(found)),
        "source": text_or_dash(found.source),
        "tags": ", ".join(found.tags) or text_or_dash(None),
        "created": time_text(found.created_at),
        "updated": time_text(found.updated_at),
    }
    text = pairs(summary)
    if found.attributes:
        rows = [(key, _as_json(value)) for key, value in sorted(found.attributes.items())]
        text += "\n\n" + table(("ATTRIBUTE", "VALUE"), rows)
    return Answer(text, fields_of(found))


def tag(arguments: argparse.Namespace) -> Answer:
    """``modelkin tag``: add and remove tags of a model, or show them."""
    with Client(arguments.url, arguments.api_key) as client:
        found = client.models.get(arguments.space, arguments.model)
        unknown = sorted(set(arguments.remove) - set(found.tags))
        if unknown:
            raise InvalidParameter(
                f"--remove {unknown[0]}: {found.model} has no such tag, it has "
                f"{', '.join(found.tags) or 'none'}"
            )
        kept = () if arguments.clear else set(found.tags) - set(arguments.remove)
        wanted = sorted({*kept, *arguments.tags})
        if wanted != sorted(found.tags):
            found = client.models.update(
                arguments.space, found.model, tags=wanted, if_match=found.etag
            )
    text = one_line(f"{found.model}: {', '.join(found.tags) or 'no tags'}")
    return Answer(text, fields_of(found))


def rm(arguments: argparse.Namespace) -> Answer:
    """``modelkin rm``: delete models of a space, their fingerprints, or both."""
    names, space = _names(arguments), arguments.space or usual_space()
    if space is None and not arguments.fingerprint:
        raise InvalidParameter("give the --space of the models, or --fingerprint")
    what = names[0] if len(names) == 1 else quantity(len(names), "model")
    where = [f"delete {what} from space {space}"] if space else []
    where += [f"delete the fingerprint of {what}"] if arguments.fingerprint else []
    lines, notes = list[str](), list[str]()
    with Client(arguments.url, arguments.api_key) as client:
        for name in names:
            _require(client, space, name, fingerprint=arguments.fingerprint)
        confirm(arguments, " and ".join(where))
        for at, name in enumerate(names):
            try:
                deleted = _delete(client, space, name, fingerprint=arguments.fingerprint)
            except NotFoundError as error:
                if at == 0:
                    raise
                done = f"{at:,} {'was' if at == 1 else 'were'} deleted before"
                raise InvalidParameter(f"{error} ({done})") from None
            lines.append(f"{name}: {deleted}")
            if not arguments.fingerprint and _has_fingerprint(client, name):
                notes.append(f"the fingerprint of {name} stays: --fingerprint deletes it, too")
    fields = {"space": space, "deleted": names, "fingerprints": arguments.fingerprint}
    return Answer("\n".join(lines), fields, notes=tuple(notes))


def _require(client: Client, space: str | None, name: str, *, fingerprint: bool) -> None:
    """Require that there is what is to be deleted, so that nothing is where a name is wrong.

    Raises:
        NotFoundError: there is neither.
    """
    missing: NotFoundError | None = None
    with suppress(PermissionDeniedError):  # a key that may delete and not read
        if space is not None:
            try:
                client.models.get(space, name)
                return
            except NotFoundError as error:
                missing = error
        if fingerprint:
            try:
                client.fingerprints.info(name)
                return
            except NotFoundError as error:
                missing = missing or error
        if missing is not None:
            raise missing


def _delete(client: Client, space: str | None, name: str, *, fingerprint: bool) -> str:
    """Delete a model of a space, its fingerprint, or both, and say which.

    Raises:
        NotFoundError: there is none of what is to be deleted.
    """
    deleted = list[str]()
    missing: NotFoundError | None = None
    if space is not None:
        try:
            client.models.delete(space, name)
            deleted.append("deleted")
        except NotFoundError as error:
            missing = error
    if fingerprint:
        try:
            client.fingerprints.delete(name)
            deleted.append("fingerprint deleted")
        except NotFoundError as error:
            missing = missing or error
    if missing is not None and not deleted:
        raise missing
    return ", ".join(deleted)


def _has_fingerprint(client: Client, name: str) -> bool:
    """Whether a fingerprint is stored; False where the key may not ask."""
    try:
        client.fingerprints.info(name)
    except ApiError:
        return False
    return True


def pull(arguments: argparse.Namespace) -> Answer:
    """``modelkin pull``: write the support or the signature of a stored model to a file."""
    space, model = arguments.space, arguments.model
    with Client(arguments.url, arguments.api_key) as client:
        if arguments.signature:
            signature = client.signatures.get(space, model)
            data, size = signature.to_bytes(), signature.support_size
            what = f"the signature of {size:,} indices"
        else:
            support = client.supports.get(space, model, revision=arguments.revision)
            info = client.spaces.get(space)
            origin = Origin(info.importance if info.importance.is_stated else None, info.layout)
            data, size = support.to_bytes(), support.k
            what = f"{size:,} of {support.num_parameters:,} parameters"
    write_whole(arguments.output, data)
    if not arguments.signature:  # the fields that the service has checked
        write_origin(arguments.output, support.digest, origin)
    fields = {"file": arguments.output, "bytes": len(data), "support_size": size}
    return Answer(f"{arguments.output}: {what}, {len(data):,} bytes", fields)


_PLURAL = {"index": "indices", "direction": "directions"}


def _row(info: ModelInfo) -> tuple[str, ...]:
    return (
        info.model,
        info.kind,
        count_text(info.support_size),
        str(info.revision),
        time_text(info.updated_at),
        text_or_dash(_bases(info)),
        ", ".join(info.tags) or text_or_dash(None),
    )


def _bases(info: ModelInfo) -> str | None:
    """The declared bases, and what the model is said to be of them; None without any."""
    relation = f" ({info.base_relation})" if info.base_relation else ""
    names = ", ".join(info.base_models) or info.base_model
    return None if names is None else names + relation


def _as_json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _names(arguments: argparse.Namespace) -> list[str]:
    """The models to delete, each once.

    Raises:
        InvalidParameter: standard input names none.
    """
    names: list[str] = arguments.models
    if names == ["-"]:
        names = [line.strip() for line in sys.stdin if line.strip()]
        if not names:
            raise InvalidParameter("standard input has no name of a model, one a line")
    return list(dict.fromkeys(names))
