"""Checkpoints as a hub has them: bases, what people make of them, and strangers, of random weights.

Their fingerprints tell which model each tensor comes from, whatever its name and its layout.
"""

from __future__ import annotations

from app.kinship.samples.checkpoints import checkpoints, fingerprint_of
from demo.report import Report
from modelkin import Client

__all__ = ["show_origins"]


def show_origins(client: Client, report: Report) -> None:
    """Store fingerprints of a family, and show what the service finds of each."""
    report.section("Origins: which model each tensor of a checkpoint comes from")
    names = list[str]()
    for each in checkpoints("hub"):
        client.fingerprints.put(
            each.name,
            fingerprint_of(each.weights),
            base_models=each.bases,
            published_at=each.published_at,
        )
        names.append(each.name)
    report.table(
        "From samples of their lines alone, in any layout:",
        ("model", "what the service finds"),
        [(name, client.anatomy(name).sentences[0]) for name in names],
    )
