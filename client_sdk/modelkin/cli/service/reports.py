"""The commands ``report`` and ``reports``: what was found of all models, for others to read."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from modelkin._whole_files import require_ordinary, write_whole
from modelkin.cli.confirmation import confirm
from modelkin.cli.options import add_confirmation, add_limit, add_service, first_rows
from modelkin.cli.output import Answer, fields_of, pairs, quantity, table
from modelkin.cli.service.jobs import JobLine
from modelkin.cli.texts import count_text, text_or_dash, time_text
from modelkin.client import Client
from modelkin.errors import InvalidParameter
from modelkin.types.reports import Report, ReportPolicy
from modelkin.types.vocabulary import ReportForm

__all__ = [
    "badge",
    "badge_options",
    "list_all",
    "list_all_options",
    "make",
    "make_options",
    "remove",
    "remove_options",
    "schedule",
    "schedule_options",
    "show",
    "show_options",
]

_LATEST: Final = "latest"
_FORMS: Final = ("html", "csv", "json", "cyclonedx")
_DAY_S: Final = 86_400


def make_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``report``."""
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--since",
        metavar="TIME",
        help="what is new since: 2026-11-01, or 2026-11-01T10:00+01:00; by default since the last "
        "report",
    )
    begin.add_argument("--everything", action="store_true", help="a report about all models")
    _add_output(parser)
    add_service(parser, space=None)


def list_all_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``reports list``."""
    add_service(parser, space=None)
    add_limit(parser)


def show_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``reports show``."""
    _add_report(parser, optional=True)
    _add_output(parser)
    add_service(parser, space=None)


def remove_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``reports rm``."""
    _add_report(parser)
    add_service(parser, space=None)
    add_confirmation(parser)


def schedule_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``reports schedule``."""
    parser.add_argument(
        "--days", type=float, metavar="DAYS", help="from one report to the next; by default 30"
    )
    parser.add_argument(
        "--keep", type=int, metavar="COUNT", help="how many reports are kept; by default 12"
    )
    parser.add_argument("--off", action="store_true", help="make reports by request only")
    add_service(parser, space=None)


def badge_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``reports badge``."""
    parser.add_argument("model", metavar="MODEL", help="the name of the model")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="the .svg file to write; - for standard output",
    )
    add_service(parser, space=None)


def make(arguments: argparse.Namespace) -> Answer:
    """``modelkin report``: a new report, as its first lines or as a file."""
    form = _form(arguments)
    since = None if arguments.everything else _moment(arguments.since)
    with Client(arguments.url, arguments.api_key) as client, JobLine("report") as line:
        report = client.reports.create(since=since, on_progress=line)
        return _answer(client, arguments, report, form)


def list_all(arguments: argparse.Namespace) -> Answer:
    """``modelkin reports``: the reports, the newest first."""
    with Client(arguments.url, arguments.api_key) as client:
        found, more = first_rows(client.reports.list(), arguments)
    columns = ("REPORT", "SINCE", "UNTIL", "MODELS", "CONTRADICTED", "UNDECLARED", "LICENCES")
    rows = [
        (
            each.id,
            "ever" if each.since is None else time_text(each.since),
            time_text(each.until),
            count_text(each.size.models),
            count_text(each.size.contradicted),
            count_text(each.size.undeclared),
            count_text(each.size.licenses),
        )
        for each in found
    ]
    text = table(columns, rows) + more if found else "no reports: make one with `modelkin report`"
    return Answer(text, {"items": [fields_of(each) for each in found]})


def show(arguments: argparse.Namespace) -> Answer:
    """``modelkin reports show``: a report that was made, as its first lines or as a file."""
    form = _form(arguments)
    with Client(arguments.url, arguments.api_key) as client:
        return _answer(client, arguments, client.reports.get(arguments.report), form)


def remove(arguments: argparse.Namespace) -> Answer:
    """``modelkin reports rm``: delete a report."""
    confirm(arguments, f"delete report {arguments.report}")
    with Client(arguments.url, arguments.api_key) as client:
        client.reports.delete(arguments.report)
    return Answer(f"deleted report {arguments.report}", {"report": arguments.report})


def schedule(arguments: argparse.Namespace) -> Answer:
    """``modelkin reports schedule``: how often reports are made without a request."""
    given = arguments.days is not None or arguments.keep is not None
    if arguments.off and given:
        raise InvalidParameter("--off goes without --days and --keep")
    with Client(arguments.url, arguments.api_key) as client:
        if arguments.off:
            client.reports.policy.delete()
            return Answer("reports are made by request only", {"scheduled": False})
        every = None if arguments.days is None else round(arguments.days * _DAY_S)
        return _policy(client.reports.policy.set(every_seconds=every, keep=arguments.keep))


def badge(arguments: argparse.Namespace) -> Answer:
    """``modelkin reports badge``: what a model is by its weights, as a picture."""
    with Client(arguments.url, arguments.api_key) as client:
        picture = client.reports.badge(arguments.model)
    path = Path(arguments.output)
    write_whole(path, picture)
    fields = {"model": arguments.model, "output": str(path), "bytes": len(picture)}
    return Answer(f"{path}: {quantity(len(picture), 'byte')}", fields)


def _add_report(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    if optional:
        parser.add_argument(
            "report",
            metavar="REPORT",
            nargs="?",
            default=_LATEST,
            help="the report's id; by default the newest one",
        )
    else:
        parser.add_argument("report", metavar="REPORT", help="the report's id")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the file to write; - for standard output"
    )
    parser.add_argument(
        "--format",
        choices=_FORMS,
        help="what to write: a page, a table, all of it, or a CycloneDX document; by default as "
        "the file ends: .html, .csv, .json, .cdx.json",
    )


def _form(arguments: argparse.Namespace) -> ReportForm | None:
    """The form to write; None where no file is asked for.

    Raises:
        InvalidParameter: the file's name does not say it, or there is no file to write.
    """
    if arguments.output is None:
        if arguments.format is not None:
            raise InvalidParameter("--format goes with --output: name the file to write")
        return None
    path = Path(arguments.output)
    require_ordinary(path)
    if arguments.format is not None:
        chosen: ReportForm = arguments.format
        return chosen
    if path.name.endswith(".cdx.json"):
        return "cyclonedx"
    found = path.suffix.removeprefix(".")
    if found in ("html", "csv", "json"):
        return found  # type: ignore[return-value]
    raise InvalidParameter(
        f"{path.name} does not say what to write: name it .html, .csv, .json or .cdx.json, or give "
        f"--format"
    )


def _moment(text: str | None) -> datetime | Literal["last"]:
    """The begin of a report's time; without a zone it is in UTC.

    Raises:
        InvalidParameter: it is no time.
    """
    if text is None:
        return "last"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidParameter(
            f"--since {text}: write a day or a moment, 2026-11-01 or 2026-11-01T10:00+01:00"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _answer(
    client: Client, arguments: argparse.Namespace, report: Report, form: ReportForm | None
) -> Answer:
    """The first lines of a report, and the file that it was written to."""
    fields: dict[str, Any] = {
        "report": report.id,
        "since": None if report.since is None else report.since.isoformat(),
        "until": report.until.isoformat(),
        "size": fields_of(report.size),
        "opening": report.opening,
        "headlines": list(report.headlines),
    }
    lines = [report.opening, "", *report.headlines, "", f"report {report.id}"]
    if form is not None:
        content = client.reports.download(report.id, form)
        path = Path(arguments.output)
        write_whole(path, content)
        fields |= {"output": str(path), "format": form, "bytes": len(content)}
        lines.append(f"{path}: {quantity(len(content), 'byte')}")
    return Answer("\n".join(lines), fields)


def _policy(policy: ReportPolicy) -> Answer:
    last = None if policy.last_at is None else time_text(policy.last_at)
    said = {
        "every": quantity(round(policy.every_seconds / _DAY_S), "day")
        if policy.every_seconds >= _DAY_S
        else quantity(policy.every_seconds, "second"),
        "keep": count_text(policy.keep),
        "last": text_or_dash(last),
        "next": time_text(policy.next_at),
    }
    return Answer(pairs(said), fields_of(policy))
