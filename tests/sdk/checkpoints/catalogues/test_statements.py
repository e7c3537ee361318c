"""What a card and the metadata of a file say of a checkpoint, and what neither says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from modelkin.checkpoints import open_checkpoint
from modelkin.checkpoints.catalogues.statements import (
    Statements,
    statements_of,
    unread_base_of,
)
from tests.support.models.gguf_files import as_llama_cpp, llama, llama_metadata, write_gguf

WEIGHTS = {"a.weight": np.ones((8, 8), np.float32)}
CARD = """---
license: mit   # as of May
language: [en, de]
base_model:
- org/base
- "org/other"
base_model_relation: merge
---
# A model
license: none
"""


def said(
    folder: Path, card: str | None = None, metadata: dict[str, str] | None = None
) -> Statements:
    """What is said of a model in one file."""
    save_file(WEIGHTS, folder / "model.safetensors", metadata)
    if card is not None:
        (folder / "README.md").write_text(card)
    return statements_of(open_checkpoint(folder))


def test_a_card_is_read(tmp_path: Path) -> None:
    """Its licence, its bases and what it is of them, from the front matter alone."""
    expected = Statements("mit", None, ("org/base", "org/other"), "merge")
    assert expected == said(tmp_path, CARD)
    assert expected == statements_of(open_checkpoint(tmp_path / "model.safetensors"))


def test_a_licence_and_a_relation_are_read_as_a_hub_reads_them(tmp_path: Path) -> None:
    """One that is "other" has a name; a relation counts however it is capitalised."""
    card = "---\nlicense: other\nlicense_name: llama3.1\nbase_model_relation: Merge\n---\n"
    assert Statements("llama3.1", None, (), "merge") == said(tmp_path, card)


@pytest.mark.parametrize(
    ("matter", "why"),
    [
        ("license: mit\nbase_model: [unclosed\n---", "line 3 of it is no YAML"),
        ("base_model: {a: b}\n---", "is not read: write a name there, or a list of names"),
        ("base_model: org/base", "its front matter has no second line of ---"),
        ("base_model: acme / lm base??\n---", "a base_model of README.md is not read: "),
        ("base_model:\n- org/base\n- 'a//b'\n---", "a base_model of README.md is not read"),
        ("  base_model: org/base\n---", "is not read: begin its line with it"),
        ("base_model:\n---", None),
        ("base_model: org/base # the first\n---", None),
        ("license: mit\n---", None),
    ],
)
def test_a_base_that_is_not_read_is_said(tmp_path: Path, matter: str, why: str | None) -> None:
    """By the reason, so that no declaration is lost in silence."""
    said(tmp_path, f"---\n{matter}\n# A model\n")
    found = unread_base_of(open_checkpoint(tmp_path))
    assert found is None if why is None else why in (found or "")
    assert None is unread_base_of(open_checkpoint(tmp_path), has_card=False)


def test_a_file_says_what_its_card_does_not(tmp_path: Path) -> None:
    """Metadata under its own names or those of ModelSpec, with the date; the card counts first."""
    metadata = {
        "modelspec.license": "apache-2.0",
        "modelspec.date": "2026-05-04T10:00:00Z",
        "base_model": "org/of-the-file",
    }
    date = datetime(2026, 5, 4, 10, tzinfo=UTC)
    assert Statements("apache-2.0", date, ("org/of-the-file",)) == said(tmp_path, None, metadata)
    card = "---\nlicense: mit\n---\n"
    assert Statements("mit", date, ("org/of-the-file",)) == said(tmp_path, card, metadata)


def test_a_gguf_file_names_its_licence_and_the_repository_of_its_base(tmp_path: Path) -> None:
    """Under the names of the format."""
    metadata = llama_metadata() | {
        "general.license": "llama3",
        "general.base_model.count": 1,
        "general.base_model.0.name": "A Base",
        "general.base_model.0.repo_url": "https://huggingface.co/org/a-base",
    }
    path = write_gguf(tmp_path / "m.gguf", as_llama_cpp(llama(1)), "Q8_0", metadata=metadata)
    assert Statements("llama3", None, ("org/a-base",)) == statements_of(open_checkpoint(path))


@pytest.mark.parametrize(
    "card",
    [
        "",
        "license: mit\n",
        "---\nlicense: mit\n",
        "---\nlicense: |\n  many\n  lines\nbase_model: {a: b}\n---\n",
        "---\nlicense: 'mit\nbase_model: [../up, '']\n---\n",
        f"---\nlicense: {'x' * 201}\n---\n",
        "---\nlicense: a\u0007bell\nbase_model: &anchor org/x\n---\n",
        "\udcff".encode("utf-8", "surrogateescape").decode("latin-1") * 9,
    ],
)
def test_what_is_no_such_card_says_nothing(tmp_path: Path, card: str) -> None:
    """Without front matter, cut, of other forms, of names and texts that cannot be."""
    assert Statements() == said(tmp_path, card)


def test_a_date_that_is_none_says_nothing(tmp_path: Path) -> None:
    """The rest of the metadata counts."""
    metadata = {"modelspec.date": "yesterday", "license": "mit"}
    assert Statements("mit") == said(tmp_path, None, metadata)
