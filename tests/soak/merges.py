"""``python -m tests.soak.merges``: parties merge checkpoints of 64 MB and of 512 MB.

Measures the peak memory of a party, which must not grow with its checkpoint, and the service's.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

import modelkin
from tests.support.http_space import Space
from tests.support.servers.server_process import Server, environment

_MEMBERS = 3
_MOST_GROWTH = 1.25


def write(path: Path, parameters: int, seed: int) -> None:
    """A checkpoint of float32, made piece by piece."""
    header = f'{{"w":{{"dtype":"F32","shape":[{parameters}],"data_offsets":[0,{4 * parameters}]}}}}'
    generator = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header.encode())
        for at in range(0, parameters, 1 << 22):
            count = min(1 << 22, parameters - at)
            file.write(generator.standard_normal(count, dtype=np.float32).tobytes())


def merge(server: Server, folder: Path, parameters: int) -> tuple[int, float]:
    """The peak memory of all children until now, in bytes, and the seconds of the merge."""
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        space = Space(http, parameters)
        names = [f"m{at}" for at in range(_MEMBERS)]
        for at, name in enumerate(names):
            space.put(name, modelkin.Support.from_indices(range(at, 3000, 3), parameters))
            write(folder / f"{name}.safetensors", parameters, at)
        http.put(f"{space.path('merges')}/m", json={"members": names}).raise_for_status()
    began = time.monotonic()
    command = (sys.executable, "-m", "modelkin", "merge", "join", "--url", server.url)
    parties = [
        subprocess.Popen(
            [
                *(*command, "--space", space.name, "--merge", "m", "--model", name),
                *(f"{name}.safetensors", "-o", f"{name}-merged.safetensors", "--examples", "1"),
            ],
            cwd=folder,
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        for name in names
    ]
    for party in parties:
        assert 0 == party.wait()
    seconds = time.monotonic() - began
    merged = {path.stat().st_size for path in folder.glob("*-merged.safetensors")}
    assert 1 == len(merged)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, seconds


def main() -> int:
    """Print both peaks; returns 1 if a party's grew."""
    peaks = []
    for parameters in (1 << 24, 1 << 27):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "service").mkdir()
            server = Server(folder / "service").start()
            try:
                peak, seconds = merge(server, folder, parameters)
                memory = server.peak_memory
            finally:
                server.stop()
        peaks.append(peak)
        sys.stdout.write(
            f"{4 * parameters >> 20} MiB a checkpoint: {peak / 1e6:.0f} MB a party at most, "
            f"{memory / 1e6:.0f} MB the service, {seconds:.1f} s\n"
        )
        sys.stdout.flush()
    return int(peaks[1] > _MOST_GROWTH * peaks[0])


if __name__ == "__main__":
    raise SystemExit(main())
