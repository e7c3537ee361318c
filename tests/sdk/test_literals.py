"""Type checkers see a word that no argument takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from modelkin.types.parameters import ClusteringParameters, MapParameters

ROOT = Path(__file__).parents[2]
SNIPPET = """
import modelkin

client = modelkin.Client()
values = [0.1, 0.9]
client.neighbors("s", "m", method="auto")
client.donors("s", "m", method="idf", weights="zscore")
client.clusterings.create("s", "agglomerative", linkage="single", similarity="exact", seed=1)
client.clusterings.policy.set("s", "leiden", after_changes=9, resolution=1.5, compare="whole")
client.maps.create("s", neighbors=9, wait=False)
modelkin.select_support(values, kind="fisher")
modelkin.select_signature(values, kind="adam", num_perm=64, k=1)
client.ensure_space("s", num_parameters=2, importance="delta")
client.neighbors("s", "m", method="idff")  # wrong
client.donors("s", "m", method="idff")  # wrong
client.donors("s", "m", weights="zscores")  # wrong
client.similarity("s", measure="cappa")  # wrong
client.models.list("s", order="eldest")  # wrong
client.clusterings.create("s", "leyden")  # wrong
client.clusterings.create("s", linkage="avrage")  # wrong
client.clusterings.create("s", linkages="average")  # wrong
client.clusterings.create("s", similarity="signatures", wait=False)  # wrong
client.clusterings.policy.set("s", after_changes=9, linkage="avrage")  # wrong
client.clusterings.policy.set("s", after_changes=9, n_clusters="3")  # wrong
client.maps.create("s", similarity="sketch")  # wrong
modelkin.select(values, kind="fischer")  # wrong
modelkin.select_support(values, kind="unstated")  # wrong
modelkin.select_signature(values, kind="fischer")  # wrong
client.put_importance("s", "m", values, kind="fischer")  # wrong
client.ensure_space("s", num_parameters=2, importance="fischer")  # wrong
client.jobs.list(state="done")  # wrong
client.ensure_space("s", num_parameters=9, kind="subspace")  # wrong
"""


@pytest.mark.slow
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


def test_parameters_are_those_that_the_service_takes() -> None:
    """Type checkers know each keyword of a clustering and of a map, and no other one."""
    schemas = json.loads((ROOT / "docs" / "openapi.json").read_text())["components"]["schemas"]
    arguments = {"algorithm", "tags", "models"}
    taken = {name: schemas[name]["properties"].keys() for name in ("ClusteringIn", "MapIn")}
    assert taken["ClusteringIn"] == ClusteringParameters.__annotations__.keys() | arguments
    assert taken["MapIn"] == MapParameters.__annotations__.keys()
