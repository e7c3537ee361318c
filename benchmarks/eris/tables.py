"""Tables 2, 4 and 5 and figure 7 of the literature by arithmetic, and a large federation.

That every printed digit is reproduced, the tests assert; the figures here are for reading.
"""

from __future__ import annotations

from typing import Any

from benchmarks.report import Findings, Row, Table, duration
from modelkin.federation.shards.costs import METHODS, client_bytes, distribution_time

LIBRARIES = ()

RATE = 20e6
MODELS = (
    ("GPT-Neo, n = 10", 10, 1.3e9, 100, 3),
    ("DistilBERT, n = 25", 25, 67e6, 1 / 0.00012, 4),
    ("ResNet-9, n = 50", 50, 1.65e6, 1 / 0.006, 4),
    ("LeNet-5, n = 50", 50, 62e3, 1 / 0.033, 4),
)
"""Name, members, parameters, the paper's c, and the neighbours that its Shatter must have."""

NAMES = dict(
    zip(
        METHODS,
        ("FedAvg", "SoteriaFL", "PriPrune", "Shatter", "Ako", "Q-DPSGD-1", "SecAgg+", "ERIS"),
        strict=True,
    )
)


def run(quick: bool) -> Findings:
    """The least time of a round for each method, and figure 7's ratios."""
    del quick
    n, size = 50, 4 * 1.65e6
    fedavg = distribution_time("fedavg", n=n, size=size, up=RATE, down=RATE)
    rows = []
    for shards, printed in ((2, 40.8), (50, 1020)):
        ours = distribution_time(
            "eris", n=n, size=size, up=RATE, down=RATE, aggregators=shards, one_in=20
        )
        ratio = fedavg / ours
        rows.append(
            Row(
                f"n = 50, c = 20, A = {shards}",
                duration(ours),
                f"FedAvg: {duration(fedavg)}",
                f"{ratio:,.1f}×",
                f"{printed:g}× by the formulas",
                abs(ratio - printed) < 0.5,
            )
        )
    return Findings(rows, [_round_times(), _large()])


def _round_times() -> Table:
    rows = []
    for method in METHODS:
        cells = []
        for _, n, parameters, c, degree in MODELS:
            options: dict[str, Any] = {"neighbors": degree} if method == "shatter" else {}
            one_in = {"soteriafl": 20.0, "eris": c}.get(method, 1.0)
            sent, _ = client_bytes(method, n=n, size=4 * parameters, one_in=one_in, **options)
            seconds = distribution_time(
                method, n=n, size=4 * parameters, up=RATE, down=RATE, one_in=one_in, **options
            )
            cells.append(f"{_bytes(sent)}, {_time(seconds)}")
        rows.append([NAMES[method], *cells])
    columns = ["method", *(name for name, *_ in MODELS)]
    return Table(
        "Bytes that a member sends, and the least time of a round, at 20 MB/s each way",
        columns,
        rows,
    )


def _large() -> Table:
    n, size, rate = 1000, 4e8, 12.5e6
    rows = []
    ways: list[tuple[str, str, dict[str, Any]]] = [
        ("FedAvg, a server of 100 Mbit/s", "fedavg", {}),
        ("FedAvg, a server of 10 Gbit/s", "fedavg", {"server_up": 1.25e9, "server_down": 1.25e9}),
        ("ERIS, A = 50", "eris", {"aggregators": 50}),
        ("ERIS, A = n", "eris", {}),
        ("ERIS, A = 50, c = 16, one mask", "eris", {"aggregators": 50, "one_in": 16.0}),
        ("ERIS, A = n, c = 16, one mask", "eris", {"one_in": 16.0}),
        ("ERIS, A = n, c = 16, own masks", "eris", {"one_in": 16.0, "masks": "own"}),
    ]
    for name, method, options in ways:
        seconds = distribution_time(method, n=n, size=size, up=rate, down=rate, **options)
        rows.append([name, _time(seconds) if seconds < 7200 else f"{seconds / 3600:.1f} h"])
    return Table(
        "The least time of a round of 1,000 members with M = 1e8, at 100 Mbit/s each",
        ["", "time"],
        rows,
    )


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 1000 else duration(seconds)


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"
