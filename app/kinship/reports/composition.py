"""``add_reports``: puts the services of reports together."""

from __future__ import annotations

from app.anatomy.families import FamilyService
from app.container import Container
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Database
from app.jobs.service import JobService
from app.kinship.lineage import LineageService
from app.kinship.lines.service import FingerprintLineageService
from app.kinship.reports.badges import BadgeService
from app.kinship.reports.collecting import EvidenceCollector
from app.kinship.reports.judging import BaseJudge
from app.kinship.reports.merges import MergeReader
from app.kinship.reports.policies import ReportPolicies
from app.kinship.reports.service import ReportService
from app.webhooks.outbox import Outbox

__all__ = ["add_reports"]


def add_reports(services: Container) -> None:
    """Make the services of reports of those that they need."""
    database, fingerprints = services[Database], services[FingerprintService]
    merges = MergeReader(database, fingerprints)
    judge = BaseJudge(database, services[FingerprintLineageService], services[LineageService])
    collector = EvidenceCollector(database, merges, judge)
    service = services.add(
        ReportService(database, services[JobService], collector, services[Outbox])
    )
    services.add(ReportPolicies(database, service))
    services.add(BadgeService(fingerprints, services[FamilyService]))
