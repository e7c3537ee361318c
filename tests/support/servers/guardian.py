"""End what a run of tests has started, and remove its files, however the run ends.

Each run has one folder, which is the ``TMPDIR`` of its processes. Another process, the guardian,
waits until the run is gone: at its end, after a signal, or after a kill. Then it kills the
processes of the run and removes the folder. A process belongs to the run if its environment names
the folder, or if it works in the folder, as Postgres does.

The guardian runs this file as a script, by a Python that imports no package.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path

__all__ = ["Guardian", "guard"]

RUN = "TESTS_RUN"
"""The variable that names the folder of a run to its processes."""
ROOT = Path(__file__).resolve().parents[3]
_PREFIX = f"kin-{zlib.crc32(bytes(ROOT)):08x}-"
"""How the folders of runs of this clone begin: other clones may run at the same time.

They are short, since the path of a socket may have 107 bytes.
"""
_LOCK = 3
"""The descriptor by which a guardian holds the lock on its folder."""
_KEEP = b"keep"
_REPORTS = "pytest-of-"
"""How pytest names the folder of its folders."""
_GRACE_S = 10.0
"""The time for Postgres to remove its shared memory, which no other process can."""
_PATIENCE_S = 60.0
_PAUSE_S = 0.02


class Guardian:
    """The folder of this run, and the process that ends the run.

    Args:
        root: the folder that the new folder lies in.
    """

    def __init__(self, root: Path) -> None:
        made = Path(tempfile.mkdtemp(prefix="kin-new-", dir=root))
        lock = os.open(made, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.folder = made.rename(root / made.name.replace("kin-new-", _PREFIX))
        waiting, self._alive = os.pipe()  # the pipe ends with this process, whatever ends that
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", __file__, str(self.folder)],
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, waiting, 0), (os.POSIX_SPAWN_DUP2, lock, _LOCK)],
            setsid=True,  # signals to the group of the run do not end the guardian
        )
        os.close(waiting)
        os.close(lock)

    def keep_failed(self) -> None:
        """Keep what failed tests have written, until the next run of this clone."""
        os.write(self._alive, _KEEP)


def guard(root: Path | None = None) -> Guardian | None:
    """Make this process the first of a run, unless it belongs to one.

    Args:
        root: the folder that the folder of the run lies in; by default that of temporary files.
    """
    if RUN in os.environ:
        return None
    guardian = Guardian(root or Path(tempfile.gettempdir()))
    os.environ[RUN] = os.environ["TMPDIR"] = str(guardian.folder)
    tempfile.tempdir = None  # it may have been asked for before
    return guardian


def _watch(folder: Path) -> None:
    """Wait until the run is gone, and end what is left of it and of earlier runs."""
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for other in folder.parent.glob(f"{_PREFIX}*"):
        _end_if_left(other)
    kept = _REPORTS if sys.stdin.buffer.read() == _KEEP else ""
    _end(folder, kept)


def _end_if_left(folder: Path) -> None:
    """End a run whose guardian was killed, and remove what a run has kept."""
    with suppress(OSError):  # a guardian holds the lock, or has removed the folder
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _end(folder)
        os.close(lock)


def _end(folder: Path, kept: str = "") -> None:
    """Kill the processes of the run; remove its files, but those below names that begin so."""
    begin = time.monotonic()
    while time.monotonic() - begin < _PATIENCE_S:
        hurried = time.monotonic() - begin > _GRACE_S
        if not _kill_all(folder, hurried=hurried) and _remove(folder, kept):
            return
        time.sleep(_PAUSE_S)


def _kill_all(folder: Path, *, hurried: bool) -> bool:
    """Send every process of the run a signal; whether there was one."""
    found = [_kill(int(name), folder, hurried) for name in os.listdir("/proc") if name.isdigit()]
    return any(found)


def _kill(pid: int, folder: Path, hurried: bool) -> bool:
    """Send a process a signal if it belongs to the run; whether it does."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if pid == os.getpid() or not _belongs(pid, folder):
            return False
        patient = Path(f"/proc/{pid}/comm").read_text() == "postgres\n" and not hurried
        signal.pidfd_send_signal(process, signal.SIGQUIT if patient else signal.SIGKILL)
        signal.pidfd_send_signal(process, signal.SIGCONT)
    except OSError:  # it is another user's, or gone
        return False
    finally:
        os.close(process)
    return True


def _belongs(pid: int, folder: Path) -> bool:
    """Whether a variable of the process leads into the folder, or the process works there."""
    variables = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    if any(Path(each.partition("=")[2]).is_relative_to(folder) for each in variables):
        return True
    return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder)


def _remove(folder: Path, kept: str) -> bool:
    """Remove the files; whether none is left but those that are kept."""
    for line in Path("/proc/mounts").read_text().splitlines():
        mounted = line.split()[1]
        if mounted.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", mounted], env={}, check=False)
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    rest = [path for path in folder.iterdir() if not path.name.startswith(kept)]
    for path in rest:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    return not rest


if __name__ == "__main__":
    _watch(Path(sys.argv[1]))
