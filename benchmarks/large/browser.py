"""``python -m benchmarks.large.browser``: large checkpoints in Chromium, and beside it by the SDK.

A service has a space with the tensors of the file. The page reads the file as a visitor's browser
does, and the SDK reads it with one thread. Where a machine has other work, a step takes longer by
the clock: so the seconds of its processors stand beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from playwright.sync_api import Page

from benchmarks import report, summary
from benchmarks.report import Findings, Row, Table, duration
from demo.service import choose_port, running
from modelkin import Client
from modelkin.checkpoints import open_checkpoint
from tests.support.servers.browser import opened_browser, visiting

__all__ = ["Cost", "findings", "main", "write_checkpoint"]

WIDTH, HIDDEN = 2048, 5632
_LAYER: Final = {
    **{f"self_attn.{name}_proj.weight": (WIDTH, WIDTH) for name in "qkvo"},
    **{f"mlp.{name}_proj.weight": (HIDDEN, WIDTH) for name in ("gate", "up")},
    "mlp.down_proj.weight": (WIDTH, HIDDEN),
}
_TIMEOUT_MS: Final = 600_000.0
_TICK: Final = os.sysconf("SC_CLK_TCK")
_READING: Final = ("Its largest weights", "Its lines")
_BY_SDK: Final = """
import json, resource, sys, time
from modelkin.checkpoints import fingerprint, open_checkpoint, select_from_checkpoint
costs = []
for make in (select_from_checkpoint, lambda each: fingerprint(each, threads=1)):
    checkpoint, began, busy = open_checkpoint(sys.argv[1]), time.monotonic(), time.process_time()
    make(checkpoint)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    costs.append((time.monotonic() - began, time.process_time() - busy, memory))
print(json.dumps(costs))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step took.

    Attributes:
        seconds: by the clock.
        busy: seconds of all processors.
        memory: megabytes of the largest process, at most.
    """

    seconds: float
    busy: float
    memory: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the figures into their page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large.browser", description="Read checkpoints in Chromium."
    )
    parser.add_argument("--megabytes", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--quick", action="store_true", help="the pages stay as they are")
    asked = parser.parse_args(arguments)
    found = findings({size: _measured(size) for size in asked.megabytes})
    about = f"{report.machine()}; load of the last 15 minutes {os.getloadavg()[2]:.1f}"
    section = report.markdown(found, about)
    print(section)
    if not asked.quick:
        summary.write({"browser": section})
    return 0


def findings(costs: Mapping[int, Mapping[str, Cost]]) -> Findings:
    """The figures of files.

    Args:
        costs: of the steps by name, by the megabytes of the file.
    """
    lines = [
        [
            f"{size} MB, {step}",
            duration(cost.seconds),
            duration(cost.busy),
            f"{cost.memory:.0f} MB",
        ]
        for size, steps in costs.items()
        for step, cost in steps.items()
    ]
    rows = [
        Row(
            f"{size} MB of F16: processors' time until both are made",
            duration(_sum(steps, "browser")),
            f"the SDK, one thread: {duration(_sum(steps, 'SDK'))}",
            f"{_sum(steps, 'browser') / _sum(steps, 'SDK'):.1f}",
        )
        for size, steps in costs.items()
    ]
    return Findings(
        rows, [Table("Steps", ["file and step", "time", "of processors", "most memory"], lines)]
    )


def write_checkpoint(path: Path, size: int) -> None:
    """Write a file of F16 matrices of random values, of about so many bytes."""
    layers = max(1, round(size / 2 / sum(rows * columns for rows, columns in _LAYER.values())))
    shapes = {f"layers.{n}.{name}": shape for n in range(layers) for name, shape in _LAYER.items()}
    header, at = dict[str, object](), 0
    for name, shape in shapes.items():
        end = at + 2 * shape[0] * shape[1]
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    draw = np.random.default_rng(1)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            file.write((draw.standard_normal(shape, np.float32) * 0.02).astype("<f2").tobytes())


def _sum(steps: Mapping[str, Cost], whose: str) -> float:
    return sum(cost.busy for step, cost in steps.items() if whose in step)


def _measured(megabytes: int) -> dict[str, Cost]:
    with tempfile.TemporaryDirectory(prefix="modelkin-bench-") as folder:
        path = Path(folder) / "large.safetensors"
        write_checkpoint(path, megabytes * 10**6)
        store = Path(folder) / "store"
        store.mkdir()
        with running(store, choose_port(0)) as service, Client(service.url) as client:
            client.ensure_space("large", layout=open_checkpoint(path).layout)
            browser = _in_browser(service.url, path)
        said = subprocess.run(
            (sys.executable, "-c", _BY_SDK, path), check=True, capture_output=True, text=True
        )
        support, lines = (Cost(*each) for each in json.loads(said.stdout))
    return {
        "support, browser": browser[0],
        "support, SDK": support,
        "fingerprint, browser": browser[1],
        "fingerprint, SDK": lines,
    }


def _in_browser(url: str, path: Path) -> list[Cost]:
    with opened_browser() as browser, visiting(browser) as visit:
        visit.page.set_default_timeout(_TIMEOUT_MS)
        page = visit.open(f"{url}/check")
        page.set_input_files("#files", path)
        return [_step(page, words) for words in _READING]


def _step(page: Page, words: str) -> Cost:
    """What it takes from the first word of a step to the first one of the next."""
    _wait(page, f"?.startsWith({json.dumps(words)})")
    began, busy, memory = time.monotonic(), _busy(), 0.0
    while page.locator("#checks .status").inner_text().startswith(words):
        memory = max(memory, _memory())
        time.sleep(0.2)
    return Cost(time.monotonic() - began, _busy() - busy, memory)


def _wait(page: Page, condition: str) -> None:
    text = "document.querySelector('#checks .status')?.textContent"
    page.wait_for_function(f"() => {text}{condition}", timeout=_TIMEOUT_MS)


def _renderers() -> Iterator[Path]:
    """The processes of pages of this process's browser."""
    parents, renderers = dict[str, str](), list[Path]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = process.joinpath("stat").read_text().rpartition(")")[2].split()
            command = process.joinpath("cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        parents[process.name] = fields[1]
        if b"--type=renderer" in command:
            renderers.append(process)
    for process in renderers:
        above = process.name
        while above in parents and above != str(os.getpid()):
            above = parents[above]
        if above == str(os.getpid()):
            yield process


def _busy() -> float:
    """The seconds of processors that they took."""
    fields = (each.joinpath("stat").read_text().rpartition(")")[2].split() for each in _renderers())
    return sum(int(each[11]) + int(each[12]) for each in fields) / _TICK


def _memory() -> float:
    """The megabytes of the largest of them."""
    sizes = (each.joinpath("statm").read_text().split()[1] for each in _renderers())
    return max(map(int, sizes), default=0) * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    sys.exit(main())
