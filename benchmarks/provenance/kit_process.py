"""What runs in the environment of the Model Provenance Kit: its own scanner, on its own defaults.

Reads a request as JSON from the standard input, and writes what it found into the file that this
names. It refuses every connection, so what the kit says comes from the files alone.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch


def main() -> None:
    """Read each model once, then compare the pairs from the kit's cache."""
    asked = json.load(sys.stdin)
    socket.socket.connect = _refuse  # type: ignore[method-assign]
    torch.set_num_threads(1)
    caches = import_module("provenancekit.services.cache")
    scanners = import_module("provenancekit.core.scanner").ModelProvenanceScanner
    first = asked["models"][0]
    scanners(cache=caches.NullCache()).compare(first, first)  # loads what is loaded once
    scanner = scanners(cache=caches.CacheService(cache_dir=Path(asked["cache"])))
    models = {model: _timed(scanner, model) for model in asked["models"]}
    read = {model for model, (_, why) in models.items() if why is None}
    pairs = [_compared(scanner, pair) if {*pair} <= read else None for pair in asked["pairs"]]
    Path(asked["out"]).write_text(json.dumps({"models": models, "pairs": pairs}))


def _timed(scanner: Any, model: str) -> tuple[float, str | None]:
    """The processor time to read a model, and why it could not be read."""
    begin = time.process_time()
    try:
        scanner.compare(model, model)  # the second is had from the cache
    except Exception as error:
        return time.process_time() - begin, " ".join(str(error).split())
    return time.process_time() - begin, None


def _compared(scanner: Any, pair: list[str]) -> dict[str, Any]:
    scores = scanner.compare(*pair).scores
    return {"pipeline": scores.pipeline_score, "weights": scores.identity_score}


def _refuse(*_: Any) -> None:
    raise OSError("this process has no network")


if __name__ == "__main__":
    main()
