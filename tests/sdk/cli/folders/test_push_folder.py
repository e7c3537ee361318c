"""``modelkin push FOLDER``: what it sends, prints and refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelkin import Client, Layout
from tests.sdk.cli.conftest import Run, shown_on_a_terminal
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.server_process import Server, environment


@pytest.fixture
def family() -> str:
    """A name that no other test has."""
    return uuid.uuid4().hex[:8]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.fixture
def zoo(tmp_path: Path, family: str) -> Path:
    """Two models of one family, in a file and in a folder, and a pickle."""
    shapes: dict[str, tuple[int, ...]] = {f"{family}.{at}": (40, 30) for at in range(2)}
    zoo = tmp_path / "zoo"
    (zoo / "ants").mkdir(parents=True)
    (zoo / "ants" / "model.safetensors").write_bytes(safetensors(random_tensors(1, shapes)))
    (zoo / "bees.safetensors").write_bytes(safetensors(random_tensors(2, shapes)))
    (zoo / "moths.pt").write_bytes(b"")
    return zoo


def test_a_folder_in_one_command(
    run_here: Run, server: Server, client: Client, zoo: Path, family: str
) -> None:
    """The table says what became of each; the same command again changes nothing."""
    push = ("push", "zoo", "--prefix", f"{family}/", "--space", "auto", "--url", server.url)
    done = run_here(*push)
    assert 0 == done.returncode, done.stderr
    space = f"{family}-ants"
    counts, line, _, head, ants, bees, pickle = done.stdout.splitlines()
    assert ("2 created, 1 skipped", f"space {space}: 2 models, new") == (counts, line)
    assert ["MODEL", "SPACE", "STATE", "PATH", "WHY"] == head.split()
    assert [f"{family}/ants", space, "created", "ants"] == ants.split()
    assert [f"{family}/bees", space, "created", "bees.safetensors"] == bees.split()
    assert ["-", "-", "skipped", "moths.pt"] == pickle.split()[:4]
    assert "modelkin: 2 of 3 checkpoints" in done.stderr
    again = run_here(*push, "--json")
    assert {"unchanged": 2, "skipped": 1} == json.loads(again.stdout)["counts"]
    assert 2 == client.spaces.get(space).models
    (zoo / "ants" / "README.md").write_text("---\nbase_model: [unclosed\n---\n")
    unread = run_here(*push).stdout
    assert "nothing of README.md is read, no base, licence or tag: line 2 of it is no" in unread


def test_a_dry_run(run_here: Run, server: Server, client: Client, zoo: Path, family: str) -> None:
    """It names the spaces, and makes none."""
    options = ("--space", "auto", "--dry-run", "--url", server.url)
    done = run_here("push", "zoo", "--prefix", f"{family}/", *options)
    assert (0, "2 planned, 1 skipped") == (done.returncode, done.stdout.splitlines()[0])
    client.ensure_space(
        family, layout=Layout.of([(f"{family}.unlike", (17, 3))]), importance="weight"
    )
    push = ("push", "zoo", "--prefix", f"{family}/", "--space", family, "--url", server.url)
    for more in ([], ["--dry-run"]):  # the headers tell what the space refuses
        done = run_here(*push, *more)
        assert (1, "2 failed, 1 skipped") == (done.returncode, done.stdout.splitlines()[0])
        assert 1 == done.stdout.count(f"{family}.unlike")
        assert f"2 failed: it has other tensors than space '{family}'" in done.stdout
        assert "so give the space 'auto'" in done.stdout
    assert f"{family}-ants" not in [each.name for each in client.spaces.list()]


def test_a_space_that_does_not_exist(
    run_here: Run, server: Server, client: Client, zoo: Path, family: str
) -> None:
    """The error says how it is made, and names one that may be meant."""
    client.ensure_space(f"{family}-herd", num_parameters=9)
    push = ("push", "zoo", "--url", server.url, "--space")
    for more in ([], ["--dry-run"]):
        absent = run_here(*push, f"absent-{family}-none", *more)
        assert "--create makes it, and for checkpoints --space auto takes" in absent.stderr
        near = run_here(*push, f"{family}-herds", *more)
        assert f"did you mean '{family}-herd'? --create makes it" in near.stderr
        assert (1, 1) == (absent.returncode, near.returncode)


def test_an_ending_in_capitals(run_here: Run, server: Server, client: Client, zoo: Path) -> None:
    """A folder's file is read as the file by itself, and keeps its stem as its name."""
    name = zoo.parent.name.upper()
    (zoo / "bees.safetensors").rename(zoo / f"{name}.SAFETENSORS")
    to = ("--space", "auto", "--url", server.url)
    done = run_here("push", "zoo", "--prefix", "loud/", *to)
    assert 0 == done.returncode, done.stderr
    alone = run_here("push", f"zoo/{name}.SAFETENSORS", "--model", f"loud/{name}", *to)
    assert (0, "1 unchanged") == (alone.returncode, alone.stdout.splitlines()[0])


def test_what_failed_stands_first_and_is_the_exit_code(
    run_here: Run, server: Server, zoo: Path, family: str
) -> None:
    """A name that would move the cursor is escaped, and all others are stored."""
    (zoo / "\x1b[2Jcut.safetensors").write_bytes(b"x")
    (zoo / "cut.safetensors").write_bytes(b"x")
    options = ("--space", "auto", "--url", server.url)
    done = run_here("push", "zoo", "--prefix", f"{family}/", *options)
    assert (1, "2 failed, 2 created, 1 skipped") == (done.returncode, done.stdout.splitlines()[0])
    assert "\x1b" not in done.stdout
    assert "failed" in done.stdout.splitlines()[4]


def test_a_manifest_of_the_folder(
    run_here: Run, server: Server, client: Client, zoo: Path, family: str
) -> None:
    """It names models, bases and tags; a wrong line is told by its number."""
    push = ("push", "zoo", "--prefix", f"{family}/", "--space", "auto", "--url", server.url)
    (zoo / "zoo.csv").write_text(f"path,name,base,tags\nants,a,{family}/b,red; small\nbees,b,,\n")
    done = run_here(*push, "--manifest", "zoo/zoo.csv")
    assert 0 == done.returncode, done.stderr
    stored = client.models.get(f"{family}-b", f"{family}/a")
    assert (f"{family}/b", ("red", "small")) == (stored.base_model, stored.tags)
    (zoo / "zoo.csv").write_text("path,name\nants,<b>\n")
    wrong = run_here(*push, "--manifest", "zoo/zoo.csv")
    assert (1, True) == (wrong.returncode, "zoo/zoo.csv: line 2:" in wrong.stderr)


def test_a_prefix_that_does_not_fit_is_told(
    run_here: Run, server: Server, zoo: Path, family: str
) -> None:
    """Where names have it already, and where bases go without it; above the table, once."""
    to = ("--prefix", f"{family}/", "--space", "auto", "--url", server.url)
    push = ("push", "zoo", "--manifest", "zoo.csv", "--dry-run", *to)
    manifest = zoo.parent / "zoo.csv"
    manifest.write_text(f"path,name,base\nants,{family}/a,\nbees,{family}/b,{family}/a\n")
    twice = f"2 planned: its name begins with '{family}/' twice: leave out the prefix"
    assert twice in run_here(*push).stdout
    manifest.write_text("path,name,base\nants,a,\nbees,b,a\n")
    [told] = [line for line in run_here(*push).stdout.splitlines() if "its base" in line]
    assert told.startswith(f"{family}/b ")
    assert f"its base 'a' is not among these models, and '{family}/a' is: a prefix" in told
    manifest.write_text(f"path,name,base\nants,a,\nbees,b,{family}/a\n")
    assert "prefix" not in run_here(*push).stdout


def test_one_checkpoint_to_the_space_of_its_family(
    run_here: Run, server: Server, client: Client, zoo: Path, family: str
) -> None:
    """``--space auto`` works for a file, too."""
    options = ("--space", "auto", "--url", server.url, "--base-model", f"{family}/b")
    done = run_here("push", "zoo/bees.safetensors", "--model", f"{family}/bees", *options)
    assert (0, "1 created") == (done.returncode, done.stdout.splitlines()[0])
    assert f"{family}/b" == client.models.get(f"{family}-b", f"{family}/bees").base_model


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("zoo", "--base", "zoo/bees.safetensors"), "--base is for one checkpoint"),
        (("zoo", "--base-model", "acme/a"), "--base-model is for one checkpoint"),
        (("zoo", "--signature-only"), "--signature-only is for one checkpoint"),
        (("zoo/ants", "--model", "a", "--prefix", "b/"), "--prefix is for a folder"),
        (("zoo/ants", "--model", "a", "--dry-run"), "--dry-run is for a folder"),
        (("empty",), "empty holds no checkpoint"),
        (("nowhere",), "there is no file or folder 'nowhere'"),
        (("zoo/bees.safetensors",), "--model NAME is needed"),
        (("zoo", "--jobs", "0"), "threads must be 1 or more"),
        (("zoo", "--prefix", "<"), "model name"),
    ],
)
def test_what_does_not_go_together_is_refused(
    run_here: Run, server: Server, zoo: Path, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    """Before anything is sent, with the option that is wrong."""
    (tmp_path / "empty").mkdir()
    done = run_here("push", *arguments, "--space", "auto", "--url", server.url)
    assert 1 == done.returncode
    assert says in done.stderr + done.stdout


def test_a_run_that_is_killed_goes_on(
    run_here: Run, server: Server, client: Client, tmp_path: Path, family: str
) -> None:
    """What it stored stays, and the next run stores the rest and no more."""
    zoo, count = tmp_path / "many", 40
    zoo.mkdir()
    for at in range(count):
        tensors = random_tensors(at, {f"{family}.w": (300, 100)})
        (zoo / f"m{at:02}.safetensors").write_bytes(safetensors(tensors))
    push = ("push", "many", "--prefix", f"{family}/", "--space", "auto", "--url", server.url)
    words = (sys.executable, "-m", "modelkin", *push, "--jobs", "1", "--resume", "journal")
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "checkpoints" in line:
                process.send_signal(signal.SIGKILL)
                break
    stored = client.spaces.get(f"{family}-m00").models
    assert 0 < stored < count
    done = run_here(*push, "--resume", "journal", "--json")
    assert 0 == done.returncode, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert count == sum(counts.values())
    assert stored - 1 <= counts["unchanged"] <= stored
    assert count == client.spaces.get(f"{family}-m00").models


def test_a_terminal_shows_a_bar(server: Server, zoo: Path, tmp_path: Path, family: str) -> None:
    """It is drawn on standard error, with the checkpoints done."""
    options = ("--space", "auto", "--url", server.url)
    shown = shown_on_a_terminal(tmp_path, "push", "zoo", "--prefix", f"{family}/", *options)
    assert "checkpoints [" in shown
