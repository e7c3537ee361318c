"""Metrics of fingerprints: what is stored, what is to be made, and the index of this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.records import Feed

__all__ = ["FindingSizes", "of_fingerprints"]


class FindingSizes(Collector):
    """The size of the finding indexes of a process at the time of the scrape.

    Args:
        finding: these.
    """

    def __init__(self, finding: FindingIndex) -> None:
        self._finding = finding

    def collect(self) -> Iterator[GaugeMetricFamily]:
        sizes = self._finding.sizes().values()
        for what, text, value in (
            ("fingerprints", "Fingerprints in the index", sum(s.fingerprints for s in sizes)),
            ("segments", "Segments of the index of fingerprints", sum(s.segments for s in sizes)),
            ("bytes", "Bytes of the index of fingerprints", sum(s.nbytes for s in sizes)),
        ):
            yield GaugeMetricFamily(f"modelkin_finding_index_{what}", text, value)


def of_fingerprints(
    feeds: Mapping[int, Feed], due: int, finding: FindingIndex
) -> Iterator[GaugeMetricFamily]:
    """What all processes have stored, and how far this one's index is behind.

    Args:
        feeds: by tenant.
        due: the anatomies that are to be made.
    """
    stored = sum(feed.fingerprints for feed in feeds.values())
    nbytes = sum(feed.bytes for feed in feeds.values())
    sizes = finding.sizes().items()
    behind = sum(
        max(0, feeds[tenant_id].version - each.version)
        for tenant_id, each in sizes
        if tenant_id in feeds
    )
    for name, text, value in (
        ("fingerprints", "Stored fingerprints", stored),
        ("fingerprint_bytes", "Bytes of stored fingerprints", nbytes),
        ("anatomies_due", "Anatomies that are to be made, or made again", due),
        ("finding_index_changes_behind", "Changes that the next questions apply", behind),
    ):
        yield GaugeMetricFamily(f"modelkin_{name}", text, value)
