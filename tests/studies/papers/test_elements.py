"""The page of the papers: no element without a row, and no row that leads nowhere."""

from __future__ import annotations

import pkgutil
import re
import shlex
from pathlib import Path

import pytest

from benchmarks.__main__ import FAMILIES, SUBJECTS, expanded
from studies.catalogue import TABLES
from studies.papers.elements import PAPERS, STATES, Element, read
from studies.papers.quotations import QuotationError, with_figures
from studies.papers.section import blocks

ROOT = Path(__file__).parents[3]
ELEMENTS = {f"{name}: {each.name}": each for name in PAPERS for each in read(name).elements}


@pytest.mark.parametrize("name", PAPERS)
def test_everything_that_a_paper_numbers_has_a_row(name: str) -> None:
    """Tables, figures, equations and algorithms, from the first to the last one."""
    paper = read(name)
    printed = {label for each in paper.elements for label in each.printed}
    expected = {
        f"{kind} {number}"
        for kind, count in paper.numbered.items()
        for number in range(1, count + 1)
    }
    assert not expected - printed


@pytest.mark.parametrize("name", PAPERS)
def test_no_element_has_two_rows(name: str) -> None:
    """A row is known by its name."""
    names = [each.name for each in read(name).elements]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("each", ELEMENTS.values(), ids=ELEMENTS)
def test_a_row_says_where_its_element_is_or_why_it_is_not(each: Element) -> None:
    """What works names code, a command or a page; what is missing, or differs, says why."""
    if each.state in ("works", "measured", "refuted"):
        assert each.code or each.command or each.note
    elif each.state != "claim":
        assert each.ours or each.note


@pytest.mark.parametrize("each", ELEMENTS.values(), ids=ELEMENTS)
def test_the_code_of_a_row_exists(each: Element) -> None:
    """Under the name that the row gives."""
    for name in each.code:
        assert pkgutil.resolve_name(name) is not None


COMMANDS = sorted({each.command for each in ELEMENTS.values()} - {""})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_of_a_row_exists(command: str) -> None:
    """A table of the studies, a subject of the benchmarks, or a file of tests."""
    words = shlex.split(command)
    if words[0] == "pytest":
        assert all((ROOT / path).exists() for path in words[1:])
    elif words[2] == "studies":
        assert words[3] in TABLES
    else:
        assert words[2] == "benchmarks"
        assert words[3] not in FAMILIES or len(words) > 4
        assert set(expanded(words[3:])) <= set(SUBJECTS)


def test_the_page_counts_its_rows() -> None:
    """By state and paper, as its first table says."""
    made = [*blocks({})]
    table = next(block for block in made if block.startswith("| state"))
    counted = re.findall(r"^\| (\w+) \|.*?\| (\d+) \| (\d+) \| (\d+) \|$", table, re.MULTILINE)
    assert [state for state, *_ in counted] == list(STATES)
    totals = [sum(map(int, column)) for column in zip(*(row[1:] for row in counted), strict=True)]
    assert totals == [len(read(name).elements) for name in PAPERS]


def test_every_row_of_the_page_has_five_cells() -> None:
    """No text of a row divides a cell."""
    for block in blocks({}):
        if block.startswith("| element"):
            assert {line.count(" | ") for line in block.splitlines()} == {4}


PAGE = """\
# A page

| split | R@8 |
| --- | --- |
| Dir(0.1) | 0.5 |

## Second, (with) marks

| split | way | R@8 |
| --- | --- | --- |
| Dir(0.1) | A | 0.6 |
| Dir(0.1) | B | 0.7 |

### A part of it

| way | R@4 |
| --- | --- |
| C | 0.8 |

## Third

| split | way | R@8 |
| --- | --- | --- |
| Dir(0.1) | D | 0.9 |
"""


def test_a_figure_is_quoted_as_a_link_to_its_table() -> None:
    """The first row of the section, or of a part of it, that begins with the cells named."""
    text = (
        "{a.md#a-page | Dir(0.1) | R@8}, {a.md#second-with-marks | Dir(0.1) / B | R@8}, "
        "{a.md#second-with-marks | C | R@4}"
    )
    quoted = with_figures(text, {"a.md": PAGE})
    second = "a.md#second-with-marks"
    assert quoted == f"[0.5](a.md#a-page), [0.7]({second}), [0.8]({second})"


@pytest.mark.parametrize(
    "wrong",
    [
        "a-page | Dir(0.3) | R@8",
        "a-page | Dir(0.1) | R@4",
        "b | A | B",
        "second-with-marks | Dir(0.1) / D | R@8",
        "a-part-of-it | Dir(0.1) | R@8",
    ],
)
def test_a_figure_that_is_gone_is_an_error(wrong: str) -> None:
    """It names the page, the row and the column; another section's row does not stand in."""
    _, row, column = (part.strip() for part in wrong.split("|"))
    with pytest.raises(QuotationError, match=r"a\.md") as error:
        with_figures(f"{{a.md#{wrong}}}", {"a.md": PAGE})
    assert row in str(error.value)
    assert column in str(error.value)


def test_a_state_that_is_none_is_an_error(tmp_path: Path) -> None:
    """It names the file and the row."""
    (tmp_path / "ios.toml").write_text(
        'title = "A"\nabout = ""\n[numbered]\n[[element]]\nname = "B"\nstate = "done"\n'
    )
    with pytest.raises(ValueError, match=r"ios\.toml: B: no state done"):
        read("ios", tmp_path)
