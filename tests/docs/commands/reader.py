"""A reader at a terminal: commands of pages run in a folder, against the reader's service."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from app.operations.cli import find_command
from modelkin.cli import main

__all__ = ["Reader", "without_figures"]

_ADDRESS = re.compile(r"(?:http://)?(?:127\.0\.0\.1|localhost):8000")
_HOST = re.compile(r"https://[\w.-]+")
_CURL = 'curl() { command curl -sS --noproxy "*" --fail-with-body "$@"; }; set -eo pipefail\n'
_ID = re.compile(r'"id": ?"([0-9a-f-]{36})"')
_FIGURE = re.compile(
    r"mk_\w{8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|sha256:[0-9a-f]{64}|[0-9][0-9,.:-]*(\^-?[0-9]+)?"
)
_TIMEOUT_S = 60.0


def without_figures(text: str) -> str:
    """An output with 0 for each number, id and digest, and one blank for several."""
    lines = (" ".join(_FIGURE.sub("0", line).split()) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines)


@dataclass
class Reader:
    """Whoever works in a folder with a service.

    Attributes:
        url: the address of the service.
        hosts: stands for all hosts that pages name, so that nothing leaves this machine.
        instead: what this reader has in place of a name on the page.
    """

    url: str
    hosts: str
    folder: Path
    set_variable: Callable[[str, str], None]
    instead: dict[str, str] = field(default_factory=dict)
    _id: str = ""

    def run(self, command: str) -> str:
        """What a command that succeeds prints, with what it answers on standard error."""
        for name, own in self.instead.items():
            command = command.replace(name, own)
        if re.match(r"modelkin [^|]*$", command):
            return self._here(command)
        assert command.startswith("curl"), command
        command = _ADDRESS.sub(self.url, _HOST.sub(self.hosts, command))
        command = re.sub(r"\{id\}|[0-9a-f]{8}-\.\.\.", self._id, command)
        end = time.monotonic() + _TIMEOUT_S
        while True:
            done = subprocess.run(
                ["bash", "-c", _CURL + command], cwd=self.folder, capture_output=True, text=True
            )
            if "/latest" not in command or "_not_found" not in done.stdout:
                break  # else a job is at it
            assert time.monotonic() < end, done.stdout
            time.sleep(0.05)
        assert 0 == done.returncode, (command, done.stdout, done.stderr)
        if " -d " in command and (found := _ID.search(done.stdout)):
            self._id = found[1]
        return done.stdout

    def _here(self, command: str) -> str:
        """The same of ``modelkin``, within this process, which is sooner."""
        command, _, out = re.sub(r" +# .*", "", command).partition(" > ")
        words = list(_expanded(shlex.split(command)[1:]))
        shown, code = io.StringIO(), 0
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            try:
                code = _serve(words[1:]) if words[0] == "serve" else main(words)
            except SystemExit as stopped:  # of --help, and of a usage error
                code = int(stopped.code or 0)
        if "add --yes" in shown.getvalue():  # a terminal would ask, and this reader agrees
            return self._here(f"{command} --yes")
        assert code == self._expected(words), (command, shown.getvalue())
        if out:
            Path(out).write_text(shown.getvalue())
        return shown.getvalue()

    def _expected(self, words: list[str]) -> int:
        """Commands that pages show to fail name what no service has."""
        return int("mk_nope" in words)


def _serve(words: list[str]) -> int:
    """The exit code of a command of the service, which would replace this process."""
    command = find_command(words[0])
    assert command is not None, words
    return command(words[1:])


def _expanded(words: list[str]) -> Iterator[str]:
    """The words, with the files that a pattern names in its place, as a shell has them."""
    for word in words:
        found = sorted(map(str, Path().glob(word))) if "*" in word else []
        yield from found or [os.path.expandvars(word)]
