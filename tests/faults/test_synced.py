"""What the kernel saw: files, their folders and the database are synced before a 2xx leaves."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import pytest

from tests.support.backends import Backend, PostgresBackend
from tests.support.fixtures import Start
from tests.support.http_space import SUPPORT, random_support

STRACE: Final = shutil.which("strace")
pytestmark = pytest.mark.skipif(STRACE is None, reason="no strace: apt-get install strace")

_CALLS: Final = "fsync,fdatasync,rename,renameat,renameat2,write,writev,sendto,sendmsg,unlink"
_LINE: Final = re.compile(r"^(?:\[pid +)?(\d+)\]? +(?:<\.\.\. \w+ resumed>)?(.*)$")
_BEGUN: Final = " <unfinished ...>"
_ATTACHED: Final = re.compile(r"Process (\d+) attached")
_GONE: Final = re.compile(r"\(PTRACE_\w+, (\d+)[^)]*\): No such process")


@dataclass(frozen=True)
class Call:
    """A system call that has returned: its name, and its line without the process."""

    name: str
    line: str


@contextmanager
def traced(pids: Sequence[int], out: Path) -> Iterator[None]:
    """Trace these processes, and their threads, for as long as the block runs."""
    assert STRACE is not None
    command = [STRACE, "-f", "-y", "-s", "40", "-o", str(out), "-e", f"trace={_CALLS}"]
    command += [word for pid in pids for word in ("-p", str(pid))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracing:
        assert tracing.stderr is not None
        said, waited_for = "", set(pids)
        while waited_for:
            line = tracing.stderr.readline()
            said += line
            found = _ATTACHED.search(line) or _GONE.search(line)  # one of Postgres may end before
            if found is not None:
                waited_for.discard(int(found[1]))
            elif not line or "ptrace(" in line:
                tracing.kill()
                pytest.skip(f"strace may attach to no process here: {said.strip()}")
        try:
            yield
        finally:
            time.sleep(0.1)
            tracing.terminate()


def calls(out: Path) -> list[Call]:
    """The calls in the order in which they returned; those that never did are left out."""
    begun: dict[str, str] = {}
    found = []
    for text in out.read_text(errors="replace").splitlines():
        match = _LINE.match(text)
        if match is None:
            continue
        pid, rest = match.groups()
        if rest.endswith(_BEGUN):
            begun[pid] = rest.removesuffix(_BEGUN)
            continue
        line = begun.pop(pid, "") + rest if "resumed>" in text else rest
        found.append(Call(line.partition("(")[0], line))
    return found


def place(found: Sequence[Call], names: str, *words: str, begin: int = 0) -> int:
    """Where the first of these calls is that has all the words, from ``begin`` on."""
    for at, call in enumerate(found[begin:], begin):
        if call.name in names.split() and all(word in call.line for word in words):
            return at
    raise AssertionError(f"{names} {words}: not in\n" + "\n".join(call.line for call in found))


def processes_of(backend: Backend, service: int) -> list[int]:
    """The service, and Postgres: its first process, which forks others, and those that it has."""
    if not isinstance(backend, PostgresBackend):
        return [service]
    postgres = backend.server
    first = int((postgres.data / "postmaster.pid").read_text().split()[0])
    pids = postgres.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    return [service, first, *(int(pid) for (pid,) in pids)]


SYNC = "fsync fdatasync"
SEND = "write writev sendto sendmsg"


@pytest.mark.slow
def test_a_2xx_leaves_once_all_of_it_is_synced(
    backend: Backend, start: Start, tmp_path: Path
) -> None:
    """The first PUT of a space syncs its folders, the file, and after the rename the folder again;
    then the database its log; and then 201 is sent. A DELETE syncs the log before its 204.
    """
    server = start("--maintenance-interval-seconds=3600")
    rng = np.random.default_rng(3)
    log = "/pg_wal/" if backend.name == "postgres" else "m.db-wal"
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        http.post("/v1/spaces", json={"name": "s", "num_parameters": 1000})
        assert server.process.pid is not None
        out = tmp_path / "trace"
        with traced(processes_of(backend, server.process.pid), out):
            content = random_support(rng, 1000, 50).to_bytes()
            headers = {"Content-Type": SUPPORT}
            put = http.put("/v1/spaces/s/supports/a", content=content, headers=headers)
            deleted = http.delete("/v1/spaces/s/models/a")
    assert (201, 204) == (put.status_code, deleted.status_code)
    found = calls(out)
    folders = place(found, SYNC, str(server.blobs))
    file = place(found, SYNC, ".part", begin=folders)
    renamed = place(found, "rename renameat renameat2", ".part", begin=file)
    key = re.findall(r'"([^"]+)"', found[renamed].line)[-1]
    folder = place(found, SYNC, f"<{Path(key).parent}>", begin=renamed)
    committed = place(found, SYNC, log, begin=folder)
    answered = place(found, SEND, "HTTP/1.1 201")
    assert committed < answered
    for at in (folders, file, renamed, folder, committed):
        assert found[at].line.endswith("= 0"), found[at]
    again = place(found, SYNC, log, begin=answered)
    assert again < place(found, SEND, "HTTP/1.1 204")
