"""``add_findings``: puts the services of findings together."""

from __future__ import annotations

from app.anatomy.keeping import AnatomyKeeper
from app.container import Container
from app.infra.db.database import Database
from app.jobs.service import JobService
from app.kinship.findings.keeping import FindingKeeper
from app.kinship.findings.making import FindingMaker
from app.kinship.findings.service import FindingService
from app.kinship.lineage import LineageService

__all__ = ["add_findings"]


def add_findings(services: Container) -> None:
    """Make the services of findings, and have them learn of lines that change."""
    maker = FindingMaker(services[LineageService])
    keeper = services.add(FindingKeeper(services[Database], services[JobService], maker))
    services[AnatomyKeeper].follow(keeper.lines_changed)
    services.add(FindingService(keeper))
