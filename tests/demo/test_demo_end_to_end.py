"""The demo as its user runs it: one command, a service of its own, and neighbours that are kin."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.conftest import demo
from tests.support.faults.interruptions import heed_interrupts

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One whole run, with its port already in use, ended by Ctrl-C while it serves."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        return until_ctrl_c("--port", port, "--data", str(tmp_path_factory.mktemp("demo")))


def until_ctrl_c(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs ``python -m demo`` until it serves on, and then interrupts it."""
    command = [sys.executable, "-u", "-m", "demo", *arguments]
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as process:
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("Explore the"):
                    break
            process.send_signal(signal.SIGINT)
            rest, complaints = process.communicate(timeout=30)
        finally:
            process.kill()
    return subprocess.CompletedProcess(
        command, process.returncode, "".join(said) + rest, complaints
    )


@pytest.mark.long
def test_ctrl_c_ends_serving_well(finished: subprocess.CompletedProcess[str]) -> None:
    """Without --once it prints its story and the explorer's address, serves on, and ends with 0 and
    no word of complaint on Ctrl-C. The other acts are run with --once.
    """
    assert (0, "") == (finished.returncode, finished.stderr)
    assert re.search(
        r"^Explore the models at http://127\.0\.0\.1:\d+/", finished.stdout, re.MULTILINE
    )


def test_origins_are_told(finished: subprocess.CompletedProcess[str]) -> None:
    """Of a grown vocabulary, an assembly and a copy, whatever they declare."""
    for said in (
        "vocabulary grown by 40 rows, all else of hub/base",
        "assembled: layers 0-3, embed from hub/base; layers 4-5 from hub/stranger",
        "copy of hub/base: all lines of both are equal",
    ):
        assert said in finished.stdout


def test_neighbours_are_kin(finished: subprocess.CompletedProcess[str]) -> None:
    """The service's neighbours are the true ones far beyond chance."""
    found = re.search(
        r"Mean Recall@8 over all 40 clients: (0\.\d+) \(by chance: (0\.\d+)\)", finished.stdout
    )
    assert found is not None
    recall, chance = (float(figure) for figure in found.groups())
    assert recall > 0.6 > 2 * chance


def test_donors_help_a_newcomer(finished: subprocess.CompletedProcess[str]) -> None:
    """With the same training on five examples, starting from donors is best at every count."""
    table = re.findall(r"^ (the weights|the plain|its 8 donors').* ((?:0\.\d+ *){3})$",
                       finished.stdout, re.MULTILINE)  # fmt: skip
    own, plain, donors = ([float(figure) for figure in figures.split()] for _, figures in table)
    assert all(by > other for by, *others in zip(donors, own, plain, strict=True)
               for other in others)  # fmt: skip
    assert donors[1] > own[1] + 0.03


def test_it_prints_groups_of_kin(finished: subprocess.CompletedProcess[str]) -> None:
    """The groups are the service's own, more than one of them, and each has an exemplar."""
    found = re.search(r"The service finds (\d+) groups", finished.stdout)
    assert found is not None
    assert 2 <= int(found[1]) <= 20
    assert re.search(r"digits/client-00 is in group \d+:", finished.stdout)


def test_a_taken_port_is_replaced(finished: subprocess.CompletedProcess[str]) -> None:
    """Where the port is taken it says so and serves on another."""
    assert re.search(r"Port \d+ is taken: this serves on \d+\.", finished.stdout)


def test_its_service_is_gone_afterwards(finished: subprocess.CompletedProcess[str]) -> None:
    """When the demo has ended, nothing listens at the address it printed."""
    address = re.search(r"It answers at http://127\.0\.0\.1:(\d+)", finished.stdout)
    assert address is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(address[1])), timeout=5)


def test_its_pages_know_the_digits(finished: subprocess.CompletedProcess[str]) -> None:
    """Each stored model has the digits of its client as attributes, all 40 of as many samples."""
    folder = re.search(r"embedded store in (\S+) \.\.\.", finished.stdout)
    assert folder is not None
    with contextlib.closing(sqlite3.connect(Path(folder[1]) / "modelkin.db")) as connection:
        rows = connection.execute("SELECT attributes FROM models").fetchall()
    stored = [json.loads(text) for (text,) in rows]
    assert 40 == len(stored)
    assert 1 == len({sum(each["counts"].values()) for each in stored})
    for each in stored:
        assert max(each["counts"].values()) == each["counts"][str(each["digit"])]


def test_a_folder_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    """A failure is one line on stderr and exit code 1."""
    (tmp_path / "file").touch()
    failed = demo("--once", "--data", str(tmp_path / "file" / "folder"))
    assert (1, 1) == (failed.returncode, failed.stderr.count("\n"))
    assert failed.stderr.startswith("the demo failed: ")
