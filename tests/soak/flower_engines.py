"""Averages in shards on Flower's own engines: a simulation on Ray, and a SuperLink with SuperNodes.

``python -m tests.soak.flower_engines`` (``make soak``) makes an environment of its own beside this
one, since Flower's requirements exclude the service's. Where the packages cannot be had it says so
in one line and exits with 0. On the SuperLink one of three SuperNodes is killed while it trains:
its shard keeps its values, and the others go on with what is left. It exits with 1 where a value
that moved is not the average of those that were in the round.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FLOWER: Final = ("flwr==1.42.0",)
REQUIREMENTS: Final = (
    "ray==2.55.1",
    "certifi",
    "numpy>=2",
    "grpcio>=1.70",
    "grpcio-health-checking>=1.70",
    "protobuf>=5.28,<7",
    "cryptography>=50,<51",
    "pycryptodome>=3.18",
    "iterators>=0.0.2",
    "typer>=0.13,<0.21",
    "tomli>=2",
    "tomli-w>=1",
    "pathspec>=1.0.4",
    "prompt-toolkit>=3.0.52",
    "rich>=14,<15",
    "pyyaml",
    "requests",
    "click>=8",
    "packaging>=24,<26",
    "sqlalchemy[asyncio]>=2.0.45",
    "alembic>=1.18.1",
    "uvicorn[standard]>=0.49,<0.50",
    "fastapi>=0.138,<0.139",
    "starlette>=1.3.1,<1.4",
    "httpx>=0.28",
    "msgspec>=0.20",
    "zstandard>=0.23",
)
"""What Flower 1.42 and the SDK import; some of Flower's own pins name versions of days ago."""

_START_S, _DEATH_S, _END_S = 60.0, 120.0, 300.0
_VICTIM, _ROUND = 1, 2

APP: Final = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "shards"
version = "1.0.0"
description = ""
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "modelkin"
[tool.flwr.app.components]
serverapp = "shards.apps:server"
clientapp = "shards.apps:client"
""",
    "shards/__init__.py": "",
    "shards/apps.py": """
from tests.soak import flower_federation

client = flower_federation.client
server = flower_federation.server
""",
}


def free_port() -> int:
    """A port that no process has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def is_complete(home: Path) -> bool:
    """Whether an environment has both engines, as far as its files show."""
    ray = any(home.glob("lib/python*/site-packages/ray/__init__.py"))
    return ray and (home / "bin" / "flower-superlink").exists()


def environment(home: Path) -> str | None:
    """Make the environment, unless it is there; the reason if it cannot be made."""
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for packages in (["--no-deps", *FLOWER], list(REQUIREMENTS)):
        done = subprocess.run([*pip, *packages], capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return errors[-1] if errors else "pip failed"
    return None


@dataclass(frozen=True)
class Place:
    """Where processes run: an environment, and a folder for what they write."""

    home: Path
    folder: Path

    def variables(self) -> dict[str, str]:
        """The environment variables of all processes."""
        return {
            **os.environ,
            "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'client_sdk'}",
            "MODELKIN_TEST_FOLDER": str(self.folder),
            "FLWR_HOME": str(self.folder),
            "FLWR_TELEMETRY_ENABLED": "0",
        }

    def run(self, program: str, *arguments: str) -> str:
        """What a program of the environment prints.

        Raises:
            SystemExit: it fails.
        """
        done = subprocess.run(
            [str(self.home / "bin" / program), *arguments],
            env=self.variables(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=_END_S,
        )
        if done.returncode:
            raise SystemExit(f"{program} failed: {(done.stderr or done.stdout)[-2000:]}")
        return done.stdout

    @contextmanager
    def started(
        self, name: str, program: str, *arguments: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A process in a group of its own, all of which is killed at the end."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(self.home / "bin" / program), *arguments],
                env=self.variables(),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            kill(process)

    def wait_until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a condition.

        Raises:
            SystemExit: it does not come true in time; with the end of the SuperLink's log.
        """
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                log = (self.folder / "superlink.log").read_text(errors="replace")
                raise SystemExit(f"no {what} within {seconds:g} s: {log[-2000:]}")
            time.sleep(0.5)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def simulation(place: Place) -> str:
    """Three clients on Ray."""
    printed = place.run("python", "-m", "tests.soak.flower_federation")
    return "\n".join(printed.splitlines()[-4:])


def superlink(place: Place) -> str:
    """A SuperLink and three SuperNodes, of which one is killed while it trains."""
    folder, port = place.folder, free_port()
    for name, text in APP.items():
        path = folder / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip())
    address = f'address = "127.0.0.1:{port}"\ninsecure = true\n'
    head = '[superlink]\ndefault = "local"\n[superlink.local]\n'
    (folder / "config.toml").write_text(head + address)
    link = ("--insecure", "--port", str(port), "--disable-runtime-dependency-installation")
    log = folder / "superlink.log"
    with ExitStack() as stack:
        stack.enter_context(place.started("superlink", "flower-superlink", *link))
        place.wait_until(lambda: b"startup complete" in log.read_bytes(), _START_S, "SuperLink")
        nodes = [stack.enter_context(supernode(place, port, part)) for part in range(3)]
        active = b"[Fleet.ActivateNode] Activated"
        place.wait_until(lambda: log.read_bytes().count(active) >= 3, _START_S, "SuperNodes")
        (folder / f"die-{_VICTIM}-{_ROUND}").touch()
        place.run("flwr", "run", str(folder / "app"), "local")
        dying = folder / f"dying-{_VICTIM}"
        place.wait_until(dying.exists, _DEATH_S, "training of the victim")
        kill(nodes[_VICTIM])
        finished = b"Finished task"
        place.wait_until(lambda: finished in log.read_bytes(), _END_S, "end of the run")
    return place.run("python", "-c", _CHECK, str(folder)).strip()


def supernode(
    place: Place, port: int, part: int
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A SuperNode that holds one part of the data."""
    own = ("--port", str(free_port()), "--node-config", f"partition-id={part}")
    link = ("--insecure", "--superlink", f"127.0.0.1:{port}")
    return place.started(f"supernode-{part}", "flower-supernode", *link, *own)


_CHECK: Final = (
    "import sys, pathlib; from tests.soak.flower_federation import check; "
    "print(*check(pathlib.Path(sys.argv[1])), sep='\\n')"
)


def main() -> int:
    """Run both engines, and print what they gave."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--environment", type=Path, default=Path(sys.prefix) / "flower", help="is made if missing"
    )
    home = parser.parse_args().environment
    reason = environment(home)
    if reason is not None:
        print(f"skipped: Flower's engines cannot be installed here: {reason[:200]}")
        return 0
    for title, engine in (("Ray", simulation), ("SuperLink, one SuperNode killed", superlink)):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            lines = engine(Place(home, Path(folder)))
            print(f"{title} ({time.monotonic() - began:.0f} s):\n{lines}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
