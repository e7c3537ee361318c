"""The benchmarks run and say what they found; how fast anything is, no test asks."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as program
from benchmarks import data, summary
from benchmarks.harness import Contender, Race, Spread, extra_memory, race
from benchmarks.report import (
    Findings,
    Row,
    Table,
    at_least,
    at_most,
    duration,
    grouped,
    markdown,
    range_of,
    replaced,
    table_lines,
)
from modelkin.core.kernels.choice import kernels
from tests.support.servers import forked_subprocess

pytestmark = pytest.mark.slow

SERVERS = {
    "backfill": ("postgres",),
    "buckets": ("postgres", "redis"),
    "objects": ("objects",),
    "explorer": ("browser",),
    "fingerprint-puts": ("postgres",),
    "inbox": ("browser",),
}
"""The markers of subjects that start servers, or a browser."""

MARKED = "top\n<!-- wire: begin, by `make bench` -->\nold\n<!-- wire: end -->\nbottom\n"


@pytest.fixture(autouse=True)
def _own_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a benchmark chose is forgotten behind it."""
    monkeypatch.setenv("MODELKIN_KERNELS", "auto")
    yield
    kernels.cache_clear()
    gc.freeze()  # a subject collects garbage often, and none is in what the others have imported


@pytest.fixture(autouse=True)
def _forked_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """No quick run is for its seconds, and tests of the service start it by its command."""
    subjects = "benchmarks.service"
    starting = [f"{subjects}.{name}" for name in ("http", "noop", "service_start")]
    for module in (*starting, "demo.service"):
        monkeypatch.setattr(f"{module}.subprocess", forked_subprocess)


@cache
def quick(name: str) -> Findings:
    """A subject's quick run, once for all the claims about it."""
    return program.SUBJECTS[name].run(quick=True)


def marked(name: str) -> Any:
    """A subject with the markers of the servers that it starts."""
    return pytest.param(name, marks=[getattr(pytest.mark, each) for each in SERVERS.get(name, ())])


@pytest.mark.parametrize("name", [marked(each) for each in program.SUBJECTS])
def test_every_subject_yields_whole_rows(name: str) -> None:
    """A quick run gives judged rows with every cell that they need, and even tables."""
    findings = quick(name)
    assert findings.rows or findings.tables
    assert all(row.figure and row.ours for row in findings.rows)
    assert all((row.met is None) or row.target for row in findings.rows)
    for table in findings.tables:
        assert table.rows
        assert {len(table.columns)} == {len(row) for row in table.rows}


@pytest.mark.parametrize("name", ["signature", "selection", "blinding"])
def test_equal_answers_are_among_the_figures(name: str) -> None:
    """A speed is reported only for kernels with equal answers in the same run."""
    exact = [row for row in quick(name).rows if "bit-" in row.target]
    assert exact
    assert all(row.met for row in exact)


def test_contenders_take_turns() -> None:
    """After one warm-up and one calibration each, the rounds go A B A B."""
    order: list[str] = []
    slow = partial(np.sum, np.zeros(1))
    contenders = [Contender(name, slow, prepare=partial(order.append, name)) for name in ("a", "b")]
    race(contenders, 3)
    assert list("aabb" + "ababab") == order


def test_a_slow_contender_runs_in_its_rounds_only() -> None:
    """With ``rounds`` it is called that often and not once more."""
    calls: list[int] = []
    result = race([Contender("slow", partial(calls.append, 1), rounds=2)], 5)
    assert 2 == len(calls)
    assert 2 == len(result.samples["slow"])


def test_a_race_by_the_time_of_the_thread() -> None:
    """A contender that sleeps takes none of it."""
    result = race([Contender("sleeps", partial(time.sleep, 0.02), rounds=1)], 1, time.thread_time)
    assert result.samples["sleeps"][0] < 0.01


def test_ratios_are_of_the_same_round() -> None:
    """A round in which the machine was ten times slower does not move a ratio."""
    result = Race({"a": [2.0, 20.0, 2.0], "b": [1.0, 10.0, 1.0]})
    assert Spread(2.0, 2.0, 2.0) == result.ratio("a", "b")
    assert "b" == result.fastest(["a", "b"])


def test_extra_memory_sees_an_array() -> None:
    """Sixty-four megabytes that are written to and dropped are sixty-four megabytes more."""
    grown = extra_memory(lambda: np.ones(1 << 23, np.float64))
    assert grown is None or 60 << 20 <= grown <= 80 << 20


@pytest.mark.parametrize(
    ("ratio", "met"), [(Spread(50.0, 40.0, 60.0), True), (Spread(49.0, 48.0, 99.0), False)]
)
def test_a_target_is_met_by_the_median(ratio: Spread, met: bool) -> None:
    """Neither the best round nor the worst one decides."""
    assert met == at_least("figure", "1 s", "50 s", ratio, 50).met
    assert met == (not at_most("figure", "1 s", "50 s", ratio, 49.5).met)


def test_figures_have_three_digits_and_their_unit() -> None:
    """Durations and ratios read alike from nanoseconds to seconds."""
    assert ["2.5 s", "16.9 ms", "22.1 µs", "3 ns"] == [
        duration(each) for each in (2.5, 0.01691, 22.1e-6, 3e-9)
    ]
    assert "67.1× (9.12–1,200)" == range_of(Spread(67.1, 9.123, 1200.0))


def test_a_missed_target_is_printed_as_missed() -> None:
    """The section says no, in bold, and on what it was measured."""
    rows = [Row("speed", "1 s", "2 s", "2×", "≥ 3×", False), Row("size", "1", "2", "2×")]
    text = markdown(Findings(rows, [Table("Facts", ["a", "b"], [["1", "2"]])]), "a machine")
    assert "| speed | 1 s | 2 s | 2× | ≥ 3× | **no** |" in text
    assert "| size | 1 | 2 | 2× |  |  |" in text
    assert "Facts:\n\n| a | b |\n| --- | --- |\n| 1 | 2 |" in text
    assert text.endswith("Measured on a machine.\n")


def test_rows_of_one_subject_stand_under_its_name() -> None:
    """The subject is written once; a figure that stands alone keeps its own."""
    rows = [["n = 9: time", "1 s"], ["n = 9: size", "2 B"], ["n = 8: time", "3 s"]]
    assert grouped(rows) == [
        ["**n = 9**", ""],
        ["time", "1 s"],
        ["size", "2 B"],
        ["n = 8: time", "3 s"],
    ]


def test_a_long_row_continues_in_rows_with_empty_cells() -> None:
    """No line has more than 120 characters, and no word is lost."""
    words = " ".join(["word"] * 30)
    lines = table_lines([words, "1 s", "yes"])
    assert len(lines) == 2
    assert all(len(line) <= 120 for line in lines)
    assert lines[1].endswith("|  |  |")
    assert " ".join(line.split(" | ")[0].removeprefix("| ") for line in lines) == words


def test_only_the_marked_part_of_the_page_changes() -> None:
    """The words around a section are a writer's and stay."""
    page = replaced(MARKED, "wire", "new")
    assert MARKED.replace("old\n", "\nnew\n") == page
    assert page == replaced(page, "wire", "new")


def test_a_page_without_the_markers_is_refused() -> None:
    """A new subject's section is never lost silently: the message says what to add."""
    with pytest.raises(ValueError, match="add the lines"):
        replaced(MARKED, "http", "new")


def test_a_quick_run_leaves_the_pages_alone(tmp_path: Path) -> None:
    """Figures of tiny sizes go to the file asked for, never into the documentation."""
    pages = (summary.PAGE, *summary.PAGES)
    before, out = [page.read_bytes() for page in pages], tmp_path / "figures.md"
    assert 0 == program.main(["wire", "--quick", "--out", str(out)])
    assert before == [page.read_bytes() for page in pages]
    assert "Bits an index, M = 60,000" in out.read_text()


def test_an_unknown_subject_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names it, and the subjects there are."""
    with pytest.raises(SystemExit):
        program.main(["nonsense"])
    assert "no subject nonsense; there are signature, " in capsys.readouterr().err


def test_the_data_are_the_same_every_time() -> None:
    """Two runs measure the same importances, a tenth of which holds about four fifths of all."""
    importance = data.heavy_tailed(1_000_000)
    assert np.array_equal(importance, data.heavy_tailed(1_000_000))
    share = np.sort(importance)[-100_000:].sum() / importance.sum()
    assert 0.7 < share < 0.9


def test_a_family_stands_for_its_subjects() -> None:
    """Alone for all of them, before names for those; other names are as before."""
    assert ["eris-tables", "eris-kernels"] == program.expanded(["eris", "tables", "kernels"])
    assert ["dfl2g-rules"] == program.expanded(["dfl2g", "rules"])
    everything = program.expanded(["eris"])
    assert {"eris-exactness", "eris-methods"} <= set(everything) <= set(program.SUBJECTS)
    assert all(name.startswith("eris-") for name in everything)
    assert ["wire"] == program.expanded(["wire"])
    assert [] == program.expanded([])
