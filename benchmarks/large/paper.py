"""``python -m benchmarks.large.paper``: what a hundred million models take, by sums alone.

Each assumption is an option, so put in your own; the bytes of a model are those that
``benchmarks.large.sizes`` measures. Prices are those that Amazon publishes for S3 Standard.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from app.settings import Settings
from benchmarks.report import table_lines
from modelkin.core.packed import packed_bytes

__all__ = ["Assumptions", "main", "money", "stores"]

_SECONDS_A_MONTH = 30 * 86_400
_PACK = 4_096
"""Sketches in an object of their own."""
_KEPT = int(Settings.model_fields["keep_revisions"].default) + 1
"""Supports that are kept of a model at most: the newest, and that of its first revision."""


def _assumed(default: float, description: str) -> float:
    assumed: float = field(default=default, metadata={"help": description})
    return assumed


@dataclass(frozen=True, slots=True)
class Assumptions:
    """All that the sums begin with."""

    models: float = _assumed(1e8, "models, each with a support")
    revisions: float = _assumed(2, "revisions of a model, the first one included")
    parameters: float = _assumed(11e6, "parameters of a model")
    share: float = _assumed(0.0952, "of them in a support")
    processes: float = _assumed(100, "processes, each space on one of them")
    machines: float = _assumed(10, "machines that these are on")
    nodes: float = _assumed(24, "nodes of the Redis Cluster")
    row_bytes: float = _assumed(698, "of a model's row and its indexes in Postgres")
    signature_bytes: float = _assumed(1_193, "of a signature's row in Postgres")
    tensor_bytes: float = _assumed(487, "of a model's counts of 100 tensors in Postgres")
    changed_bytes: float = _assumed(1_978, "of a model's first two revisions in Postgres")
    revision_bytes: float = _assumed(398, "of each further revision in Postgres")
    bucket_bytes: float = _assumed(11_076, "of a model's buckets in Redis")
    index_bytes: float = _assumed(347, "of a model in the index of a process")
    sketch_bytes: float = _assumed(8_192, "of a model's sketch on a machine's disk")
    changes: float = _assumed(1e6, "new and changed supports a day")
    queries: float = _assumed(100, "queries a second")
    cold: float = _assumed(2, "candidates of a query that its machine has to fetch")
    renewals: float = _assumed(1, "machines a month that begin with an empty disk")
    price_gb: float = _assumed(0.023, "dollars a GB and month, stored")
    price_put: float = _assumed(0.005, "dollars for a thousand PUT or LIST")
    price_get: float = _assumed(0.0004, "dollars for a thousand GET")

    @property
    def object_bytes(self) -> int:
        """The bytes of a support in the store, as the service packs it."""
        m = round(self.parameters)
        return packed_bytes(m, round(m * self.share))

    @property
    def objects(self) -> float:
        """Supports in the store: of a model the present one, and those before that are kept."""
        return self.models * min(self.revisions, _KEPT)

    @property
    def postgres(self) -> dict[str, float]:
        """Bytes of a model in each table; one that never changed has no revisions there."""
        changes = self.revisions - 1
        revisions = min(changes, 1) * self.changed_bytes + max(changes - 1, 0) * self.revision_bytes
        return {
            "models": self.row_bytes,
            "signatures": self.signature_bytes,
            "tensor_counts": self.tensor_bytes,
            "revisions": revisions,
        }


def stores(given: Assumptions) -> list[list[str]]:
    """The bytes in each store: of a model, of all, and where that is divided."""
    places = [
        *((f"Postgres, `{table}`", each, 1.0, "") for table, each in given.postgres.items()),
        ("Postgres, together", sum(given.postgres.values()), 1.0, ""),
        ("Redis Cluster", given.bucket_bytes, given.nodes, "node"),
        ("indexes in memory", given.index_bytes, given.processes, "process"),
        ("sketches on disk", given.sketch_bytes, 1.0, "machine, each has all"),
        ("objects", given.object_bytes * given.objects / given.models, 1.0, ""),
    ]
    return [
        [
            what,
            f"{each:,.0f}",
            _size(each * given.models),
            f"{_size(each * given.models / parts)} a {part}" if part else "",
        ]
        for what, each, parts, part in places
    ]


def money(given: Assumptions) -> list[list[str]]:
    """The price of the object store in a month."""
    stored = given.objects * given.object_bytes / 1e9
    puts = given.changes * 30 * (1 + 1 / _PACK)
    fetched = given.queries * given.cold * _SECONDS_A_MONTH
    swept = 4 * 30 * given.objects / 1_000
    heads = given.changes * 30 * (given.machines - 1)
    packs = given.renewals * given.models / _PACK
    priced = [
        ("stored, GB", stored, given.price_gb),
        ("PUT: new and changed supports", puts, given.price_put / 1e3),
        ("LIST: four sweeps a day, a thousand keys each", swept, given.price_put / 1e3),
        ("GET: candidates that were not cached", fetched, given.price_get / 1e3),
        ("GET: sketches of changes, by the other machines", heads, given.price_get / 1e3),
        ("GET: packs of sketches, by a new machine", packs, given.price_get / 1e3),
    ]
    rows = [[what, f"{many:,.0f}", f"${many * price:,.0f}"] for what, many, price in priced]
    total = sum(many * price for _, many, price in priced)
    first = given.objects * given.price_put / 1e3
    return [
        *rows,
        ["**a month**", "", f"**${total:,.0f}**"],
        ["PUT: all supports, once", f"{given.objects:,.0f}", f"${first:,.0f}"],
    ]


def _size(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e6:,.1f} MB"


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(line for cells in lines for line in table_lines(cells)) + "\n"


def report(given: Assumptions) -> str:
    """Both tables."""
    many = f"{given.models:,.0f} models"
    return "\n".join(
        [
            _table(["what", "bytes a model", many, "divided"], stores(given)),
            _table(["object store, a month", "how many", "dollars"], money(given)),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables for the assumptions that are given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large.paper", description=__doc__)
    for each in fields(Assumptions):
        name = f"--{each.name.replace('_', '-')}"
        said = f"{each.metadata['help']} (default: {each.default:g})"
        parser.add_argument(name, type=float, default=each.default, help=said)
    print(report(Assumptions(**vars(parser.parse_args(arguments)))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
