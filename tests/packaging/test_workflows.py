"""The workflows of CI: what they run exists, and only a tag of a person publishes anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
RELEASE = ROOT / ".github" / "workflows" / "release.yml"


@pytest.fixture
def jobs() -> dict[str, dict[str, Any]]:
    """The jobs of the workflow of a release."""
    workflow: dict[Any, Any] = yaml.safe_load(RELEASE.read_text())
    assert {"push": {"tags": ["v*"]}, "workflow_dispatch": None} == workflow[True]
    found: dict[str, dict[str, Any]] = workflow["jobs"]
    return found


def test_only_a_tag_publishes_and_a_person_agrees(jobs: dict[str, dict[str, Any]]) -> None:
    """Started by hand it is a dry run: no job that may write begins. No token is kept."""
    writing = {name: job for name, job in jobs.items() if "permissions" in job}
    assert {"publish-wheels", "publish-image"} == writing.keys()
    for job in writing.values():
        assert "github.event_name == 'push' && github.ref_type == 'tag'" == job["if"]
        assert "release" == job["environment"]
        assert ["wheels", "image"] == job["needs"]
    for name in jobs.keys() - writing.keys():
        used = [step["uses"] for step in jobs[name]["steps"] if "uses" in step]
        assert all(each.startswith("actions/") for each in used)
    assert {"id-token": "write"} == writing["publish-wheels"]["permissions"]
    assert "secrets." not in RELEASE.read_text()


def test_wheels_that_were_tried_are_published(jobs: dict[str, dict[str, Any]]) -> None:
    """The job that may publish builds nothing: it takes the files of the other."""
    release, given = jobs["wheels"]["steps"][2:]
    taken, publish = jobs["publish-wheels"]["steps"]
    assert "make release" == release["run"]
    assert {"name": "dist", "path": "dist"} == taken["with"]
    assert given["with"].items() >= taken["with"].items()
    assert "run" not in publish


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_make_and_only_reads(path: Path) -> None:
    """Each command is a target of the Makefile; each file that starts it is there."""
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    assert {"contents": "read"} == workflow["permissions"]
    targets = re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]
    assert commands
    assert {*commands} <= {f"make {target}" for target in targets}
    started = workflow[True]  # YAML 1.1 reads "on" so
    events = [event for event in started.values() if isinstance(event, dict)]
    patterns = [pattern for event in events for pattern in event.get("paths", ())]
    assert all(any(ROOT.glob(pattern)) for pattern in patterns)
