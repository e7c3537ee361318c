"""The figures of a retrieval beside their targets, as rows, tables and lines of a picture."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness import Spread
from benchmarks.plots import Line
from benchmarks.report import Findings, Row, Table, at_least, duration, range_of
from benchmarks.retrieval.peers import BY_JACCARD, DATASKETCH, DATASKETCH_WIDE, FAISS
from benchmarks.retrieval.planted_models import Background, H
from benchmarks.retrieval.searches import BYTES, EXACT, READ, SKETCHES, STRATA, VALUES, Searched

__all__ = ["COMPARED", "CROWDED", "findings", "lines"]

COMPARED = "mixed"
"""The background of the comparison with others."""

CROWDED = 100_000
"""Fewest models for which the targets hold."""


def findings(searches: Sequence[Searched]) -> Findings:
    """Judge the targets, stage by stage, and beside other indexes."""
    compared = [each for each in searches if each.background.name == COMPARED]
    rows = [*_targets(searches), *(row for each in compared for row in _against(each))]
    return Findings(rows, [_stages(searches), *map(_others, compared)])


def _targets(searches: Sequence[Searched]) -> list[Row]:
    rows = []
    for each in searches:
        what, recall = f"n = {each.n:,}, {each.background.name}", each.recall(SKETCHES)
        levels = ", ".join(each.strata(SKETCHES))
        judged = each.n >= CROWDED
        target = ("≥ 0.99", recall >= 0.99) if judged else ("", None)
        ours = f"{recall:.4f}; by S {_strata_names(each.background)}: {levels}"
        rows.append(Row(f"{what}: recall@10", ours, "", "", *target))
        rows.extend(_fast_enough(what, each) if judged else [])
    return rows


def _fast_enough(what: str, each: Searched) -> list[Row]:
    name, most, stages = (
        (SKETCHES, 6e-3, "before exact overlaps")
        if each.n == CROWDED
        else (EXACT, 15e-3, "40 exact overlaps included")
    )
    p50, p95 = (each.percentile(name, share) for share in (0.5, 0.95))
    return [
        Row(
            f"{what}: p50, {stages}",
            f"{duration(p50)} (p95 {duration(p95)})",
            f"{READ}: {duration(each.percentile(READ, 0.5))}",
            range_of(each.race.ratio(name, READ)),
            f"≤ {most * 1e3:g} ms",
            p50 <= most,
        )
    ]


def _against(each: Searched) -> list[Row]:
    """Judge the targets relative to other indexes, if they took part."""
    rows: list[Row] = []
    what = f"n = {each.n:,}, {each.background.name}"
    for name in (DATASKETCH, DATASKETCH_WIDE):
        if name in each.filled and each.n >= CROWDED:
            rows.extend(_sooner(what, ours, name, each) for ours in (SKETCHES, VALUES))
            rows.extend(_lighter(what, name, each))
    if FAISS in each.filled and each.n >= CROWDED:
        rows.append(_scans(what, each))
    return rows


def _sooner(what: str, ours: str, name: str, each: Searched) -> Row:
    """Judge times with sketches, which find most, and without, on the peer's own input."""
    recalls = f"recall {each.recall(ours):.3f} against {each.recall(name):.3f}"
    return at_least(
        f"{what}: p50, {ours.split(', ')[1]}, {recalls}",
        duration(each.percentile(ours, 0.5)),
        f"{name}: {duration(each.percentile(name, 0.5))}",
        each.race.ratio(name, ours),
        15,
    )


def _lighter(what: str, name: str, each: Searched) -> list[Row]:
    ours, theirs = each.filled[SKETCHES], each.filled[name]
    faster = theirs.seconds / ours.seconds
    rows = [
        at_least(
            f"{what}: models taken in a second",
            ours.cells(each.n)[0],
            f"{name}: {theirs.cells(each.n)[0]}",
            Spread.of([faster]),
            50,
        )
    ]
    if ours.memory and theirs.memory:
        rows.append(
            at_least(
                f"{what}: bytes of memory a model",
                ours.cells(each.n)[1],
                f"{name}: {theirs.cells(each.n)[1]}",
                Spread.of([theirs.memory / ours.memory]),
                50,
            )
        )
    return rows


def _scans(what: str, each: Searched) -> Row:
    ratio, recalls = each.race.ratio(BYTES, FAISS), [each.recall(n) for n in (BYTES, FAISS)]
    return Row(
        f"{what}: the scan alone, recall {recalls[0]:.3f} against {recalls[1]:.3f}",
        duration(each.percentile(BYTES, 0.5)),
        f"{FAISS}: {duration(each.percentile(FAISS, 0.5))}",
        range_of(ratio),
        "≤ 1× at a higher recall",
        ratio.median <= 1 and recalls[0] > recalls[1],
    )


def _stages(searches: Sequence[Searched]) -> Table:
    rows = []
    for each in searches:
        cells = [duration(each.percentile(name, 0.5)) for name in (READ, BYTES, SKETCHES, EXACT)]
        recalls = [f"{each.recall(name):.3f}" for name in (BYTES, VALUES, SKETCHES)]
        rows.append([f"{each.n:,}, {each.background.name}", *cells, *recalls])
    columns = ["n, background", "one read", "scan", "and sketches", "and overlaps"]
    columns += ["recall: bytes", "recall: signatures", "recall: sketches"]
    return Table("modelkin stage by stage, p50 of a query, and recall@10", columns, rows)


def _others(each: Searched) -> Table:
    rows = []
    for name in each.found:
        times = [duration(each.percentile(name, share)) for share in (0.5, 0.95)]
        recalls = [f"{each.recall(name):.3f}", *each.strata(name)]
        rows.append([name, *times, *recalls, *each.filled[name].cells(each.n)])
    strata = _strata_names(each.background).split(", ")
    columns = [f"n = {each.n:,}, {each.background.name}", "p50", "p95", "recall@10"]
    columns += [f"S = {s}" for s in strata] + ["models/s", "bytes/model"]
    return Table(f"The same queries in turn, n = {each.n:,}, h = {H}", columns, rows)


def _strata_names(background: Background) -> str:
    return ", ".join(f"{background.similarities[place]:.2g}" for place in STRATA)


def lines(searches: Sequence[Searched]) -> list[Line]:
    """The comparison as lines over n."""
    compared = [each for each in searches if each.background.name == COMPARED]
    lines = []
    names = dict.fromkeys(name for each in compared for name in each.found)
    for name in (name for name in names if not name.endswith(BY_JACCARD)):
        at = [each for each in compared if name in each.found]
        lines.append(
            Line(
                name,
                [each.n for each in at],
                [each.percentile(name, 0.5) for each in at],
                [each.filled[name].memory for each in at],
                next(each for each in at if each.n == CROWDED).recall(name),
            )
        )
    return lines
