"""``python -m tests.soak.fingerprints.flood``: 100,000 invented fingerprints of a popular base.

Forgers who may write to a tenant copy the base's keys, half of them, or a part that shall look
common; they declare the base, and an earlier date. Beside that another tenant asks for its model.
Then the tenant's own models are asked about, in turn with the same hub without the flood.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tests.soak.bystander import CROWD, Quiet
from tests.soak.fingerprints.flood.answers import Seen, ask
from tests.soak.fingerprints.flood.members import BASE, members, newcomers
from tests.soak.fingerprints.flood.service import Flooded, services

_BEYOND: Final = 500
"""Forgeries that the quota has no room for."""
_MAX_P99_S, _MAX_RATIO, _MAX_MEMORY = 0.25, 2.0, 500 << 20
"""The bounds on another tenant's 99th percentile, on answers about bystanders, on more memory."""


def main() -> int:
    """Flood and ask; the exit code is 1 where a bound is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="of forged fingerprints")
    parser.add_argument("--rounds", type=int, default=5, help="how often all models are asked")
    options = parser.parse_args()
    known, sent = members(), newcomers()
    with (
        tempfile.TemporaryDirectory(prefix="modelkin-flood-") as folder,
        services(Path(folder), known, len(known) + options.count) as (quiet, flooded),
    ):
        flooded.restart(worker=False)
        missed = list(_flood(flooded, options.count))
        for worker in (False, True):
            if worker:
                flooded.restart(worker=True)
            took, statuses = flooded.first_answer(f"/v1/fingerprints/{quote(BASE)}/anatomy")
            beside = "while its anatomies are made" if worker else "before its anatomies are made"
            _say(f"\n{beside}: first answer in {took:.1f} s, {dict(statuses)}")
            with quiet.client(CROWD) as calm, flooded.client(CROWD) as busy:
                due, began = flooded.due(), time.monotonic()
                seen = ask(calm, busy, known, sent, options.rounds)
                made, seconds = due - flooded.due(), time.monotonic() - began
            _say(f"{made:,} of {due:,} anatomies made in {seconds:.0f} s")
            _say(f"memory {flooded.server.memory >> 20}, without {quiet.server.memory >> 20} MB")
            missed += _report(seen)
    _say(f"\n{'missed: ' + '; '.join(missed) if missed else 'all bounds are met'}")
    return int(bool(missed))


def _flood(load: Flooded, count: int) -> Iterator[str]:
    """Put forgeries beside another tenant; what is missed."""
    bystander, base = Quiet(load), load.server.memory
    alone = bystander.alone(10)
    watch, answered, took = bystander.during(lambda: load.forge(0, count))
    p99 = watch.percentile(0.99)
    _say(
        f"{answered[201]:,} stored in {took:.0f} s, {load.seconds:.0f} of them in requests: "
        f"{answered[201] / load.seconds:.0f} a second; memory {base >> 20} MB, then at most "
        f"{watch.memory >> 20}"
    )
    _say(
        f"another tenant: {len(watch.seconds)} requests, refused {dict(watch.refused)}, p50 "
        f"{1e3 * watch.percentile(0.5):.1f}, p99 {1e3 * p99:.1f}, worst "
        f"{1e3 * watch.percentile(1.0):.0f} ms; alone p50 {1e3 * alone.percentile(0.5):.1f}, p99 "
        f"{1e3 * alone.percentile(0.99):.1f} ms"
    )
    began = time.monotonic()
    beyond = load.forge(count, count + _BEYOND)
    _say(f"beyond the quota: {dict(beyond)} in {time.monotonic() - began:.1f} s")
    if watch.refused or p99 > _MAX_P99_S:
        yield "another tenant waits"
    if watch.memory - base > _MAX_MEMORY:
        yield "memory grows"
    if answered[201] != count or beyond[507] != _BEYOND:
        yield "the quota does not hold"


def _report(seen: Seen) -> Iterator[str]:
    """Print what was answered; what is missed."""
    for whose, asked in seen.asked.items():
        quiet, flooded = seen.medians(whose)
        _say(
            f"{whose}: {asked} questions, median {quiet:.1f} ms without the flood, {flooded:.1f} "
            f"with it: {seen.ratio(whose):.2f} times"
        )
    _say(
        f"{seen.truncated} answers about the base's family say truncated; of {seen.listed} "
        f"relatives {seen.kept} are listed still, beside {seen.forged} forged ones"
    )
    if seen.refused:
        _say(f"{seen.refused} questions were a 503, and were asked again")
    for each in seen.wrong:
        _say(f"wrong: {each}")
    if seen.wrong:
        yield f"{len(seen.wrong)} answers are wrong"
    if seen.ratio("bystanders") > _MAX_RATIO:
        yield "answers about bystanders take longer"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
