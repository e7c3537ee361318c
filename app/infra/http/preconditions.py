"""Entity tags and the ``If-Match`` header (RFC 9110, 13.1.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Header, Request

from app.errors import PreconditionFailed, PreconditionRequired

__all__ = ["IfMatch", "RequiredMatch", "entity_tag", "is_known", "match"]

Precondition = Callable[[str, str | None], None]
"""Called with the name of a model and its version, None where there is no such model. What else has
versions is called by a name likewise.
"""


def entity_tag(version: str) -> str:
    """The entity tag of a version."""
    return f'"{version}"'


def match(if_match: str, what: str = "model") -> Precondition:
    """The check of an ``If-Match``: ``*`` asks that there is a model, tags that it is one of those.

    What it answers raises :class:`PreconditionFailed` unless the model is as the header asks.

    Args:
        what: stands before the name in messages.
    """
    wanted = [tag.strip() for tag in if_match.split(",")]

    def check(name: str, version: str | None) -> None:
        if version is None:
            raise PreconditionFailed(f"If-Match was sent, and there is no {what} {name!r}")
        tag = entity_tag(version)
        if "*" not in wanted and tag not in wanted:
            raise PreconditionFailed(
                f"{what} {name!r} has changed: it is {tag} now, If-Match said {if_match}"
            )

    return check


def is_known(request: Request, version: str) -> bool:
    """Whether the client has this version already, as its ``If-None-Match`` says."""
    known = request.headers.get("if-none-match")
    if known is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
    return "*" in tags or entity_tag(version) in tags


async def _match(
    if_match: Annotated[
        str | None,
        Header(description="change the model only if its `ETag` is this one, else 412"),
    ] = None,
) -> Precondition | None:
    return None if if_match is None else match(if_match)


async def _required_match(
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
RequiredMatch = Annotated[Precondition, Depends(_required_match)]
