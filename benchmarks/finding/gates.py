"""Measure the finding index of fingerprints: time, memory, and who is found, on a made hub.

``python -m benchmarks.finding [--models 2500000] [--folder FOLDER]`` measures another size, and
keeps the index in a folder for the next time. A hub of 2.5e6 takes 16 GB, twice as much while it
is merged, and half an hour.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.records import Found
from app.infra.deadlines import NEVER
from benchmarks.finding.hub import KEYS, MadeHub
from benchmarks.harness import Spread, extra_memory
from benchmarks.report import Findings, Row, Table, at_most
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.app.fingerprints.finding.made_hub import Hub, fingerprint, keys

__all__ = ["LIBRARIES", "measure", "run"]

LIBRARIES = ("numpy",)
MODELS, QUICK_MODELS = 100_000, 2_000
_TENANT = 1
_PARTS = (0.25, 0.10, 0.05, 0.03, 0.02)
"""Parts of a child's lines that a second parent gave."""
_BYTES_A_MODEL = 8_000
"""At most: 20 GB of a hub of 2,500,000."""
_MEMORY = 500_000_000
"""Bytes at most, while an index that was just opened is asked."""
_POPULAR = 1.2
"""How many times longer children of the largest family may take than any model."""
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """The times of some questions, in milliseconds, and what was found.

    Attributes:
        wall: as they passed.
        cpu: of the thread that asked.
    """

    wall: Sequence[float]
    cpu: Sequence[float]
    found: Sequence[Found]

    def text(self) -> str:
        """Median and the slowest tenth."""
        return " ".join(
            f"{np.median(times):.1f} ({np.quantile(times, 0.9):.1f}) ms{of}"
            for times, of in ((self.wall, ","), (self.cpu, " of the processor"))
        )


def run(quick: bool) -> Findings:
    """Measure a hub of the usual size."""
    with TemporaryDirectory(prefix="modelkin-finding-") as folder:
        return measure(
            QUICK_MODELS if quick else MODELS, Path(folder), questions=10 if quick else 60
        )


def measure(models: int, folder: Path, *, questions: int, largest: int | None = None) -> Findings:
    """Build the index of a hub if the folder has none, and ask it.

    Args:
        questions: how many of each kind are asked.
        largest: the members of the largest family; by default a base and 10,000 children, or a
            fifth of a small hub.
    """
    hub = MadeHub(models, largest or min(10_001, models // 5))
    draw = np.random.default_rng(1)
    with closing(FindingIndex(folder)) as index:
        asked, began = hub.fingerprint(1), time.perf_counter()

        def build() -> None:
            _ask(index, hub, asked, [])
            index.wait()

        building = extra_memory(build)
        built = time.perf_counter() - began
    with closing(FindingIndex(folder)) as index:
        timed = list[tuple[str, Asked, Asked]]()
        asking = extra_memory(lambda: timed.extend(_timed(index, hub, draw, questions)))
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        facts = Table(
            "The index",
            ["models", "built in", "bytes on the disk", "a model", "memory, building", "asked"],
            [
                [
                    f"{models:,}",
                    f"{built:,.0f} s",
                    f"{size:,}",
                    f"{size / models:,.0f}",
                    _megabytes(building),
                    _megabytes(asking),
                ]
            ],
        )
        rows = [
            _time_row(index, hub, draw, questions),
            _popular_row(index, hub, draw, questions),
            _bytes_row(models, size),
            _memory_row(models, asking),
            *_kin_rows(index, hub, draw, questions),
            _second_parent_row(index, hub, draw, max(3, questions // 3)),
            _common_row(draw, max(9, questions // 4)),
        ]
    table = Table(
        "Questions, median and slowest tenth",
        ["of", "first time", "again"],
        [[name, first.text(), again.text()] for name, first, again in timed],
    )
    return Findings(rows, [facts, table])


def _timed(
    index: FindingIndex, hub: MadeHub, draw: np.random.Generator, questions: int
) -> Iterable[tuple[str, Asked, Asked]]:
    kinds = {
        "any model": draw.integers(1, hub.models + 1, questions),
        f"children of the largest family, {hub.largest:,}": draw.permutation(hub.members(0)[1:]),
        "models without kin": draw.permutation(np.flatnonzero(hub.family[1:] < 0) + 1),
    }
    for name, ids in kinds.items():
        some = ids[:questions].tolist()
        yield name, _asked(index, hub, some), _asked(index, hub, some)


def _time_row(index: FindingIndex, hub: MadeHub, draw: np.random.Generator, questions: int) -> Row:
    ids = draw.permutation(hub.members(0)[1:])[:questions].tolist()
    _asked(index, hub, ids)
    asked = _asked(index, hub, ids)
    limit = 20 if hub.models <= 200_000 else 100
    median = float(np.median(asked.wall))
    truncated = all(each.truncated for each in asked.found)
    return Row(
        f"{KEYS} keys against {hub.models:,}, children of one base of {hub.largest:,}: median, "
        f"slowest tenth; all say truncated: {'yes' if truncated else 'no'}",
        asked.text(),
        "",
        "",
        f"≤ {limit} ms",
        median <= limit and (truncated or hub.largest < 1_000),
    )


def _popular_row(
    index: FindingIndex, hub: MadeHub, draw: np.random.Generator, questions: int
) -> Row:
    """Children of a popular base beside any model, in turns, so that both have one machine."""
    children = draw.permutation(hub.members(0)[1:])[:questions].tolist()
    others = draw.integers(1, hub.models + 1, questions).tolist()
    popular, ordinary = list[float](), list[float]()
    for _ in range(_ROUNDS):
        popular.append(float(np.median(_asked(index, hub, children).cpu)))
        ordinary.append(float(np.median(_asked(index, hub, others).cpu)))
    ratio = Spread.of([one / other for one, other in zip(popular, ordinary, strict=True)])
    return at_most(
        f"children of one base of {hub.largest:,} beside any model, of the processor, "
        f"medians of {_ROUNDS} rounds",
        f"{np.median(popular):.1f} ms",
        f"any model: {np.median(ordinary):.1f} ms",
        ratio,
        _POPULAR,
    )


def _bytes_row(models: int, size: int) -> Row:
    each = size / models
    target = f"≤ {_BYTES_A_MODEL:,}"
    return Row(
        "bytes on the disk, of each model", f"{each:,.0f}", "", "", target, each <= _BYTES_A_MODEL
    )


def _memory_row(models: int, asking: int | None) -> Row:
    return Row(
        f"memory that the process grows by, while an index of {models:,} is opened and asked",
        _megabytes(asking),
        "",
        "",
        f"≤ {_MEMORY // 10**6} MB",
        None if asking is None else asking <= _MEMORY,
    )


def _kin_rows(
    index: FindingIndex, hub: MadeHub, draw: np.random.Generator, questions: int
) -> Iterable[Row]:
    """Recall of pairs in families that an answer holds whole, and false ones among strangers."""
    sizes = hub.family_sizes
    small = np.flatnonzero(sizes <= 20)
    pairs = found = false = strangers = 0
    for family in draw.permutation(small)[: 4 * questions].tolist():
        members = hub.members(int(family)).tolist()
        for model in members:
            named = {
                each.id for each in _ask(index, hub, hub.fingerprint(model), [model]).candidates
            }
            pairs += len(members) - 1
            found += len(named & set(members))
            false += len(named - set(members))
            strangers += hub.models - len(members)
    alone = draw.permutation(np.flatnonzero(hub.family[1:] < 0) + 1)[:questions].tolist()
    for model in alone:
        false += len(_ask(index, hub, hub.fingerprint(model), [model]).candidates)
        strangers += hub.models - 1
    recall = found / pairs
    yield Row(
        f"pairs of kin found at 10^-13, of {pairs:,}",
        f"{recall:.4f}",
        "",
        "",
        "≥ .96",
        recall >= 0.96,
    )
    yield Row(f"false among {strangers:,} pairs of strangers", str(false), "", "", "0", false == 0)


def _second_parent_row(
    index: FindingIndex, hub: MadeHub, draw: np.random.Generator, trials: int
) -> Row:
    """A child of the largest family's base, and of a stranger of the same scale."""
    base = int(hub.base[0])
    alone = (np.flatnonzero(hub.family[1:] < 0) + 1).tolist()
    alike = [model for model in alone if hub.scale(model) == hub.scale(base)]
    named = dict.fromkeys(_PARTS, 0)
    for part in named:
        for _ in range(trials):
            second = int(draw.choice(alike))
            ours = draw.permutation(hub.keys(base))[: round(0.6 * KEYS)]
            theirs = draw.permutation(hub.keys(second))[: round(part * KEYS)]
            own = keys(draw, KEYS - ours.size - theirs.size, 1 << hub.scale(base))
            child = hub.of(np.concatenate([ours, theirs, own]), base)
            candidates = _ask(index, hub, child, []).candidates
            named[part] += second in {each.id for each in candidates}
    return Row(
        f"a second parent named beside a base with {hub.largest - 1:,} children, by its part of "
        f"the lines, of {trials} each",
        ", ".join(f"{part:.0%}: {hits}" for part, hits in named.items()),
        "",
        "",
        "all",
        all(hits == trials for hits in named.values()),
    )


def _common_row(draw: np.random.Generator, trials: int) -> Row:
    """Strangers in a hub of their own, with one table in three of them or more."""
    candidates = marked = size = 0
    for trial in range(trials):
        table = keys(draw, (60, 150, 300)[trial % 3])
        hub = Hub()
        for model in range(1, (3, 10, 100)[trial // 3 % 3]):
            hub.put(model, fingerprint(np.union1d(table, keys(draw, KEYS - table.size))))
        asked = fingerprint(np.union1d(table, keys(draw, KEYS - table.size)))
        with TemporaryDirectory() as folder, closing(FindingIndex(Path(folder))) as index:
            answer = index.find_by(hub, _TENANT, asked, deadline=NEVER)
        candidates += len(answer.candidates)
        marked += answer.common
        size += table.size
    return Row(
        f"kin by a table of word vectors that 3 to 100 strangers have; marked keys, of {size:,}",
        f"{candidates}; {marked:,}",
        "",
        "",
        "0; all",
        (candidates, marked) == (0, size),
    )


def _asked(index: FindingIndex, hub: MadeHub, ids: Iterable[int]) -> Asked:
    wall, cpu, found = list[float](), list[float](), list[Found]()
    for model in ids:
        asked = hub.fingerprint(model)
        began, began_cpu = time.perf_counter(), time.thread_time()
        found.append(_ask(index, hub, asked, [model]))
        wall.append(1e3 * (time.perf_counter() - began))
        cpu.append(1e3 * (time.thread_time() - began_cpu))
    return Asked(wall, cpu, found)


def _ask(index: FindingIndex, hub: MadeHub, asked: Fingerprint, left_out: list[int]) -> Found:
    return index.find_by(hub, _TENANT, asked, leave_out=left_out, deadline=NEVER)


def _megabytes(size: int | None) -> str:
    """Bytes that the process grew by at most, where the machine says so."""
    return "not known" if size is None else f"{size / 1e6:,.0f} MB"
