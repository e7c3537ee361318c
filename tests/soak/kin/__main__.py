"""``python -m tests.soak.kin``: a hub of 163 checkpoints of two families, followed by a service.

The checkpoints are those of ``python -m studies lines``: two networks that were trained apart, what
was trained of one, and what hubs make of these. They are trained in five minutes where the studies
have not, and take 2.2 GB of disk while this runs. A third declare what they were made of, a third
declare nothing, and a third declare a stranger. One source with default settings follows the hub.
The service is killed twice meanwhile. What it then answers, and what a report of it says, stands
beside the truth and the page's figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from studies.cells import FOLDER
from studies.lines.hub import checkpoints
from studies.lines.networks.texts import LLAMA
from studies.lines.results import FOLLOWED, HUB, held, keep
from studies.lines.trained import Trained
from studies.lines.zoo import CACHE, Zoo
from tests.soak.kin.answers import Figures, figures
from tests.soak.kin.following import followed
from tests.soak.kin.members import Member, members
from tests.soak.kin.reported import Finding, reported
from tests.support.hubs.stored_huggingface import StoredHub, stored_hub

_RECALL: Final = 0.96
_UNFIT: Final = 3
"""Checkpoints whose first parent may be of another family."""


def main() -> int:
    """Prints what the service answers; 1 if a gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zoo", type=Path, default=CACHE, help="the folder of trained weights")
    parser.add_argument("--keep", type=Path, help="a new folder where the service's data stay")
    parser.add_argument("--write", action="store_true", help="keep the figures for the evidence")
    options = parser.parse_args()
    zoo = Zoo(options.zoo)
    torch.set_num_threads(1)  # so sums have one order, and weights are the same again
    with tempfile.TemporaryDirectory(prefix="modelkin-kin-") as name:
        folder, began = Path(name), time.monotonic()
        (folder / "hub").mkdir()
        service = options.keep or folder / "service"
        known = _stored(StoredHub(folder / "hub"), Trained(LLAMA, zoo))
        print(f"{len(known)} checkpoints, made in {time.monotonic() - began:.0f} s", flush=True)
        began, kills = time.monotonic(), [len(known) // 3, 2 * len(known) // 3]
        with (
            stored_hub(folder / "hub") as hub,
            followed(service, hub.url, len(known), kills=kills) as http,
        ):
            print(
                f"followed in {time.monotonic() - began:.0f} s, killed at {kills} fingerprints: "
                f"{sum(hub.sent.values()):.0f} readings of {len(hub.sent)} files, with those of "
                "bases for differences",
                flush=True,
            )
            began = time.monotonic()
            seen, report = figures(http, known), list(reported(http, known))
            print(f"asked in {time.monotonic() - began:.0f} s\n")
    counts = dict(_counted(seen))
    print("\n".join((*_said(counts, report), *_unsaid(seen))))
    if options.write:
        keep(FOLLOWED, _whole(counts, report))
    missed = list(_missed(seen, report))
    print(f"\n{'missed: ' + '; '.join(missed) if missed else 'all gates are met'}")
    return int(bool(missed))


def _stored(hub: StoredHub, trained: Trained) -> list[Member]:
    known = list[Member]()
    for member, tensors in members(checkpoints(trained)):
        hub.push(member.name, tensors, member.card, member.created)
        known.append(member)
    return known


def _counted(seen: Figures) -> Iterator[tuple[str, float]]:
    yield "checkpoints", seen.members
    yield "fingerprints read from the hub", seen.fingerprints
    yield "kin", seen.kin
    yield "strangers", seen.strangers
    yield "recall at 1e-13", seen.recall
    yield "false pairs", seen.false
    yield "first parent right", seen.first
    yield "false parents", seen.false_parents
    yield "kin among 100 relatives", seen.listed
    yield "of those that there is room for", seen.room
    yield "strangers among relatives", seen.false_relatives
    yield "relations to the base: a word for what was done", seen.relations["exact"]
    yield "less than could be said", seen.relations["vague"]
    yield "what is not so", seen.relations["wrong"]
    yield "merges called an average", seen.averages["merges"]
    yield "others called one", seen.averages["others"]
    for title, kind in (("true", "right"), ("false", "wrong")):
        for verdict, count in sorted(seen.lineages.get(kind, {}).items()):
            yield f"{title} declarations: {verdict}", count
    for title, kind in (("kin", "kin"), ("none", "none"), ("a stranger", "strangers")):
        yield f"likely base where none is declared: {title}", seen.likely[kind]


def _said(counts: Mapping[str, float], report: Sequence[Finding]) -> Iterator[str]:
    cell = held([HUB], FOLDER).get(HUB, {})
    page = cell.get("pairs", {}) | cell.get("answers", {})
    page |= {f"{what} at 1e-13": value for what, value in cell.get("P below 1e-13", {}).items()}
    for what, value in counts.items():
        beside = f"page: {page[what]:.5g}" if what in page else ""
        yield f"{what:55}{value:<12.5g}{beside}".rstrip()
    yield from (f"{f'report, {each.what}':55}{each}" for each in report)


def _unsaid(seen: Figures) -> Iterator[str]:
    yield from (f"less than could be said: {each}" for each in seen.vague)
    yield from (f"not so: {each}" for each in seen.wrong)


def _whole(counts: Mapping[str, float], report: Sequence[Finding]) -> dict[str, dict[str, float]]:
    """The figures as a cell of the studies."""
    tables = {
        each.what: {"found": each.found, "of": each.expected, "false": float(len(each.false))}
        for each in report
    }
    return {"answers": dict(counts), **tables}


def _missed(seen: Figures, report: Sequence[Finding]) -> Iterator[str]:
    if seen.fingerprints < seen.members:
        yield f"{seen.members - seen.fingerprints} models have no fingerprint"
    if seen.recall < _RECALL:
        yield f"recall {seen.recall:.3f} is below {_RECALL}"
    if seen.false or seen.false_parents or seen.false_relatives:
        yield "strangers are called kin"
    if seen.first < seen.asked - _UNFIT:
        yield f"the first parent of {seen.asked - seen.first} is of another family"
    if seen.relations["wrong"] or seen.averages["others"]:
        yield f"{seen.relations['wrong']} relations, {seen.averages['others']} averages are wrong"
    if seen.lineages.get("right", {}).get("mismatch"):
        yield "declared bases that are right are contradicted"
    if seen.lineages.get("wrong", {}).get("consistent"):
        yield "declared strangers are confirmed"
    if seen.likely["strangers"]:
        yield "likely bases are strangers"
    yield from (f"report, {each.what}: {'; '.join(each.false)}" for each in report if each.false)


if __name__ == "__main__":
    sys.exit(main())
