"""Figures that pages for users give in tables: those of the evidence and the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from studies.papers.quotations import with_figures

DOCS = Path(__file__).parents[2] / "docs"

ROWS = {
    "36 samples a client, digits, 40 clients": "36 samples a client: digits",
    "36, synthetic images, 20 clients": "36 samples a client: synthetic",
    "360, synthetic images, 20 clients": "360 samples a client: synthetic",
    "3,600, synthetic images, 20 clients": "3600 samples a client: synthetic",
}
ARRIVALS = "benchmarks/subspaces.md"
NEWCOMERS = {
    "turned digits, kin, by classes": ("classes", "rotations, kin"),
    "digits drawn in another style, kin, by classes": ("classes", "styles, kin"),
    "turned digits of classes that no client has, by whole": ("whole", "rotations, no client has"),
}


@pytest.mark.parametrize(("split", "said"), [("Dir(0.1)", ""), ("IID", ", IID")])
@pytest.mark.parametrize("seen", ["indices", "gradients"])
def test_membership_compares_like_with_like(seen: str, split: str, said: str) -> None:
    """Each row has the figures of its split after one round, rounded, by the same attack."""
    evidence = (DOCS / "evidence" / "privacy.md").read_text()
    section = evidence.partition(f"### Membership on {split}")[2]
    measured = figures(section, "after one round", f"{seen}: beside own samples")
    row = f"from the {seen}{said}"
    shown = figures((DOCS / "method.md").read_text(), "samples of the client", row)
    assert ["4", "16", "32", "64", "128"] == list(shown)
    assert shown == {count: f"{float(measured[count]):.2f}" for count in shown}


def figures(page: str, head: str, row: str) -> dict[str, str]:
    """The first number of each cell of a row, by the first of its column."""
    table = page[page.index(f"| {head} |") :]
    lines = (
        next(line for line in table.splitlines() if line.startswith(f"| {each} |"))
        for each in (head, row)
    )
    columns, cells = (re.findall(r"\| (\d[\d.]*)", line) for line in lines)
    return dict(zip(columns, cells, strict=True))


@pytest.mark.parametrize("column", ["R@8", "membership"])
@pytest.mark.parametrize("row", ROWS)
def test_each_epsilon_has_what_was_measured(column: str, row: str) -> None:
    """On Dir(0.1), rounded, from an epsilon of 1 to chance."""
    table = (DOCS / "privacy.md").read_text().partition(f"| {column} at an epsilon of |")[2]
    shown = next(cells(line)[1:] for line in table.splitlines() if line.startswith(f"| {row} |"))
    evidence = (DOCS / "evidence" / "privacy.md").read_text()
    section = evidence.partition(f"### {ROWS[row]}")[2].partition("\n### ")[0]
    head, _, *rows = (cells(line) for line in section.splitlines() if line.startswith("|"))
    measured = [float(own[head.index(column)].split()[0]) for own in rows]
    assert [float(each) for each in shown] == pytest.approx(measured, abs=0.0055)


def cells(line: str) -> list[str]:
    """Those of a row of a table."""
    return line.strip("| ").split(" | ")


@pytest.mark.parametrize("newcomers", NEWCOMERS)
def test_shares_placed_right_are_those_measured(newcomers: str) -> None:
    """Of digits, beside a slash, come first in a cell."""
    text = (DOCS / "starting.md").read_text()
    (row,) = re.findall(rf"^\| {re.escape(newcomers)} \| (.+) \| (.+) \|$", text, re.MULTILINE)
    compare, column = NEWCOMERS[newcomers]
    head = f"{ARRIVALS}#who-the-order-of-arrival-decides | 24 clients, data subspace, by {compare}"
    measured = with_figures(
        " ".join(
            f"{{{head}, {means} | {column}}}" for means in ("means as clustered", "running means")
        ),
        {ARRIVALS: (DOCS / ARRIVALS).read_text()},
    )
    assert [*row] == re.findall(r"\[([\d.]+) / ", measured)


WEIGHED = {
    "the three": "their accuracy",
    "the 17 others": "of the others",
    "all 20": "of all",
}


@pytest.mark.parametrize("who", WEIGHED)
def test_accuracies_by_weights_are_those_measured(who: str) -> None:
    """Of clients with rare labels and of the others, under each rule of weights."""
    page = (DOCS / "federation.md").read_text()
    head, row = (
        cells(line) for line in page.splitlines() if line.startswith(("| weights", f"| {who} "))
    )
    bench = (DOCS / "benchmarks" / "federation.md").read_text()
    _, _, table = bench.partition("| labels, and weights |")
    columns, _, *rows = (cells(line) for line in f"| rule |{table}".splitlines())
    at = columns.index(WEIGHED[who])
    for rule, shown in zip(head[1:], row[1:], strict=True):
        measured = next(own[at] for own in rows if own[0] == f"rare labels: {rule.strip('`')}")
        assert shown.strip("*") == measured


def test_attacks_and_slow_clients_have_what_was_measured() -> None:
    """By kin and by FedAvg where signs are turned, and the times with steps and with rounds."""
    page = " ".join((DOCS / "federation.md").read_text().split())
    benchmark = (DOCS / "benchmarks" / "federation.md").read_text()
    _, _, attacks = benchmark.partition("Labels mixed, Dir(0.3): the mean accuracy")
    turned = next(cells(line) for line in attacks.splitlines() if line.startswith("| signs turned"))
    assert f"have {turned[1]}, and FedAvg is {turned[2].removeprefix('-')} below" in page
    _, _, slow = benchmark.partition("Clients: labels mixed: Dir(0.3):")
    times = {own[0]: own[1] for own in map(cells, slow.splitlines()[2:10])}
    assert f"after {times['steps of 5, rate 0.5']} trainings" in page
    assert f"rounds that wait after {times['rounds that wait']}." in page


def said_of(section: str, benchmark: str) -> str:
    """What stands before the figures of a section, in one line."""
    text = benchmark.partition(f"## {section}")[2].partition("<!-- federation-")[0]
    return " ".join(text.split())


def test_who_is_left_out_and_missed_is_what_was_measured() -> None:
    """Honest clients in percent, shares of attackers, and the loss by flipped labels in groups."""
    benchmark = (DOCS / "benchmarks" / "federation.md").read_text()
    page = said_of("Clients that attack", benchmark)
    said = re.findall(r"(?:left out|and) ([\d.]+)% ", page)
    _, _, section = benchmark.partition("| attack | IID, honest |")
    rows = {own[0]: own for own in map(cells, section.splitlines()[:8])}
    flipped, turned = rows["labels flipped"], rows["signs turned"]
    assert turned[3] == rows["noise, times 10"][3]
    assert said == [f"{100 * float(share.split()[0]):.2g}" for share in (turned[3], flipped[3])]
    assert f"a share of {flipped[4]}, and in groups {flipped[6]}, where" in page
    _, _, groups = benchmark.partition("**accuracy of honest clients, in four groups")
    (lost,) = re.findall(r"^\| labels flipped \|.*\| -(\S+ ± \S+) \|", groups, re.MULTILINE)[:1]
    assert f"the honest lost {lost}." in page


def test_kin_and_multi_krum_compare_as_was_measured() -> None:
    """In how many cells of the three splits one is ahead beyond the interval, and where by much."""
    benchmark = (DOCS / "benchmarks" / "federation.md").read_text()
    page = said_of("Clients that attack", benchmark)
    tables = benchmark.split("| attack by 4 of 20 |")[1:]
    rows = [own for table in tables for own in map(cells, table.splitlines()[2:8])]
    ends = [[float(each) for each in own[6].split(" ± ")] for own in rows]
    found = [(own[0], less, by) for own, (less, by) in zip(rows, ends, strict=True)]
    ahead = [(attack, less) for attack, less, by in found if less + by < 0]
    assert f"In {len(ahead)} of {len(found)} cells of the three" in page
    assert [] == [attack for attack, less, by in found if less - by > 0]
    assert ["signs turned", "small changes"] == [attack for attack, less in ahead if less < -0.03]
    for _, median, trimmed in (own[2:5] for own in rows[12:] if own[0] != "labels flipped"):
        assert min(float(each.split()[0]) for each in (median, trimmed)) > -0.03


def test_what_slow_clients_lose_is_what_was_measured() -> None:
    """Both losses that were expected to be smaller, and accuracies in the slow ones' cluster."""
    benchmark = (DOCS / "benchmarks" / "federation.md").read_text()
    page = said_of("Slow clients", benchmark)
    losses = re.findall(r"\| -(\S+ ± \S+) \| above -0.05 \| \*\*no\*\* \|", benchmark)
    assert f"they lost {' and '.join(losses)}." in page
    _, _, section = benchmark.partition("Clients: images turned, a model for each cluster:")
    rows = {own[0]: own for own in map(cells, section.splitlines()[2:10])}
    without, waiting = rows["steps of 2, rate 0.5"], rows["rounds that wait"]
    slow = [own[4].split()[0] for own in (without, waiting)]
    assert f"they have {slow[0]} without rounds and {slow[1]} with" in page
    assert f"{without[5]} and {waiting[5]}." in page


def test_what_shards_cost_in_flower_is_what_was_measured() -> None:
    """Megabytes of a round in both directions, and times beside FedAvg's and SecAgg+'s."""
    page = " ".join((DOCS / "flower-shards.md").read_text().split())
    benchmark = (DOCS / "benchmarks" / "sharing.md").read_text()
    _, _, section = benchmark.partition("|  | time of all parties |")
    rows = {own[0]: own for own in map(cells, section.splitlines()[2:7])}
    carried = {name: sum(float(each.split()[0]) for each in own[2:4]) for name, own in rows.items()}
    shards, fedavg, secagg, thin = (
        round(carried[name])
        for name in ("shards", "FedAvg", "SecAgg+", "shards, concealed, c = 16")
    )
    assert f"shards carry {shards} MB" in page
    assert f"FedAvg carries {fedavg}, and SecAgg+ {secagg}. One value in 16 carries {thin}." in page
    took = {name: float(own[1].split()[0]) for name, own in rows.items()}
    assert f"took {took['shards'] / took['FedAvg']:.1f} times FedAvg's time" in page
    assert "0.5" == f"{took['shards, concealed'] / took['SecAgg+']:.1f}"
    assert "concealed half of SecAgg+'s" in page
