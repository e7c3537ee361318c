"""``python -m benchmarks.gpu``: selection and signature on a CUDA device, beside reading, top K and
sorting there; and fingerprints, beside one processor of this machine.

Without such a device it says so and measures nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import report, summary
from benchmarks.harness import Race, use_kernels
from benchmarks.report import Findings, Row, Table, at_least, at_most, duration
from modelkin import select_support
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.sketching.schemes import SCHEMES
from modelkin.torch import fingerprint, select_signature

LIBRARIES = ("torch", "numpy", "numba")
SIZES = (110_000_000, 1_000_000_000)
QUICK_SIZES = (1_000_000,)
FRACTION = 0.096
COVERAGE = 0.8
ROUNDS = 7
LAYERS, LAYER = 8, (4096, 11008)
QUICK_LAYERS, QUICK_LAYER = 2, (128, 192)
FASTER = 20
"""Times that a fingerprint is made sooner on the device than by one processor."""

READS = ("one read, sum", "one read, max")
SIGNED = "modelkin, signature at coverage 0.8"
COVERED = "modelkin, support at coverage 0.8"
COUNTED = "modelkin, support of the top K"
TOPK = "torch.topk"
SORT = "torch.sort + cumsum"


def main(arguments: list[str] | None = None) -> int:
    """Measure if there is a CUDA device, and write the figures into their page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes; the pages stay as they are"
    )
    parser.add_argument("--out", type=Path, help="also write the section, alone, to this file")
    asked = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing was measured, nothing was written", file=sys.stderr)
        return 1
    device = torch.device("cuda")
    found = findings(device, QUICK_SIZES if asked.quick else SIZES, 2 if asked.quick else ROUNDS)
    name = torch.cuda.get_device_name(device)
    section = report.markdown(found, f"{name}, beside {report.machine(LIBRARIES)}")
    print(section)
    if asked.out:
        asked.out.write_text(section)
    if not asked.quick:
        summary.write({"gpu": section})
    return 0


def findings(device: torch.device, sizes: Sequence[int], rounds: int) -> Findings:
    """Time every contender at every size, and compare the device's answers with the CPU's."""
    found = Findings([_identical(device, sizes[0])])
    for m in sizes:
        importance = _importance(m, device)
        result = _race(_ways(importance), device, rounds)
        found.rows.extend(_judged(m, result))
        found.tables.append(_table(m, result))
        found.rows.append(_memory(importance))
        del importance
    quick = max(sizes) <= max(QUICK_SIZES)
    layers, shape = (QUICK_LAYERS, QUICK_LAYER) if quick else (LAYERS, LAYER)
    found.rows.extend(_of_fingerprints(device, layers, shape, rounds))
    return found


def _of_fingerprints(
    device: torch.device, layers: int, shape: tuple[int, int], rounds: int
) -> list[Row]:
    """Those of some layers on the device, a value, and of one by a processor with numba."""
    use_kernels("fast")
    generator = torch.Generator(device).manual_seed(7)
    there = {
        f"layers.{at}.weight": 0.02 * torch.randn(shape, generator=generator, device=device)
        for at in range(layers)
    }
    first = next(iter(there))
    here = {first: there[first].cpu()}
    run = partial(fingerprint, here, threads=1)
    samples: dict[str, list[float]] = {"device": [], "processor": []}
    for number in range(rounds + 1):
        on_device = _seconds(partial(fingerprint, there), device)
        begin = time.process_time()
        run()
        on_processor = time.process_time() - begin
        if number:
            samples["device"].append(on_device * 1e9 / (layers * shape[0] * shape[1]))
            samples["processor"].append(on_processor * 1e9 / (shape[0] * shape[1]))
    race = Race(samples)
    figure = f"{layers} layers of {shape[0]:,} x {shape[1]:,}"
    same = _keys(run()) == _keys(fingerprint({first: there[first]}))
    return [
        at_least(
            f"{figure}: fingerprint, a value",
            f"{race.seconds('device').median:.3f} ns",
            f"one processor, numba: {race.seconds('processor').median:.2f} ns",
            race.ratio("processor", "device"),
            FASTER,
        ),
        Row(
            f"{figure}: fingerprint, device against CPU",
            f"{len(_keys(run())[1]):,} keys, {'' if same else 'not '}the same",
            "",
            "",
            "bit-identical",
            same,
        ),
    ]


def _keys(made: Fingerprint) -> tuple[object, list[int]]:
    return made.tensors, made.keys.tolist()


def _importance(num_parameters: int, device: torch.device) -> Tensor:
    """Lognormal, as spread as squared gradients: a coverage of .8 takes about 10%."""
    generator = torch.Generator(device).manual_seed(7)
    logarithm = torch.randn(num_parameters, generator=generator, device=device)
    return logarithm.mul_(2.15).exp_()


def _ways(importance: Tensor) -> dict[str, Callable[[], Any]]:
    k = int(importance.numel() * FRACTION)
    return {
        READS[0]: importance.sum,
        READS[1]: importance.max,
        SIGNED: partial(select_signature, importance, coverage=COVERAGE),
        COVERED: partial(select_support, importance, coverage=COVERAGE),
        COUNTED: partial(select_support, importance, k=k),
        TOPK: partial(torch.topk, importance, k, sorted=False),
        SORT: partial(_sort_and_sum, importance),
    }


def _sort_and_sum(importance: Tensor) -> Tensor:
    values, order = torch.sort(importance, descending=True)
    mass = values.cumsum(0, dtype=torch.float64)
    return order[: int(torch.searchsorted(mass, COVERAGE * mass[-1])) + 1]


def _race(ways: dict[str, Callable[[], Any]], device: torch.device, rounds: int) -> Race:
    """Run all contenders in turn, round by round, after one call of each to warm up."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            seconds = _seconds(way, device)
            if number:
                samples[name].append(seconds)
    return Race(samples)


def _seconds(way: Callable[[], Any], device: torch.device) -> float:
    """Seconds by the device's own clock, from an idle device to its last result."""
    if device.type != "cuda":
        begin = time.perf_counter()
        way()
        return time.perf_counter() - begin
    events: Any = torch.cuda.Event  # which has no types
    first, last = (events(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    first.record()
    way()
    last.record()
    torch.cuda.synchronize(device)
    return float(first.elapsed_time(last)) / 1000


def _judged(m: int, result: Race) -> list[Row]:
    read = result.fastest(READS)
    rows = [
        at_most(
            f"M = {m:,}: {SIGNED.split(', ')[1]}, over one read",
            duration(result.seconds(SIGNED).median),
            f"{read}: {duration(result.seconds(read).median)}",
            result.ratio(SIGNED, read),
            5,
        )
    ]
    for ours, peer in ((COUNTED, TOPK), (COVERED, SORT)):
        rows.append(
            at_least(
                f"M = {m:,}: {ours.split(', ')[1]}",
                duration(result.seconds(ours).median),
                f"{peer}: {duration(result.seconds(peer).median)}",
                result.ratio(peer, ours),
                1,
            )
        )
    return rows


def _table(m: int, result: Race) -> Table:
    read = result.fastest(READS)
    rows = []
    for name in result.samples:
        spread, ratio = result.seconds(name), result.ratio(name, read)
        limits = f"{duration(spread.least)} – {duration(spread.most)}"
        rows.append([name, duration(spread.median), limits, report.range_of(ratio)])
    columns = ["on the device", "median", "least – most", "over one read"]
    return Table(f"M = {m:,}, K = {FRACTION:.1%} where it is given", columns, rows)


def _memory(importance: Tensor) -> Row:
    """The peak of the device's allocator, without the importance."""
    m, figure = importance.numel(), "memory on the device, the indices included"
    if importance.device.type != "cuda":
        return Row(f"M = {importance.numel():,}: {figure}", "not measured on the CPU", "", "")
    torch.cuda.reset_peak_memory_stats(importance.device)
    before = torch.cuda.memory_allocated(importance.device)
    select_signature(importance, coverage=COVERAGE)
    grown = torch.cuda.max_memory_allocated(importance.device) - before
    return Row(f"M = {m:,}: {figure}", f"{grown / m:.2f} bytes a parameter", "", "")


def _identical(device: torch.device, m: int) -> Row:
    importance = _importance(m, device)
    support = select_support(importance.cpu(), coverage=COVERAGE)
    same = support == select_support(importance, coverage=COVERAGE) and all(
        support.signature(scheme=scheme)
        == select_signature(importance, coverage=COVERAGE, scheme=scheme)
        for scheme in SCHEMES
    )
    ours = f"{support.k:,} indices and {len(SCHEMES)} signatures, the same"
    ours = ours if same else ours.replace("the same", "not the same")
    return Row(f"M = {m:,}: device against CPU", ours, "", "", "bit-identical", same)


if __name__ == "__main__":
    sys.exit(main())
