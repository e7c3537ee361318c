"""What the largest documents of a hub cost the process that reads them, and what others wait.

``python -m benchmarks.hub_documents`` reads each document in a process of its own, as a sync or a
poll does: a header of 200,000 tensors, and answers of 16 MiB from a hub on loopback. It prints the
seconds of clock and processor, the memory at most beyond that before, and the longest that another
thread of the process waited for its turn. It fails where a document takes more than a second of the
processor or 100 MB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from app.hubs.clients.http import HubHttpClient, TransferLimits
from app.hubs.clients.huggingface import HuggingFace
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.client import Egress
from modelkin.core.safetensors_header import parse_header
from modelkin.errors import ModelkinError
from tests.support.servers.fake_huggingface import answering, loopback_hub

_MAX_SECONDS: Final = 1.0
_MAX_MEGABYTES: Final = 100.0
_TENSORS: Final = 200_000
_ANSWER_BYTES: Final = 16 << 20
_TICK_S: Final = 0.001


def header() -> bytes:
    """A header of 11 MB: 200,000 tensors without elements."""
    tensor = b'"%06d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    return b"{%b}" % b",".join(tensor % number for number in range(_TENSORS))


def repeated(item: str, beside: int = 2) -> bytes:
    """A list of 16 MiB, less the bytes beside it, of an item in which ``%d`` is its number."""
    count = (_ANSWER_BYTES - beside) // (len(item % 10**6) + 1)
    return f"[{','.join(item % (10**6 + number) for number in range(count))}]".encode()


def repository() -> bytes:
    """The description of a repository of as many files as 16 MiB hold."""
    lfs = f'"lfs":{{"sha256":"{"0" * 64}","size":1,"pointerSize":134}}'
    sibling = f'{{"rfilename":"a/%d.safetensors","size":1,"blobId":"{"0" * 40}",{lfs}}}'
    return b'{"id":"org/a","sha":"1","siblings":%b}' % repeated(sibling, 60)


def page() -> bytes:
    """A page of a hundred models of many files."""
    count = _ANSWER_BYTES // 100 // 38
    files = [{"rfilename": f"a/{number:06}.safetensors"} for number in range(count)]
    models = [{"id": f"org/{n}", "sha": "1", "tags": [], "siblings": files} for n in range(100)]
    return json.dumps(models, separators=(",", ":")).encode()


DOCUMENTS: Final[dict[str, Callable[[], bytes]]] = {
    "header": header,
    "repository": repository,
    "page": page,
    "objects": lambda: repeated('{"a":%d}'),
    "names": lambda: repeated('{"id":"org/%d"}'),
    "texts": lambda: repeated('"%d"'),
}


class Bystander:
    """A thread that wants to run each millisecond.

    Attributes:
        longest: the longest that it waited beyond that, in seconds.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = time.perf_counter()
        while not self._done.wait(_TICK_S):
            now = time.perf_counter()
            self.longest = max(self.longest, now - last - _TICK_S)
            last = now

    def end(self) -> None:
        """Stop the thread."""
        self._done.set()
        self._thread.join()


def read(name: str, url: str) -> None:
    """Read a document once, after a small one of its kind, and print what that cost."""
    data = header() if name == "header" else b""
    egress = Egress(Allowlist.parse("127.0.0.1"))
    limits = TransferLimits(checkpoint_bytes=1)
    transfer = HubHttpClient(
        url, egress, authorization=None, limits=limits, refusal=lambda *_: None
    )

    def work(small: bool = False) -> None:
        hub = HuggingFace(transfer)
        with suppress(ModelkinError):
            if name == "header":
                parse_header(b"{}" if small else data, 10 if small else 8 + len(data), "x")
            elif name == "repository":
                hub.look_up("small" if small else "org/a")
            else:
                list(hub.models({"owners": ["small"]} if small else {}))

    with closing(transfer):
        work(small=True)
        bystander, before = Bystander(), memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak is that from now on
        began, worked = time.perf_counter(), time.process_time()
        work()
        took, worked = time.perf_counter() - began, time.process_time() - worked
        bystander.end()
    print(took, worked, memory("VmHWM") - before, bystander.longest)


def memory(name: str) -> float:
    """A figure of this process's memory, in MB."""
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name)]
    return int(line.split()[1]) * 1024 / 1e6


def measure(name: str, runs: int) -> bool:
    """Print the figures of a document; whether its limits were kept."""
    document, kept = DOCUMENTS[name](), True
    with loopback_hub() as hub:
        hub.on_hub = lambda request: answering(200, b"{}" if "small" in request.path else document)(
            request
        )
        for _ in range(runs):
            command = [sys.executable, "-m", "benchmarks.hub_documents", "--read", name, hub.url]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            clock, processor, added, longest = map(float, printed.split())
            kept = kept and processor <= _MAX_SECONDS and added <= _MAX_MEGABYTES
            print(
                f"{name}, {len(document) / 1e6:.1f} MB: {clock:.2f} s, busy {processor:.2f} s, "
                f"{added:.0f} MB, others wait {longest * 1000:.0f} ms at most",
                flush=True,
            )
    return kept


def main() -> int:
    """Exit 1 where a document takes more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--read", nargs=2, metavar=("DOCUMENT", "URL"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.read:
        read(*asked.read)
        return 0
    kept = [measure(name, asked.runs) for name in DOCUMENTS]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
