"""The command ``jobs``: list, show, await and cancel the jobs of the service."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import Final, Self

from modelkin._progress_bar import ProgressLine, is_terminal
from modelkin.cli.options import add_limit, add_service, first_rows
from modelkin.cli.output import Answer, fields_of, pairs, table
from modelkin.cli.texts import state_text, text_or_dash, time_text
from modelkin.client import Client
from modelkin.types.jobs import JobInfo

__all__ = [
    "JobLine",
    "cancel",
    "cancel_options",
    "list_all",
    "list_all_options",
    "show",
    "show_options",
    "wait",
    "wait_options",
]


_COLUMNS: Final = (
    *("JOB", "KIND", "SPACE", "MODEL", "STATE", "CREATED", "TOOK", "PROGRESS OR ERROR"),
)
_FAILED, _ASKED, _UPKEEP = range(3)
_UPKEEP_KINDS: Final = frozenset(
    {
        "anatomies",
        "deliveries",
        "events",
        "findings",
        "fingerprint_backfills",
        "merge_deadline",
        "prune_deliveries",
        "source_polls",
        "tensor_counts",
    }
)
"""Jobs that follow every change by themselves: many, short, and seldom what is looked for."""


def list_all_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs list``."""
    add_service(parser, space="only those of this index space", required=False)
    parser.add_argument(
        "--state", choices=("queued", "running", "succeeded", "failed", "cancelled")
    )
    parser.add_argument("--kind", metavar="KIND", help="only jobs of this kind, clustering for one")
    add_limit(parser)


def show_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs show``."""
    _add_job(parser)


def wait_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs wait``."""
    _add_job(parser)
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="how long to wait; by default without end"
    )


def cancel_options(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs cancel``."""
    _add_job(parser)


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="the job's id, as `jobs` shows it")
    add_service(parser, space=None)


def list_all(arguments: argparse.Namespace) -> Answer:
    """``modelkin jobs``: those that failed, the others, and those that keep answers up to date."""
    with Client(arguments.url, arguments.api_key) as client:
        listed = client.jobs.list(state=arguments.state, kind=arguments.kind, space=arguments.space)
        # Programs get them as the service lists them.
        in_order = listed if arguments.json else sorted(listed, key=_rank)
        found, more = first_rows(in_order, arguments)
    apart = [job for job in found if _rank(job) == _UPKEEP and arguments.kind is None]
    asked = [job for job in found if job not in apart]
    tables = [table(_COLUMNS, map(_row, asked))] if asked else []
    if apart:
        tables.append(
            f"by which the service keeps itself up to date:\n{table(_COLUMNS, map(_row, apart))}"
        )
    text = "\n\n".join(tables) + more if found else "no jobs"
    return Answer(text, {"items": [fields_of(job) for job in found]})


def show(arguments: argparse.Namespace) -> Answer:
    """``modelkin jobs show``: a job with its parameters, its result and its error."""
    with Client(arguments.url, arguments.api_key) as client:
        return _answer(client.jobs.get(arguments.job))


def wait(arguments: argparse.Namespace) -> Answer:
    """``modelkin jobs wait``: a job once it has succeeded; its failure is an error."""
    with Client(arguments.url, arguments.api_key) as client, JobLine("job") as line:
        return _answer(client.jobs.wait(arguments.job, timeout=arguments.timeout, on_progress=line))


def cancel(arguments: argparse.Namespace) -> Answer:
    """``modelkin jobs cancel``: request the end of a job."""
    with Client(arguments.url, arguments.api_key) as client:
        return _answer(client.jobs.cancel(arguments.job))


class JobLine:
    """The progress of a job, shown only on a terminal, in a ``with`` block.

    Args:
        label: the words before the progress.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._line = ProgressLine() if is_terminal() else None

    def __call__(self, job: JobInfo) -> None:
        """Draw the progress that the job has reported."""
        if self._line is not None:
            done = job.progress
            share = done.done / done.total if done is not None and done.total else None
            stage = job.state if done is None else done.stage
            self._line.draw(f"{self._label}, {stage}", share)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the line for the answer."""
        if self._line is not None:
            self._line.wipe()


def _answer(job: JobInfo) -> Answer:
    state = "cancelling" if job.cancelling else job.state
    summary = {
        "job": job.id,
        "kind": job.kind,
        "space": text_or_dash(job.space),
        "state": state_text(state),
        "attempts": str(job.attempts),
        "created": time_text(job.created_at),
        "took": _duration(job),
        "progress or error": _remark(job),
    }
    for name, value in (("parameters", job.parameters), ("result", job.result)):
        if value:
            summary[name] = json.dumps(value, ensure_ascii=False)
    return Answer(pairs(summary), fields_of(job))


def _rank(job: JobInfo) -> int:
    """Its place in a list, whose order within a rank is the service's: the newest first."""
    if job.state == "failed":
        return _FAILED
    return _UPKEEP if job.kind in _UPKEEP_KINDS else _ASKED


def _row(job: JobInfo) -> tuple[str, ...]:
    return (
        job.id,
        job.kind,
        text_or_dash(job.space),
        _model_cell(job),
        state_text("cancelling" if job.cancelling else job.state),
        time_text(job.created_at),
        _duration(job),
        _remark(job),
    )


def _model_cell(job: JobInfo) -> str:
    """The model that a job is about, for instance a sync."""
    model = job.parameters.get("model")
    return text_or_dash(model if isinstance(model, str) else None)


def _duration(job: JobInfo) -> str:
    """The seconds from the first start to the end, or to now."""
    if job.started_at is None:
        return text_or_dash(None)
    end = job.finished_at or datetime.now(UTC)
    return f"{max(0.0, (end - job.started_at).total_seconds()):,.1f}s"


def _remark(job: JobInfo) -> str:
    """The error of a job, or its progress while it runs."""
    if job.error is not None:
        return f"{job.error.get('code', '')}: {job.error.get('detail', '')}"
    done = job.progress
    if job.finished or done is None:
        return text_or_dash(None)
    return f"{done.stage}, {done.done / done.total:.0%}" if done.total else done.stage
