"""The page of words says what the pages show, in the words of the glossary."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import httpx

from app.ui.words import VERDICTS, WORDS
from modelkin.core.kinship.lineage import LineageVerdict
from tests.support.fixtures import on_one_database

GLOSSARY = Path(__file__).parents[3] / "docs" / "glossary.md"


@on_one_database
def test_every_page_leads_to_the_words(http: httpx.Client) -> None:
    """The foot of a page has the link, and the page has each word with what it means."""
    home = http.get("/", headers={"Accept": "text/html"}).text
    assert '<a href="/words">Words</a>' in home.partition("<footer")[2]
    page = http.get("/words", headers={"Accept": "text/html"}).text
    assert all(f"<dt>{word}</dt>" in page for word in WORDS)


def test_the_words_are_those_of_the_glossary() -> None:
    """And the verdicts are all that there are."""
    text = GLOSSARY.read_text()
    defined = {entry.partition("**")[0].lower() for entry in text.split("- **")[1:]}
    for word in WORDS.keys() - {"P"}:
        assert any(word.lower() in each for each in defined), word
    assert {each.replace("_", " ") for each in get_args(LineageVerdict)} >= VERDICTS.keys()
