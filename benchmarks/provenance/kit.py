"""Cisco's Model Provenance Kit, from its package, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.provenance import kit_process
from benchmarks.provenance.pairs import Pair, models_of
from benchmarks.provenance.scores import decided
from benchmarks.provenance.tools import Answers, Costs

__all__ = ["PACKAGES", "ProvenanceKit", "installed"]

PACKAGES: Final = ("cisco-ai-provenance-kit==1.0.0", "structlog==26.1.0")
"""The kit, and what it imports that the development environment does not have."""
THRESHOLD: Final = 0.75
"""Its ``SIMILARITY_THRESHOLD``: beyond it are its "high-confidence" and "confirmed" matches."""
WEAK: Final = 0.65
"""Where its "weak match" begins."""
KIT: Final = "kit"
"""Its name in tables."""


def installed(folder: Path) -> Path:
    """Install the kit into a folder that nothing else imports from.

    Torch, transformers and what these need are the development environment's. The kit asks for
    Python 3.12; its code runs unchanged on 3.11, which is why pip does not check that.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--ignore-requires-python", "--disable-pip-version-check", "--no-input"]
    subprocess.run([*command, "--target", str(folder), *PACKAGES], check=True)
    return folder


class ProvenanceKit:
    """The kit's comparison of two models, with all defaults.

    Args:
        environment: the folder that it is installed in.
    """

    def __init__(self, environment: Path) -> None:
        self._environment = environment

    def answers(self, pairs: Sequence[Pair]) -> Answers:
        """Compare the pairs in a process of the kit's environment, without a network."""
        models = models_of(pairs)
        with tempfile.TemporaryDirectory(prefix="modelkin-kit-") as name:
            cache = Path(name) / "cache"
            found = self._run(cache, Path(name) / "found.json", models, pairs)
            costs = _costs(found["models"], cache)
        score = [each and each["pipeline"] for each in found["pairs"]]
        weights = [each and each["weights"] for each in found["pairs"]]
        verdicts = {
            KIT: decided(score, THRESHOLD),
            f"{KIT}, weak matches too": decided(score, WEAK),
            f"{KIT}, weights alone": decided(weights, THRESHOLD),
        }
        return Answers(verdicts, {KIT: score, f"{KIT}, weights alone": weights}, costs)

    def _run(self, cache: Path, out: Path, models: list[Path], pairs: Sequence[Pair]) -> Any:
        asked = {
            "cache": str(cache),
            "out": str(out),
            "models": [str(model) for model in models],
            "pairs": [[str(pair.first), str(pair.second)] for pair in pairs],
        }
        env = os.environ | {
            "PYTHONPATH": str(self._environment),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, kit_process.__file__],
            input=json.dumps(asked),
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the kit's process ended with {done.returncode}: {done.stderr}")
        return json.loads(out.read_text())


def _costs(models: dict[str, tuple[float, str | None]], cache: Path) -> Costs:
    costs = Costs()
    for model, (seconds, why) in models.items():
        path = Path(model)
        costs.seconds[path] = seconds
        if why is not None:
            costs.unread[path] = why
        else:
            costs.kept[path] = sum(f.stat().st_size for f in cache.glob(f"*__{path.name}.json"))
    return costs
