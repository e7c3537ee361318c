"""How long reading takes: each page says it, the README is short, and so is each path through."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from studies.papers.quotations import anchor
from tests.docs.pages import prose, words

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "index.md"
PAGES = sorted(ROOT.glob("docs/*.md"))
"""Without the tables in folders, which are looked up."""
MOST_OF_README = 900
MOST_OF_PATH = 5000
A_MINUTE = 200
TOP = re.compile(r"# [^\n]+\n\n\*For [^:\n]+: [^\n]+\. (\d+) minutes?\.\*\n\n")
HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def part(page: Path, wanted: str) -> str:
    """The section of a page that has this anchor, with the sections inside; or the whole page."""
    text = page.read_text()
    heads = [(m.start(), len(m[1]), anchor(m[2])) for m in HEADING.finditer(prose(text))]
    for place, (start, level, name) in enumerate(heads):
        if name == wanted:
            ends = (begin for begin, other, _ in heads[place + 1 :] if other <= level)
            return text[start : next(ends, len(text))]
    assert not wanted, (page, wanted)
    return text


def paths() -> dict[str, str]:
    """The section of each path in the index, by its reader."""
    _, *sections = part(INDEX, "five-paths").split("\n### ")
    return {section.partition("\n")[0]: section for section in sections}


def steps(path: str) -> list[str]:
    """The items of a path's numbered list."""
    return re.findall(r"^\d+\. (.*(?:\n   .*)*)", path, re.MULTILINE)


def linked_words(step: str) -> int:
    """The words of the pages and sections that a step links."""
    links = (link.partition("#") for link in LINK.findall(step))
    return sum(words(part((INDEX.parent / page).resolve(), wanted)) for page, _, wanted in links)


def length(path: str) -> int:
    """The words from the README to the last step."""
    return words((ROOT / "README.md").read_text() + path) + sum(map(linked_words, steps(path)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_for_whom_it_is_and_how_long_it_takes(page: Path) -> None:
    """In one line below its title; the minutes fit its words within a factor of two."""
    text = page.read_text()
    top = TOP.match(text)
    assert top is not None, text[:200]
    assert len(top[0].splitlines()[2]) <= 120
    needed = words(text) / A_MINUTE
    assert needed / 2 <= int(top[1]) <= max(1, 2 * needed)


def test_the_readme_is_short() -> None:
    """Code and commands included."""
    assert words((ROOT / "README.md").read_text()) <= MOST_OF_README


def test_there_are_five_paths() -> None:
    """The README links each, and none has more than six steps."""
    linked = LINK.findall((ROOT / "README.md").read_text())
    assert [f"docs/index.md#{anchor(reader)}" for reader in paths()] == [
        link for link in linked if link.startswith("docs/index.md#") and "when-not" not in link
    ]
    assert {4, 5, 6} >= {
        len(re.findall(r"^\d+\. ", path, re.MULTILINE)) for path in paths().values()
    }
    assert 5 == len(paths())


@pytest.mark.parametrize("reader", paths())
def test_a_path_is_short(reader: str) -> None:
    """From the README to its last step, and it and its steps take as long as they say."""
    path = paths()[reader]
    found = length(path)
    said = re.search(r"^(\d+) minutes, ([\d,]+) words: ", path, re.MULTILINE)
    assert said is not None, found
    assert found <= MOST_OF_PATH
    assert found == pytest.approx(int(said[2].replace(",", "")), rel=0.1)
    assert int(said[1]) == pytest.approx(found / A_MINUTE, rel=0.2)
    for step in steps(path):
        minutes = re.search(r"\b(\d+) minutes?\.$", step)
        assert minutes is not None, step
        assert int(minutes[1]) == pytest.approx(linked_words(step) / A_MINUTE, rel=0.5, abs=0.5)
