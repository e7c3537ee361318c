"""Type checkers see a word that no argument takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SNIPPET = """
import modelkin

client = modelkin.Client()
client.neighbors("s", "m", method="auto")
client.donors("s", "m", method="idf", weights="zscore")
client.neighbors("s", "m", method="idff")  # wrong
client.donors("s", "m", method="idff")  # wrong
client.donors("s", "m", weights="zscores")  # wrong
client.similarity("s", measure="cappa")  # wrong
client.models.list("s", order="oldest")  # wrong
client.clusterings.create("s", "leyden")  # wrong
client.jobs.list(state="done")  # wrong
client.ensure_space("s", num_parameters=9, kind="subspace")  # wrong
"""


def test_unknown_words_are_type_errors(tmp_path: Path) -> None:
    """mypy refuses each wrong word of a snippet, and nothing else in it."""
    path = tmp_path / "snippet.py"
    path.write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    found = {int(line.split(":")[1]) for line in errors}
    wrong = {n for n, line in enumerate(SNIPPET.splitlines(), 1) if line.endswith("# wrong")}
    assert wrong == found, done.stdout + done.stderr
