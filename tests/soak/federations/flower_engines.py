"""Federations on Flower's own engines: a simulation on Ray, and a SuperLink with SuperNodes.

``python -m tests.soak.federations.flower_engines`` (``make soak``) makes an environment of its own
beside this one, since Flower's requirements exclude the service's. Where the packages
cannot be had it says so in one line and exits with 0. One federation averages in shards, one
shares learngenes by data. On the SuperLink a SuperNode of each is killed while it trains, and in
the second another one joins. In a third one a client is slower than its rounds. It exits with 1
where a value that moved is not the average of those that were in the round, or where another claim
of a federation's ``check`` does not hold.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.docs.pages import blocks, marked_blocks
from tests.support.servers.ports import free_port

ROOT: Final = Path(__file__).resolve().parents[3]
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

EXAMPLE: Final = ("-c", str(ROOT / "constraints.txt"), "torch", "safetensors", "scikit-learn")
"""What the app of ``examples/flower`` imports beside these."""

_FINISHED: Final = b"Finished task"

_START_S, _DEATH_S, _END_S = 60.0, 120.0, 600.0
_APP: Final = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "federation"
version = "1.0.0"
description = ""
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "modelkin"
[tool.flwr.app.components]
serverapp = "federation.apps:server"
clientapp = "federation.apps:client"
""",
    "federation/__init__.py": "",
    "federation/apps.py": """
from tests.soak.federations import {module}

client = {module}.client
server = {module}.server
""",
}


@dataclass(frozen=True)
class Federation:
    """Apps that run on both engines.

    Attributes:
        module: of ``tests.soak.federations``: its apps, and ``check`` of what they wrote.
        nodes: how many SuperNodes there are at first.
        death: the file that asks for a death; empty where the server asks for it.
        joins: whether another SuperNode joins when the server asks for it.
        dies: whether a SuperNode is killed while it trains.
    """

    module: str
    nodes: int
    death: str = ""
    joins: bool = False
    dies: bool = True


SHARDS: Final = Federation("flower_federation", 3, death="die-1-2")
LEARNGENES: Final = Federation("flower_learngenes", 6, joins=True)
LATE: Final = Federation("flower_late", 4, dies=False)


def is_complete(home: Path) -> bool:
    """Whether an environment has both engines, as far as its files show."""
    modules = [any(home.glob(f"lib/python*/site-packages/{name}")) for name in ("ray", "sklearn")]
    return all(modules) and (home / "bin" / "flower-superlink").exists()


def environment(home: Path) -> str | None:
    """Make the environment, unless it is there; the reason if it cannot be made."""
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for packages in (["--no-deps", *FLOWER], list(REQUIREMENTS), list(EXAMPLE)):
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


def simulation(place: Place, federation: Federation) -> str:
    """All clients on Ray: a line for each round, and one for all."""
    place.run("python", "-m", f"tests.soak.federations.{federation.module}")
    return checked(place, federation)


def checked(place: Place, federation: Federation) -> str:
    """What the clients and the server wrote, checked."""
    names = f"import sys, pathlib; from tests.soak.federations.{federation.module} import check"
    code = f"{names}; print(*check(pathlib.Path(sys.argv[1])), sep='\\n')"
    return place.run("python", "-c", code, str(place.folder)).strip()


def superlink(place: Place, federation: Federation) -> str:
    """A SuperLink and SuperNodes, of which one is killed while it trains if the federation says."""
    folder, port = place.folder, free_port()
    for name, text in _APP.items():
        path = folder / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip().replace("{module}", federation.module))
    log = folder / "superlink.log"
    with ExitStack() as stack:
        stack.enter_context(link(place, port))
        count = federation.nodes
        nodes = [stack.enter_context(supernode(place, port, part)) for part in range(count)]
        active = b"[Fleet.ActivateNode] Activated"
        place.wait_until(lambda: log.read_bytes().count(active) >= count, _START_S, "SuperNodes")
        if federation.death:
            (folder / federation.death).touch()
        place.run("flwr", "run", str(folder / "app"), "local")
        if federation.dies:
            place.wait_until(lambda: dying(folder) is not None, _DEATH_S, "training of the victim")
            kill(nodes[dying(folder) or 0])
        if federation.joins:
            place.wait_until((folder / "join").exists, _DEATH_S, "round without the victim")
            stack.enter_context(supernode(place, port, count))
        place.wait_until(lambda: _FINISHED in log.read_bytes(), _END_S, "end of the run")
    return checked(place, federation)


def example(place: Place) -> str:
    """The app of ``examples/flower`` by ``flwr run``, on a SuperLink that simulates its clients.

    What it prints: who is in which cluster, the accuracy by round, and where the models are.

    Raises:
        SystemExit: the federation did not end, of which ``flwr run`` says nothing in its exit code.
    """
    app = (str(ROOT / "examples" / "flower"), "local", "--stream")
    nodes = ("--federation-config", "num-supernodes=12 client-resources-num-cpus=1")
    models = ("--run-config", f"models='{place.folder / 'models'}'")
    with link(place, free_port(), "--simulation", "--isolation", "subprocess"):
        printed = place.run("flwr", "run", *app, *nodes, *models).splitlines()
    last = ("round 5, cluster", "accuracy by round", "models:")
    if not any(line.startswith(last[-1]) for line in printed):
        raise SystemExit(f"examples/flower did not end: {chr(10).join(printed)[-2000:]}")
    return "\n".join(line for line in printed if line.startswith(last))


def guide(place: Place) -> str:
    """What the file of the guide in docs/flower.md prints, as its reader runs it.

    Raises:
        SystemExit: its last lines do not name the sites that the page names.
    """
    _, _, rest = (ROOT / "docs" / "flower.md").read_text().partition("## In 45 lines")
    section, _, _ = rest.partition("\n## ")
    run, promised = marked_blocks(section)
    code = [text for kind, text in blocks(section) if kind == "python"]
    (place.folder / "federation.py").write_text("\n\n".join([*code, run]))
    printed = place.run("python", "federation.py").splitlines()
    said = "\n".join(line for line in printed if line.startswith(("(", "newcomer:")))
    if _words(said) != _words(promised):
        raise SystemExit(f"docs/flower.md does not say what its guide prints: {said}")
    return said


def _words(text: str) -> list[str]:
    """A text's words but for decimals and numbers of clusters, which may differ."""
    return re.sub(r"\d\.\d+|cluster \d+", "", text).split()


@contextmanager
def link(place: Place, port: int, *options: str) -> Iterator[None]:
    """A SuperLink that ``flwr run`` finds as ``local``."""
    address = f'address = "127.0.0.1:{port}"\ninsecure = true\n'
    head = '[superlink]\ndefault = "local"\n[superlink.local]\n'
    (place.folder / "config.toml").write_text(head + address)
    arguments = ("--insecure", "--port", str(port), "--disable-runtime-dependency-installation")
    log = place.folder / "superlink.log"
    with place.started("superlink", "flower-superlink", *arguments, *options):
        place.wait_until(lambda: b"startup complete" in log.read_bytes(), _START_S, "SuperLink")
        yield


def dying(folder: Path) -> int | None:
    """The part of the client that waits for its death."""
    marks = [each.name.removeprefix("dying-") for each in folder.glob("dying-*")]
    return int(marks[0]) if marks else None


def supernode(
    place: Place, port: int, part: int
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A SuperNode that holds one part of the data."""
    own = ("--port", str(free_port()), "--node-config", f"partition-id={part}")
    there = ("--insecure", "--superlink", f"127.0.0.1:{port}")
    return place.started(f"supernode-{part}", "flower-supernode", *there, *own)


def main() -> int:
    """Run all federations on both engines, and print what they gave."""
    parser = argparse.ArgumentParser(description="Federations on Flower's own engines.")
    parser.add_argument(
        "--environment", type=Path, default=Path(sys.prefix) / "flower", help="is made if missing"
    )
    home = parser.parse_args().environment
    reason = environment(home)
    if reason is not None:
        print(f"skipped: Flower's engines cannot be installed here: {reason[:200]}")
        return 0
    apps: list[tuple[str, Callable[[Place], str]]] = []
    for what, federation in (("Shards", SHARDS), ("Learngenes by data", LEARNGENES)):
        apps.append((f"{what}: Ray", partial(simulation, federation=federation)))
        killed = f"{what}: SuperLink, one SuperNode killed"
        apps.append((killed, partial(superlink, federation=federation)))
    apps.append(("A late client: SuperLink", partial(superlink, federation=LATE)))
    apps += [("The guide of docs/flower.md", guide), ("examples/flower", example)]
    for title, app in apps:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            lines = app(Place(home, Path(folder)))
            took = time.monotonic() - began
            print(f"{title} ({took:.0f} s):\n{lines}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
