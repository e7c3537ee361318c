"""``python -m tests.soak.kin``: a hub of 163 checkpoints of two families, followed by a service.

The checkpoints are those of ``python -m studies lines``: two networks that were trained apart, what
was trained of one, and what hubs make of these. They are trained in five minutes where the studies
have not, and take 2.2 GB of disk while this runs. A third declare what they were made of, a third
declare nothing, and a third declare a stranger. One source with default settings follows the hub.
The service is killed twice meanwhile. What it then answers stands beside the page's figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch

from studies.cells import FOLDER
from studies.lines.hub import checkpoints
from studies.lines.networks.texts import LLAMA
from studies.lines.results import HUB, held
from studies.lines.trained import Trained
from studies.lines.zoo import CACHE, Zoo
from tests.soak.kin.answers import Figures, figures
from tests.soak.kin.following import followed
from tests.soak.kin.members import Member, members
from tests.support.hubs.stored_huggingface import StoredHub, stored_hub

_RECALL: Final = 0.96
_UNFIT: Final = 3
"""Checkpoints whose first parent may be of another family."""


def main() -> int:
    """Prints what the service answers; 1 if a gate is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zoo", type=Path, default=CACHE, help="the folder of trained weights")
    parser.add_argument("--keep", type=Path, help="a new folder where the service's data stay")
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
            seen = figures(http, known)
            print(f"asked in {time.monotonic() - began:.0f} s\n")
    print("\n".join(_said(seen)))
    missed = list(_missed(seen))
    print(f"\n{'missed: ' + '; '.join(missed) if missed else 'all gates are met'}")
    return int(bool(missed))


def _stored(hub: StoredHub, trained: Trained) -> list[Member]:
    known = list[Member]()
    for member, tensors in members(checkpoints(trained)):
        hub.push(member.name, tensors, member.card, member.created)
        known.append(member)
    return known


def _said(seen: Figures) -> Iterator[str]:
    cell = held([HUB], FOLDER).get(HUB, {})
    pairs, answers = cell.get("pairs", {}), cell.get("answers", {})
    beside = cell.get("P below 1e-13", {})
    for what, here, page in (
        ("checkpoints", seen.members, pairs.get("checkpoints")),
        ("with a fingerprint that the service read", seen.fingerprints, None),
        ("pairs of kin", seen.kin, pairs.get("kin")),
        ("pairs of strangers", seen.strangers, pairs.get("strangers")),
        ("recall of pairs of kin at 1e-13", round(seen.recall, 4), beside.get("recall")),
        ("false pairs", seen.false, beside.get("false")),
        ("pairs that no list of relatives had room for", seen.compared, None),
        ("first parent of the right family", seen.first, answers.get("first parent right")),
        ("false parents", seen.false_parents, answers.get("false parents")),
        ("kin among 100 relatives, of those there is room for", f"{seen.listed}/{seen.room}", None),
        ("strangers among relatives", seen.false_relatives, None),
        ("relations to what it was made of", seen.relations, None),
        ("said to be averages", seen.averages, None),
        ("verdicts on declared bases that are right", seen.lineages.get("right"), None),
        ("verdicts on declared strangers", seen.lineages.get("wrong"), None),
        ("likely bases where none is declared", seen.likely, None),
    ):
        yield f"{what:55}{here!s:45}{'' if page is None else f'page: {page}'}"
    yield from (f"wrong relation: {each}" for each in seen.wrong)


def _missed(seen: Figures) -> Iterator[str]:
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


if __name__ == "__main__":
    sys.exit(main())
