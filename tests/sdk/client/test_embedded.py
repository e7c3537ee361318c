"""Clients with a service of their own: what they share, what they say, what they leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import modelkin
from modelkin.client._transport.embedded import EmbeddedService
from modelkin.errors import InvalidParameter
from tests.support.servers.waiting import wait_for

SUPPORT = modelkin.Support.from_indices(range(10), 1000)
KILLED = """
import os, sys, modelkin
client = modelkin.Client(path=sys.argv[1])
client.ensure_space("a", num_parameters=1000)
print("ready", flush=True)
sys.stdin.read()
"""


def services_of(parent: int) -> dict[int, Path]:
    """The folders of the embedded services that a process has started, by their process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            started_by = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(started_by) == parent and any(each.startswith("--listen-fd=") for each in words):
                data = next(word for word in reversed(words) if word.startswith("/"))
                found[int(folder.name)] = Path(data)
    return found


def lives(pid: int) -> bool:
    """Whether the process runs; one that has ended and is not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.long
@pytest.mark.slow
def test_a_folder_keeps_its_models(tmp_path: Path) -> None:
    """Two clients of one process share a service; the next one finds what they stored."""
    folder, settings = tmp_path / "kin", {"quota_spaces": 1}
    with (
        modelkin.Client(path=folder, settings=settings) as one,
        modelkin.Client(path=folder) as two,
    ):
        assert one.url == two.url
        with pytest.raises(InvalidParameter, match="with other settings"):
            modelkin.Client(path=folder, settings={"quota_spaces": 2})
        one.ensure_space("a", num_parameters=1000)
        two.put_support("a", "m", SUPPORT)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{one.url}/livez", trust_env=False)
    refused: list[str] = []
    with modelkin.Client(path=str(folder)) as client:
        assert SUPPORT == client.supports.get("a", "m")
        rival = EmbeddedService(folder)  # as another process does
        try:
            rival.wait()
        except modelkin.ConnectionFailed as error:
            refused.append(str(error))
        finally:
            rival.close()
    assert "another process embeds the service" in refused[0]
    assert "modelkin serve" in refused[0]


@pytest.mark.slow
def test_memory_is_deleted_with_the_client() -> None:
    """``:memory:`` leaves no folder and no process; its service has the given settings."""

    async def asked() -> tuple[Path, int]:
        async with modelkin.AsyncClient(":memory:", settings={"quota_spaces": 1}) as client:
            await client.ensure_space("a", num_parameters=1000)
            with pytest.raises(modelkin.ServerError, match="quota spaces"):
                await client.ensure_space("b", num_parameters=1000)
            ((pid, folder),) = services_of(os.getpid()).items()
            assert folder.is_dir()
            return folder, pid

    folder, pid = asyncio.run(asked())
    assert (False, False) == (folder.exists(), lives(pid))


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_parent_leaves_no_service(tmp_path: Path) -> None:
    """The service of a notebook whose kernel is killed ends by itself."""
    parent = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    (pid,) = services_of(parent.pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not lives(pid))
    parent.stdin.close()
    parent.stdout.close()


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error comes from the constructor, and names the pip command."""
    monkeypatch.setattr("modelkin._server_folder.CLONE", tmp_path)
    with pytest.raises(modelkin.MissingExtra, match=r"pip install 'modelkin\[server\]'"):
        modelkin.Client(":memory:")


def test_what_can_be_no_folder_is_refused(tmp_path: Path) -> None:
    """A file, an argument of another type, and a URL beside a folder."""
    file = tmp_path / "file"
    file.touch()
    below, url = {"path": file / "below"}, {"url": "http://a.test", "path": tmp_path}
    for arguments in ({"path": file}, {"path": 7}, below, url):
        with pytest.raises(modelkin.InvalidInput):
            modelkin.Client(**arguments)


@pytest.mark.parametrize("value", [7, ["quota_spaces"], {1: 2}, {"a": [1]}, {"a": float("nan")}])
def test_settings_are_plain_values_by_name(value: Any) -> None:
    """Said at once; what the service knows is said by it, below."""
    with pytest.raises(InvalidParameter) as raised:
        modelkin.Client(":memory:", settings=value)
    assert "settings" == raised.value.field


@pytest.mark.parametrize("client", [modelkin.Client, modelkin.AsyncClient])
@pytest.mark.parametrize("url", [None, "http://kin.test"])
def test_settings_of_a_service_elsewhere_are_refused(client: Any, url: str | None) -> None:
    """Who starts it gives it its settings."""
    with pytest.raises(InvalidParameter, match="service that the client starts") as raised:
        client(url, settings={"max_learngene_bytes": 1})
    assert "settings" == raised.value.field


@pytest.mark.slow
def test_a_service_refuses_settings_by_their_names() -> None:
    """Each call says so, and no process is left."""
    client = modelkin.Client(":memory:", settings={"max_learngenes_bytes": 1 << 20})
    for _ in range(2):
        with pytest.raises(InvalidParameter, match="did you mean 'max_learngene_bytes'"):
            list(client.spaces.list())
    client.close()
    assert {} == services_of(os.getpid())


@pytest.mark.slow
def test_a_failing_start_says_why(tmp_path: Path) -> None:
    """The call that waits for the service names a file that holds no database."""
    (tmp_path / "modelkin.db").write_text("this was never a database" * 100)
    client = modelkin.Client(path=tmp_path)
    with pytest.raises(modelkin.ConnectionFailed, match="cannot start"):
        list(client.spaces.list())
    client.close()


def test_a_service_that_ends_by_itself_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log is gone with its temporary folder, so its last lines are in the error."""
    ended = "import shutil, sys; shutil.rmtree(sys.argv[1]); sys.exit('no module of it: nowhere')"
    command = lambda _, *arguments: [sys.executable, "-c", ended, *arguments]  # noqa: E731
    monkeypatch.setattr("modelkin.client._transport.embedded.server_command", command)
    client = modelkin.Client(":memory:")
    with pytest.raises(modelkin.ConnectionFailed, match="by itself: no module of it: nowhere"):
        list(client.spaces.list())
    client.close()
