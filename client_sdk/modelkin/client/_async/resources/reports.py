"""``client.reports``: what was found of all models beside what is declared, for others to read."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, overload

from modelkin.client._async.connection import AsyncConnection
from modelkin.client._async.listing import AsyncListing
from modelkin.client._async.resource import AsyncResource
from modelkin.client._async.resources.jobs import AsyncJobs
from modelkin.client._protocol import reports
from modelkin.client._protocol.jobs import OnProgress
from modelkin.client._protocol.reports import LATEST
from modelkin.client._transport.progress import following
from modelkin.types.jobs import JobInfo
from modelkin.types.reports import Report, ReportInfo, ReportPolicy
from modelkin.types.vocabulary import ReportForm

__all__ = ["AsyncReportPolicies", "AsyncReports"]


class AsyncReportPolicies(AsyncResource):
    """The rule by which the service makes reports without a request."""

    async def get(self) -> ReportPolicy:
        """Reads the policy.

        Raises:
            ApiError: ``report_not_found`` where none is set.
        """
        return await self._connection.run(reports.get_policy())

    async def set(
        self, *, every_seconds: int | None = None, keep: int | None = None
    ) -> ReportPolicy:
        """Has reports made, each about what came since the last one. The first is made at once.

        Args:
            every_seconds: seconds from one report to the next; by default 30 days.
            keep: how many reports are kept, 12 by default; the oldest are deleted.
        """
        return await self._connection.run(reports.set_policy(every_seconds, keep))

    async def delete(self) -> None:
        """Deletes the policy: reports are then made by request only.

        Raises:
            ApiError: ``report_not_found`` where none is set.
        """
        await self._connection.run(reports.delete_policy())


class AsyncReports(AsyncResource):
    """Reports, and the policy by which the service makes them.

    Args:
        connection: the client's connection.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        super().__init__(connection)
        self.policy = AsyncReportPolicies(connection)
        self._jobs = AsyncJobs(connection)

    @overload
    async def create(
        self,
        *,
        since: datetime | Literal["last"] | None = "last",
        wait: Literal[True] = True,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        progress: bool = False,
    ) -> Report: ...
    @overload
    async def create(
        self, *, since: datetime | Literal["last"] | None = "last", wait: Literal[False]
    ) -> JobInfo: ...
    async def create(
        self,
        *,
        since: datetime | Literal["last"] | None = "last",
        wait: bool = True,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        progress: bool = False,
    ) -> Report | JobInfo:
        """Makes a report of the models that are new, changed or measured again.

        Args:
            since: the begin of its time: a moment, ``"last"`` for the end of the last report's, or
                None for all models. Before the first report ``"last"`` means all models, too.
            wait: whether to return the report; else the job that makes it is returned at once.
            timeout: seconds to wait at most; None for no limit.
            on_progress: a function that is called with the job whenever its state or progress has
                changed.
            progress: whether to show the stages and a bar on a terminal.

        Raises:
            JobFailed: the report was not made; the message says why.
            TimeoutError: the job has not ended in time. It goes on.
        """
        job = await self._connection.run(reports.create(since))
        if not wait:
            return job
        with following(progress, "report", on_progress) as report:
            done = await self._jobs.wait(job, timeout=timeout, on_progress=report)
        return await self.get(done.id)

    def list(self) -> AsyncListing[ReportInfo]:
        """Lists the reports, the newest first, page by page as they are read."""
        return self._listing(reports.list_all(), ReportInfo)

    async def get(self, report: str | ReportInfo = LATEST) -> Report:
        """Reads a report with its tables.

        Args:
            report: the report, its id, or ``"latest"``.

        Raises:
            ApiError: ``report_not_found``.
        """
        return await self._connection.run(reports.get(report))

    async def download(self, report: str | ReportInfo = LATEST, form: ReportForm = "html") -> bytes:
        """Reads a report in a form for others: a page, a table, JSON or a bill of materials.

        Args:
            report: the report, its id, or ``"latest"``.
            form: ``"html"``, ``"csv"``, ``"json"`` or ``"cyclonedx"``.

        Raises:
            ApiError: ``report_not_found``; ``not_acceptable`` for ``"cyclonedx"`` where the service
                lacks its library.
        """
        return await self._connection.run(reports.download(report, form))

    async def delete(self, report: str | ReportInfo) -> None:
        """Deletes a report.

        Args:
            report: the report, or its id.

        Raises:
            ApiError: ``report_not_found``.
        """
        await self._connection.run(reports.delete(report))

    async def badge(self, model: str) -> bytes:
        """Reads the badge of a model: what it is by its weights, and since when, as an SVG.

        Args:
            model: the model's name.

        Raises:
            ApiError: ``fingerprint_not_found``.
        """
        return await self._connection.run(reports.badge(model))
