"""Entity tags, ``If-Match`` and ``If-None-Match`` (RFC 9110, 13.1.1 and 13.1.2)."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, Header, Request

from app.infra.errors import PreconditionFailed, PreconditionRequired
from app.infra.preconditions import Precondition

__all__ = [
    "NOT_MODIFIED",
    "IfMatch",
    "PutCondition",
    "RequiredMatch",
    "entity_tag",
    "is_known",
    "match",
]

NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {
    304: {"description": "`If-None-Match` has the `ETag` of this answer"}
}
"""The ``responses`` of an operation that asks :func:`is_known`. The OpenAPI document has the two
headers of it, without a parameter that each request would be read for."""


def entity_tag(version: str) -> str:
    """The entity tag of a version."""
    return f'"{version}"'


def match(if_match: str, what: str = "model") -> Precondition:
    """Check an ``If-Match``: ``*`` requires that the model exists, tags that it has one of these.

    The returned check raises :class:`PreconditionFailed` unless the model is as the header
    requires.

    Args:
        what: the noun before the name in messages.
    """
    wanted = [tag.strip() for tag in if_match.split(",")]

    def check(name: str, version: str | None) -> None:
        if version is None:
            raise PreconditionFailed(f"If-Match was sent, and there is no {what} {name!r}")
        tag = entity_tag(version)
        if "*" not in wanted and tag not in wanted:
            if f"W/{tag}" in wanted:  # which RFC 9110, 13.1.1 does not let match
                raise PreconditionFailed(
                    f"{what} {name!r} is {tag}, and If-Match said {if_match}, which a proxy has "
                    f"made weak: send it without W/"
                )
            raise PreconditionFailed(
                f"{what} {name!r} has changed: it is {tag} now, If-Match said {if_match}"
            )

    return check


def none_match(if_none_match: str) -> Precondition:
    """Check an ``If-None-Match``: ``*`` requires that there is no model, tags that it has none.

    The returned check raises :class:`PreconditionFailed` unless the model is as the header
    requires.
    """
    refused = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]

    def check(name: str, version: str | None) -> None:
        if version is None:
            return
        tag = entity_tag(version)
        if "*" in refused or tag in refused:
            raise PreconditionFailed(
                f"there is a model {name!r} already: it is {tag}, "
                f"If-None-Match said {if_none_match}"
            )

    return check


def is_known(request: Request, version: str) -> bool:
    """Whether the client has this version already, as its ``If-None-Match`` says."""
    known = request.headers.get("if-none-match")
    if known is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
    return "*" in tags or entity_tag(version) in tags


_ChangeOnlyIf = Annotated[
    str | None, Header(description="change the model only if its `ETag` is this one, else 412")
]


async def _match(if_match: _ChangeOnlyIf = None) -> Precondition | None:
    return None if if_match is None else match(if_match)


async def _put_condition(
    if_none_match: Annotated[
        str | None,
        Header(description="`*` stores a new model and replaces none, else 412"),
    ] = None,
    if_match: _ChangeOnlyIf = None,
) -> Precondition | None:
    checks = [] if if_match is None else [match(if_match)]
    if if_none_match is not None:
        checks.append(none_match(if_none_match))
    if not checks:
        return None

    def check(name: str, version: str | None) -> None:
        for each in checks:
            each(name, version)

    return check


async def _require_match(
    if_match: Annotated[
        str | None,
        Header(description="the model's `ETag` that this changes, else 412; 428 without it"),
    ] = None,
) -> Precondition:
    if if_match is None:
        raise PreconditionRequired(
            "this changes one revision of the model and no other: send its ETag as If-Match"
        )
    return match(if_match)


IfMatch = Annotated[Precondition | None, Depends(_match)]
PutCondition = Annotated[Precondition | None, Depends(_put_condition)]
RequiredMatch = Annotated[Precondition, Depends(_require_match)]
