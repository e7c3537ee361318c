"""``python -m tests.soak.large_checkpoint``: a checkpoint of 2 GB and its base through a service.

Measures the service's peak memory, which has to stay under 1 GB.

Both are of bfloat16, a billion parameters each, written to a temporary folder and served from it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import struct
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.support.servers.server_process import Server

_ROWS, _COLUMNS = 4096, 4096
_LIMIT = 1 << 30


class Large:
    """A checkpoint on disk.

    Args:
        size: bytes of weights, or somewhat more.
        seed: of the weights.
    """

    def __init__(self, path: Path, size: int, seed: int) -> None:
        self.path = path
        tensor = _ROWS * _COLUMNS * 2
        header, at = {}, 0
        for number in range(-(-size // tensor)):
            header[f"layers.{number:03}.weight"] = {
                "dtype": "BF16",
                "shape": [_ROWS, _COLUMNS],
                "data_offsets": [at, at + tensor],
            }
            at += tensor
        encoded = json.dumps(header).encode()
        digest = hashlib.sha256()
        generator = np.random.default_rng(seed)
        with path.open("wb") as file:
            for piece in (struct.pack("<Q", len(encoded)), encoded):
                file.write(piece)
                digest.update(piece)
            for _ in header:
                weights = generator.standard_normal(_ROWS * _COLUMNS, dtype=np.float32)
                halves = (weights.view(np.uint32) >> 16).astype("<u2").tobytes()
                file.write(halves)
                digest.update(halves)
        self.digest = digest.hexdigest()
        self.size = path.stat().st_size


class _Hub(BaseHTTPRequestHandler):
    """As much of a hub as ingestion asks for."""

    models: dict[str, Large]

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        name = next(name for name in self.models if f"/{name}" in self.path)
        large = self.models[name]
        if not self.path.startswith("/api/"):
            self.send_response(200)
            self.send_header("Content-Length", str(large.size))
            self.end_headers()
            with large.path.open("rb") as file:
                shutil.copyfileobj(file, self.wfile, 1 << 20)
            return
        lfs = {"sha256": large.digest, "size": large.size}
        encoded = json.dumps(
            {
                "id": name,
                "sha": "1" * 40,
                "cardData": {"base_model": "org/base"} if name == "org/tuned" else {},
                "siblings": [{"rfilename": "model.safetensors", "size": large.size, "lfs": lfs}],
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)


def ingest(folder: Path, url: str) -> tuple[dict[str, Any], int, float]:
    """The job as it ended, the service's peak of memory, and the seconds that it took."""
    server = Server(folder, "--egress-allow=127.0.0.1").start()
    try:
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
            made = {"kind": "huggingface", "space": "large", "secret": "s", "url": url}
            asked = {**made, "poll_seconds": None}
            source = http.post("/v1/sources", json=asked).raise_for_status().json()["id"]
            began = time.monotonic()
            payload = {
                "event": {"action": "update", "scope": "repo.content"},
                "repo": {"type": "model", "name": "org/tuned", "headSha": "1" * 40},
            }
            hook = http.post(f"/v1/hooks/{source}", json=payload, headers={"X-Webhook-Secret": "s"})
            hook.raise_for_status()
            while True:
                [job] = http.get("/v1/jobs", params={"kind": "ingest"}).json()["items"]
                if job["state"] in {"succeeded", "failed", "cancelled"}:
                    return job, server.peak_memory, time.monotonic() - began
                time.sleep(0.5)
    finally:
        server.stop()


def main() -> int:
    """Prints what it takes; 1 if that is too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    size = int(parser.parse_args().gigabytes * 1e9)
    with tempfile.TemporaryDirectory(prefix="modelkin-large-") as name:
        folder = Path(name)
        models = {
            "org/tuned": Large(folder / "tuned", size, 1),
            "org/base": Large(folder / "base", size, 2),
        }
        hub = ThreadingHTTPServer(("127.0.0.1", 0), type("Hub", (_Hub,), {"models": models}))
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        try:
            job, peak, seconds = ingest(folder, f"http://127.0.0.1:{hub.server_port}")
        finally:
            hub.shutdown()
            hub.server_close()
    print(json.dumps(job["result"] or job["error"], indent=1))
    print(
        f"{models['org/tuned'].size / 1e9:.2f} GB against a base of as much: {seconds:.0f} s, "
        f"peak memory of the service {peak / 2**20:.0f} MiB"
    )
    return int(job["state"] != "succeeded" or peak >= _LIMIT)


if __name__ == "__main__":
    sys.exit(main())
