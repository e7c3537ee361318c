"""Entity tags and the ``If-Match`` header."""

from __future__ import annotations

from app.catalog.records import ModelRecord
from app.errors import PreconditionFailed

__all__ = ["check_match", "etag_of"]


def etag_of(model: ModelRecord) -> str:
    """The entity tag of a model as it stands: it changes with every change of the model.

    It tells nothing of other tenants, as an id would: the version is the space's own. A space that
    was deleted and made again counts from 0, so the tag holds the time of the model's making too.
    """
    made = model.created_at.timestamp()
    return f'"{model.version:x}-{model.revision:x}-{round(made * 1e6):x}"'


def check_match(current: ModelRecord | None, if_match: str | None, name: str) -> None:
    """RFC 9110, 13.1.1: ``*`` asks that there is a model, tags that it is one of those."""
    if if_match is None:
        return
    if current is None:
        raise PreconditionFailed(f"If-Match was sent, and there is no model {name!r}")
    wanted = [tag.strip() for tag in if_match.split(",")]
    if "*" not in wanted and etag_of(current) not in wanted:
        raise PreconditionFailed(
            f"model {name!r} has changed: it is {etag_of(current)} now, If-Match said {if_match}"
        )
