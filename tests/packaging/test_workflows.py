"""The workflows of CI: what they run exists, and they may write nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())


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
