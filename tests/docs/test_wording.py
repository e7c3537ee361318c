"""The check of wording reads docstrings, comments, messages and pages, and nothing else."""

from __future__ import annotations

import pytest

from docs import wording


def found(source: str) -> list[tuple[int, str]]:
    """Line and text of each offence in some Python."""
    return sorted((each.line, each.text) for each in wording.in_code("x.py", source))


def lines(page: str) -> list[tuple[int, str]]:
    """Line and text of each offence in a page."""
    return sorted((each.line, each.text) for each in wording.in_page("x.md", page))


def test_docstrings_comments_and_messages_are_read() -> None:
    """An offence has the line that it is on, also in an f-string and in a longer docstring."""
    source = (
        '"""First line.\n\nNobody knows.\n"""\n'
        "value = 1  # somebody set it\n"
        'raise ValueError(f"{value} is told to")\n'
    )
    assert found(source) == [(3, "Nobody"), (5, "somebody"), (6, "told")]


def test_a_text_is_read_over_its_parts_and_breaks() -> None:
    """Strings that continue each other are one, in any quotes; a break ends a word."""
    assert found("x = (\n    \"a list that is \"\n    f'none of {these}'\n)") == [(2, "is none")]
    assert found('x = "it is one,\\nnobody\'s, say"') == [(1, "nobody")]


def test_names_and_code_are_not_read() -> None:
    """Identifiers, keys without a space and code in backticks may hold any word."""
    assert found('told = {"nobody": 1}\n"""Return `told` and ``anew``, never None."""\n') == []


@pytest.mark.parametrize(
    "sentence",
    ["A name that is no key.", "A list that\nis none.", "It waits for ever.", "What came of it."],
)
def test_an_idiom_is_an_offence(sentence: str) -> None:
    """Across a line break, too."""
    assert len(lines(sentence)) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "There is no space.",
        "Where there is none.",
        "It is no longer read.",
        "It is no larger than M.",
    ],
)
def test_plain_negations_are_none(sentence: str) -> None:
    """Standard English that resembles an idiom passes."""
    assert lines(sentence) == []


def test_lines_of_pages_are_measured_outside_of_fenced_blocks() -> None:
    """Output of programs is shown as it is."""
    assert lines(f"a\n{'b' * 121}\n```text\n{'c' * 121} told\n```\n") == [(2, "121 characters")]


def test_an_allowed_quotation_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its file alone."""
    monkeypatch.setattr(wording, "ALLOWED", {("x.md", "a told story"): "a quotation"})
    assert lines("It is a told story.") == []
    assert lines("It was told.") == [(1, "told")]


def test_decimals_begin_with_a_digit() -> None:
    """0.79 is read at once, and .79 is not; versions, code and file names are no decimals."""
    page = "S is .79, not 0.79. Python 3.11, `.5`, files end in .md.\n\n| −.07 |\n"
    assert lines(page) == [(1, ".79"), (3, ".07")]


def test_sentences_of_a_page_are_short_on_average() -> None:
    """One long sentence is no offence, a page of them is; tables and code do not count."""
    long = "\n".join(["word"] * 49) + "."
    assert lines(f"{long}\n\nOne.\n") == []
    assert lines(f"{long}\n\n| a |\n\n```\nb.\n```\n") == [(1, "49.0 words a sentence")]
