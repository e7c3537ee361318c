"""The jobs of clusterings."""

from __future__ import annotations

from app.jobs.service import JobService
from app.kinship.clustering import policies as clustering_policies
from app.kinship.clustering.policies import PolicyService
from app.kinship.clustering.service import JOB_KIND, ClusteringService

__all__ = ["register_jobs"]


def register_jobs(
    jobs: JobService, clusterings: ClusteringService, policies: PolicyService
) -> None:
    """Register clustering itself, and the policies by which it is renewed."""
    jobs.register(JOB_KIND, clusterings.execute)
    jobs.run_every(clustering_policies.CHECK_INTERVAL, clustering_policies.NAME, policies.renew)
