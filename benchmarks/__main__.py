"""``python -m benchmarks [SUBJECT ...] [--quick] [--out FILE]``: measure, and write the pages.

``python -m benchmarks eris [NAME ...]`` measures averages in shards: all of it, or what is named.
``python -m benchmarks dfl2g [NAME ...]`` likewise measures where a newcomer starts, and
``python -m benchmarks federation [NAME ...]`` what a round of a federation decides.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Protocol, cast

from benchmarks import report, summary
from benchmarks.dfl2g import architectures as dfl2g_architectures
from benchmarks.dfl2g import arrivals as dfl2g_arrivals
from benchmarks.dfl2g import clusters as dfl2g_clusters
from benchmarks.dfl2g import inversion as dfl2g_inversion
from benchmarks.dfl2g import penalties as dfl2g_penalties
from benchmarks.dfl2g import privacy as dfl2g_privacy
from benchmarks.dfl2g import rules as dfl2g_rules
from benchmarks.dfl2g import starts as dfl2g_starts
from benchmarks.eris import (
    convergence,
    exactness,
    flower,
    membership,
    methods,
    published,
    ranks,
    tables,
)
from benchmarks.eris import data as eris_data
from benchmarks.eris import kernels as eris_kernels
from benchmarks.eris.assumptions import estimators, weights
from benchmarks.eris.inversions import methods as eris_images
from benchmarks.eris.inversions import shards as inversion
from benchmarks.eris.leakage import alike, sizes, unlike
from benchmarks.federation import adapters as federated_adapters
from benchmarks.federation import both, robust, stragglers
from benchmarks.federation import weights as node_weights
from benchmarks.finding import catalogue
from benchmarks.finding import gates as finding
from benchmarks.provenance import comparison as provenance
from benchmarks.report import Findings
from benchmarks.service import (
    audits,
    backfill,
    crowd,
    explorer,
    fingerprint_puts,
    folders,
    hooks,
    http,
    inbox,
    noop,
    objects,
    reports,
    startup,
    writes,
)
from benchmarks.subjects import (
    adapters,
    blinding,
    buckets,
    chance,
    clusterings,
    donors,
    fingerprints,
    gguf_files,
    judged_clusters,
    overlaps,
    quantised,
    retrieval,
    scale,
    scan,
    selection,
    signature,
    subspaces,
    ties,
    wire,
)
from studies.loaders.folder import DataError

FAMILIES = ("eris", "dfl2g", "federation")
"""Words that stand for all the subjects whose names begin so."""


class Subject(Protocol):
    """A module of this package that measures something."""

    LIBRARIES: tuple[str, ...]
    """The distributions whose versions its figures depend on."""

    def run(self, quick: bool) -> Findings:
        """Measure the figures; quick ones have tiny sizes and only show that it works."""


SUBJECTS: dict[str, Subject] = {
    name: cast(Subject, module)
    for name, module in {
        "signature": signature,
        "selection": selection,
        "gguf": gguf_files,
        "wire": wire,
        "retrieval": retrieval,
        "scale": scale,
        "scan": scan,
        "ties": ties,
        "overlaps": overlaps,
        "blinding": blinding,
        "chance": chance,
        "buckets": buckets,
        "clusterings": clusterings,
        "judged-clusters": judged_clusters,
        "reports": reports,
        "donors": donors,
        "adapters": adapters,
        "quantised": quantised,
        "fingerprints": fingerprints,
        "finding": finding,
        "catalogue": catalogue,
        "provenance": provenance,
        "subspaces": subspaces,
        "startup": startup,
        "noop": noop,
        "http": http,
        "writes": writes,
        "fingerprint-puts": fingerprint_puts,
        "folders": folders,
        "objects": objects,
        "crowd": crowd,
        "explorer": explorer,
        "inbox": inbox,
        "audits": audits,
        "hooks": hooks,
        "backfill": backfill,
        "eris-exactness": exactness,
        "eris-convergence": convergence,
        "eris-methods": methods,
        "eris-membership": membership,
        "eris-leakage": alike,
        "eris-leakage-unlike": unlike,
        "eris-leakage-sizes": sizes,
        "eris-inversion": inversion,
        "eris-images": eris_images,
        "eris-estimators": estimators,
        "eris-weights": weights,
        "eris-published": published,
        "eris-tables": tables,
        "eris-flower": flower,
        "eris-kernels": eris_kernels,
        "eris-ranks": ranks,
        "dfl2g-arrivals": dfl2g_arrivals,
        "dfl2g-clusters": dfl2g_clusters,
        "dfl2g-inversion": dfl2g_inversion,
        "dfl2g-privacy": dfl2g_privacy,
        "dfl2g-rules": dfl2g_rules,
        "dfl2g-penalties": dfl2g_penalties,
        "dfl2g-starts": dfl2g_starts,
        "dfl2g-architectures": dfl2g_architectures,
        "federation-robust": robust,
        "federation-weights": node_weights,
        "federation-adapters": federated_adapters,
        "federation-both": both,
        "federation-stragglers": stragglers,
    }.items()
}

_OF_FILES = ("eris-published",)
"""Subjects of data that come as files: left out without ``--data-dir``."""


def main(arguments: list[str] | None = None) -> int:
    """Measure the given subjects, print their sections, and write them into the pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "subject",
        nargs="*",
        help=f"any of {', '.join(SUBJECTS)}; all by default; {' or '.join(FAMILIES)} for all that "
        f"begin so, or for those whose names follow it",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes; the pages stay as they are"
    )
    parser.add_argument("--out", type=Path, help="also write the sections, alone, to this file")
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="a folder with files of MNIST, Fashion-MNIST, SVHN, CIFAR-10, CIFAR-100 or IMDB, for "
        "these families beside the digits",
    )
    options = parser.parse_args(arguments)
    if options.data_dir:
        os.environ[eris_data.FOLDER] = str(options.data_dir)
        try:
            _ = [*eris_data.given()]
        except DataError as error:
            parser.error(str(error))
    subjects = expanded(options.subject)
    if unknown := set(subjects) - set(SUBJECTS):
        parser.error(f"no subject {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    chosen = [each for each in subjects or SUBJECTS if options.data_dir or each not in _OF_FILES]
    if not chosen:
        parser.error(f"{', '.join(subjects)} needs data that come as files: name --data-dir")
    sections = {name: measured(name, options.quick) for name in chosen}
    if options.out:
        options.out.write_text("\n".join(f"## {name}\n\n{text}" for name, text in sections.items()))
    if not options.quick:
        summary.write(sections)
    return 0


def expanded(names: list[str]) -> list[str]:
    """The subjects that names stand for: a family alone for all of its own, else a prefix."""
    if not names or names[0] not in FAMILIES:
        return names
    family, *rest = names
    return [f"{family}-{name}" for name in rest] or [
        name for name in SUBJECTS if name.startswith(f"{family}-")
    ]


def measured(name: str, quick: bool) -> str:
    """The section of one subject, printed too."""
    begin = time.perf_counter()
    subject = SUBJECTS[name]
    section = report.markdown(subject.run(quick), report.machine(subject.LIBRARIES))
    print(f"## {name}, {time.perf_counter() - begin:.0f} s\n\n{section}", flush=True)
    return section


if __name__ == "__main__":
    sys.exit(main())
