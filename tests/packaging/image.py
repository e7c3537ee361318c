"""The image without Docker: the Dockerfile's own steps, run in a folder on what the context holds.

``python -m tests.packaging.image STATE ...`` stands for ``docker ...``. It builds and runs images
in the folder ``STATE``, and reads compose files by the parser of podman-compose. ``compose up``
starts nothing: it leaves the file in ``STATE``, with all variables replaced.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from docker.utils.build import exclude_paths

from tests.packaging.installed import copy_distribution, link_requirements

__all__ = ["Image", "context", "first_lines", "read_compose", "sh", "write_docker"]

_WITHIN = re.compile(r"(?<![\w./])/(opt|srv|var/lib/modelkin)\b")
_PROJECT = re.compile(r"'(\.[\w/]*)(\[[\w,]+\])'")
"""What ``pip install`` is given: a folder with its extras."""
_ROOTS_COMMANDS = {
    "groupadd": "exit 0",
    # As Debian's, with a skeleton of its own.
    "useradd": """
        while [ $# -gt 0 ]; do
            case $1 in --home-dir) home=$2 ;; --create-home) create=yes ;; esac
            shift
        done
        test -z "$create" || { mkdir -p "$home" && touch "$home/.profile"; }
    """,
    # The user of the tests owns what is made.
    "install": """
        for word; do
            shift
            case $word in
                --owner | --group) skip=yes ;;
                *) test -n "$skip" || set -- "$@" "$word"; skip= ;;
            esac
        done
        exec /usr/bin/install "$@"
    """,
}
"""What only root may do, done for the user of the tests."""
_ENVIRONMENT = "environment.json"
_COMPOSE = "compose.json"


def context(source: Path) -> set[Path]:
    """The files that ``docker build`` sends, by the rules of .dockerignore."""
    lines = (source / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    found = (Path(name) for name in exclude_paths(str(source), patterns))
    return {path for path in found if (source / path).is_file()}


class Image:
    """A folder that stands for the root of an image.

    Args:
        dockerfile: read for its steps.
        root: holds ``opt``, ``srv`` and ``var`` once it is built.
    """

    def __init__(self, dockerfile: Path, root: Path) -> None:
        self.root = root
        text = dockerfile.read_text().replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        self.steps = [(what, rest) for what, _, rest in (line.partition(" ") for line in lines)]

    def step(self, what: str) -> str:
        """The one step of a kind."""
        (rest,) = (rest for kind, rest in self.steps if kind == what)
        return rest

    @property
    def command(self) -> list[str]:
        """What a container of the image runs."""
        return self._here(json.loads(self.step("CMD")))

    @property
    def health_check(self) -> list[str]:
        """The command of the health check of a container."""
        return self._here(json.loads(self.step("HEALTHCHECK").partition("CMD ")[2]))

    @cached_property
    def variables(self) -> dict[str, str]:
        """The image's ENV, with its paths under the root."""
        pairs = dict(pair.split("=", 1) for pair in self.step("ENV").split())
        return {name: self.within(value) for name, value in pairs.items()}

    def within(self, text: str) -> str:
        """A text whose paths are under the root."""
        return _WITHIN.sub(rf"{self.root}/\1", text)

    def build(self, source: Path, environment: Mapping[str, str]) -> None:
        """Carry out every COPY and RUN; a file that the context lacks cannot be copied."""
        work, sent = self.root / "srv", context(source)
        self.begin()
        for what, rest in self.steps:
            if what == "FROM":  # what the stage that builds has in its folder stays behind
                shutil.rmtree(work)
                work.mkdir()
            elif what == "COPY" and not rest.startswith("--from"):
                _copy(source, sent, work, rest)
            elif what == "RUN":
                self._run_of_build(rest, environment)

    def _run_of_build(self, command: str, environment: Mapping[str, str]) -> None:
        """Leave to pip what it alone can do: itself and the others' packages take most of its
        time.
        """
        if command.startswith("python -m venv "):
            self.run(f"{command} --without-pip", environment)
            copy_distribution(self._packages, "pip")
            return
        if "pip install" in command:
            self._link_requirements(command)
        self.run(command, environment)

    @property
    def _packages(self) -> Path:
        (packages,) = self.root.glob("opt/venv/lib/python*/site-packages")
        return packages

    def _link_requirements(self, command: str) -> None:
        asked = (
            _name(self.root / "srv" / folder) + extras
            for folder, extras in _PROJECT.findall(command)
        )
        link_requirements(self._packages, *asked)

    def begin(self) -> None:
        """Make what a base has."""
        for folder in ("bin", "srv", "var/lib"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "bin" / "python").symlink_to(sys.executable)
        for name, script in _ROOTS_COMMANDS.items():
            (self.root / "bin" / name).write_text(f"#!/bin/sh\n{script}")
            (self.root / "bin" / name).chmod(0o755)

    def run(self, command: str, environment: Mapping[str, str]) -> None:
        """Carry out one RUN."""
        path = f"{self.root}/bin:{environment['PATH']}"
        # Bytecode of what is never imported takes the longest; the rest is compiled when it is.
        variables = {**environment, "PATH": path, "PIP_NO_COMPILE": "1"}
        subprocess.run(
            ["sh", "-ec", self.within(command)], cwd=self.root / "srv", env=variables, check=True
        )

    def start(
        self, command: Sequence[str], variables: Mapping[str, str], **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a command as in a container: with the variables given, and no others."""
        environment = {**self.variables, **variables}
        return subprocess.Popen(
            self._here(command), cwd=self.root / "srv", env=environment, **options
        )

    def _here(self, command: Sequence[str]) -> list[str]:
        assert command[0] in {"python", f"{self.root}/opt/venv/bin/python"}
        return [f"{self.root}/opt/venv/bin/python", *command[1:]]


def _name(project: Path) -> str:
    """What the distribution of a folder is called."""
    name: str = tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"]
    return name


def _copy(source: Path, sent: set[Path], work: Path, rest: str) -> None:
    *names, target = rest.split()
    for name in names:
        files = [path for path in sent if path == Path(name) or Path(name) in path.parents]
        if not files:
            raise FileNotFoundError(f"COPY {rest}: the context has no {name}, see .dockerignore")
        for path in files:
            to = work / (path if target in {"./", name} else Path(target) / path.name)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / path, to)


def write_docker(folder: Path, state: Path) -> None:
    """Write a command ``docker`` into ``folder`` that is this module."""
    state.mkdir()
    (state / _ENVIRONMENT).write_text(json.dumps(dict(os.environ)))
    path = os.pathsep.join(sys.path)
    script = folder / "docker"
    command = f"{sys.executable} -m tests.packaging.image {state}"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec {command} "$@"\n')
    script.chmod(0o755)


def first_lines(compose: Path) -> str:
    """The commands in the comment that a compose file begins with."""
    found = re.match(r"(?:# .*\n)+", compose.read_text())
    assert found is not None
    return found[0].replace("# ", "")


def sh(script: str, checkout: Path, bin_: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a script in an environment that is empty but for ``PATH``."""
    environment = {"PATH": f"{bin_}:/usr/bin:/bin"}
    return subprocess.run(
        ["sh", "-euc", script], cwd=checkout, env=environment, capture_output=True
    )


def read_compose(state: Path) -> dict[str, Any]:
    """The compose file that was last brought up."""
    found: dict[str, Any] = json.loads((state / _COMPOSE).read_text())
    return found


def main(state: Path, arguments: list[str]) -> int:
    """``docker build --tag NAME .``, ``run --rm NAME COMMAND...``, ``compose up --detach``."""
    match arguments:
        case ["build", "--tag", tag, "."]:
            environment = json.loads((state / _ENVIRONMENT).read_text())
            Image(Path("Dockerfile"), state / tag).build(Path.cwd(), environment)
            return 0
        case ["run", "--rm", tag, *command]:
            with Image(Path("Dockerfile"), state / tag).start(command, {}) as process:
                return process.wait()
        case ["compose", *options, "up", "--detach"]:
            parser = [sys.executable, "-m", "podman_compose", *options, "--dry-run", "config"]
            found = subprocess.run(parser, check=True, stdout=subprocess.PIPE)
            (state / _COMPOSE).write_text(json.dumps(yaml.safe_load(found.stdout)))
            return 0
    raise SystemExit(f"docker {' '.join(arguments)}: not in this stand-in")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
