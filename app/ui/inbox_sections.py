"""The sections of the first page: each counts what asks for a look, and leads to all of it.

A section that cannot be read says so, and the others stand beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from app.hubs.kinds import HUB_KINDS
from app.infra.db.database import Reader
from app.infra.errors import ClientLeft, TooMuch
from app.kinship.findings.records import InboxFinding
from app.kinship.inbox.records import Found
from app.kinship.inbox.service import InboxService
from app.tenancy.auth.dependencies import CallerContext
from app.ui.operations import kind_in_words
from app.ui.rendering import anatomy_path, model_path
from modelkin.core.kinship.lineage import LineageVerdict
from modelkin.errors import ModelkinError

__all__ = ["CONTRADICTED", "UNDECLARED", "Entry", "Section", "read_part", "sections_of"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """One of those that a section shows: a link, and what is said of it."""

    text: str
    path: str
    detail: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the first page.

    Attributes:
        key: the end of its id on the page.
        path: the page where all of them are.
        none: what is said where there is nothing.
        count: how many there are; None where that could not be read.
        is_more: whether there are more than were counted.
        in_no_space: how many of them came as a fingerprint alone.
    """

    key: str
    title: str
    path: str
    none: str
    count: int | None
    entries: tuple[Entry, ...] = ()
    is_more: bool = False
    is_bad: bool = False
    in_no_space: int = 0


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is fixed of a section, and how its entries are read and said."""

    key: str
    title: str
    path: str
    none: str
    read: Callable[[InboxService, Reader, Any, datetime], Found[Any]]
    say: Callable[[Any], Entry]
    is_bad: bool = False


def _place(name: str, space: str | None) -> str:
    return anatomy_path(name) if space is None else model_path(space, name)


CONTRADICTED: Final[tuple[LineageVerdict, ...]] = ("mismatch", "cycle")
UNDECLARED: Final[tuple[LineageVerdict, ...]] = ("undeclared",)
DOUBTED: Final[tuple[LineageVerdict, ...]] = ("inconclusive",)
"""These, where another model than the declared base is likely."""


def _finding(each: InboxFinding) -> Entry:
    if each.likely_base is None:
        said = each.summary
    else:
        said = f"declares {each.base}, and is near {each.likely_base}"
    return Entry(each.model, model_path(each.space, each.model), said, each.found_at)


def _undeclared(each: InboxFinding) -> Entry:
    near = f"near {each.base}, and declares no base"
    return Entry(each.model, model_path(each.space, each.model), near, each.found_at)


_KINDS: Final = (
    _Kind(
        *("contradicted", "Contradicted declarations", "/findings?show=contradicted"),
        "nothing contradicted",
        lambda inbox, session, tenant, _: inbox.findings(session, tenant, CONTRADICTED),
        _finding,
        is_bad=True,
    ),
    _Kind(
        *("doubted", "In doubt", "/findings?show=doubted", "nothing in doubt"),
        lambda inbox, session, tenant, _: inbox.findings(session, tenant, DOUBTED),
        _finding,
    ),
    _Kind(
        *("undeclared", "Undeclared kin", "/findings?show=undeclared", "no undeclared kin"),
        lambda inbox, session, tenant, _: inbox.findings(session, tenant, UNDECLARED),
        _undeclared,
    ),
    _Kind(
        *("copies", "Copies", "/duplicates", "no copies"),
        lambda inbox, session, tenant, _: inbox.copies(session, tenant),
        lambda each: Entry(
            each.name, _place(each.name, each.space), f"as {', '.join(each.others)}"
        ),
    ),
    _Kind(
        *("averages", "Averages", "/anatomies?found=average", "no averages"),
        lambda inbox, session, tenant, _: inbox.merges(session, tenant, "average"),
        lambda each: Entry(each.name, anatomy_path(each.name), each.sentence),
    ),
    _Kind(
        *("assembled", "Assembled of several", "/anatomies?found=assembled", "nothing assembled"),
        lambda inbox, session, tenant, _: inbox.merges(session, tenant, "assembled"),
        lambda each: Entry(each.name, anatomy_path(each.name), each.sentence),
    ),
    _Kind(
        *("new", "New since yesterday", "/new", "nothing new since yesterday"),
        lambda inbox, session, tenant, now: inbox.new(session, tenant, now),
        lambda each: Entry(
            each.name,
            _place(each.name, each.space),
            f"in {each.space}" if each.space else "a fingerprint alone",
            each.at,
        ),
    ),
    _Kind(
        *("jobs", "Failed jobs", "/jobs?state=failed", "no job failed"),
        lambda inbox, session, tenant, _: inbox.failed_jobs(session, tenant),
        lambda each: Entry(kind_in_words(each.kind), f"/jobs/{each.id}", each.error, each.at),
        is_bad=True,
    ),
    _Kind(
        *("sources", "Sources in error", "/sources", "no source in error"),
        lambda inbox, session, tenant, _: inbox.failed_sources(session, tenant),
        lambda each: Entry(
            each.url or HUB_KINDS[each.kind].label,
            f"/sources/{each.id}",
            str((each.last_error or {}).get("detail", "")),
        ),
        is_bad=True,
    ),
    _Kind(
        *("deliveries", "Events not delivered", "/subscriptions", "all events delivered"),
        lambda inbox, session, tenant, _: inbox.failed_deliveries(session, tenant),
        lambda each: Entry(
            each.url, f"/subscriptions/{each.subscription}?state=failed", each.type, each.at
        ),
        is_bad=True,
    ),
)
"""The sections in their order."""


def sections_of(context: CallerContext, inbox: InboxService) -> Iterator[Section]:
    """The sections of a visitor, each read by itself."""
    now = datetime.now(UTC)
    for kind in _KINDS:

        def read(session: Reader, kind: _Kind = kind) -> Found[Any]:
            return kind.read(inbox, session, context.tenant, now)

        found = read_part(context, kind.title, read)
        fixed = (kind.key, kind.title, kind.path, kind.none)
        if found is None:
            yield Section(*fixed, None)
            continue
        entries = tuple(kind.say(each) for each in found.newest)
        yield Section(*fixed, found.count, entries, found.is_more, kind.is_bad, found.in_no_space)


def read_part(context: CallerContext, name: str, read: Callable[[Reader], Any]) -> Any:
    """What a part of a page shows; None where it cannot be read now, which the log tells."""
    try:
        with context.reading() as session:
            return read(session)
    except ModelkinError as error:
        if isinstance(error, ClientLeft | TooMuch):
            raise
        log.warning("the first page goes without %r: %s", name, error)
    except Exception:
        log.exception("the first page goes without %r", name)
    return None
