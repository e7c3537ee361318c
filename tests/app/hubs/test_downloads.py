"""What is downloaded lies in a folder that goes with its job, however that ends."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import sys
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.hubs.clients.http import HubHttpClient, TransferLimits
from app.hubs.clients.protocol import HubFile
from app.hubs.ingestion.files.checkpoint_files import choose
from app.hubs.ingestion.files.downloads import Downloads
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.client import Egress
from app.infra.errors import StorageFull, Unavailable, explain
from modelkin.errors import InvalidCheckpoint
from tests.support.app.harness import open_hub_app
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import Handler, Hub

_HOLDER = """
import sys, time
from pathlib import Path
from app.hubs.ingestion.files.downloads import Downloads
with Downloads(Path(sys.argv[1])).directory() as directory:
    directory.reserve(1 << 30)
    (directory.path / "model.safetensors").write_bytes(b"half of it")
    print(directory.path, flush=True)
    time.sleep(60)
"""


def test_a_folder_goes_with_its_block(tmp_path: Path) -> None:
    """With all that is in it, and when the block raises as well."""
    downloads = Downloads(tmp_path / "d")
    for error in (None, ValueError):
        with pytest.raises(error) if error else nullcontext(), downloads.directory() as directory:
            (directory.folder("inner") / "x").write_bytes(b"x")
            if error is not None:
                raise error
        assert not directory.path.exists()


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    """Sweeps keep the folder of a running process; the first one after a kill removes it."""
    root = tmp_path / "d"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(root)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    downloads = Downloads(root)
    with downloads.directory() as own:
        assert 0 == downloads.sweep()
        assert folder.is_dir()
        assert own.path.is_dir()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
        assert 1 == downloads.sweep()
        assert not folder.exists()
        assert own.path.is_dir()
    assert 0 == Downloads(tmp_path / "never").sweep()


def test_a_full_disk_is_told_before(tmp_path: Path) -> None:
    """What the disk cannot hold is refused."""
    with Downloads(tmp_path).directory() as directory:
        directory.reserve(1)
        with pytest.raises(StorageFull, match="are to be downloaded"):
            directory.reserve(1 << 60)


def test_what_is_promised_to_others_is_not_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Concurrent downloads share the disk: each must fit beside what the others have yet to write.

    A reservation ends with its download, or when its bytes have been written.
    """
    usage = shutil.disk_usage(tmp_path)
    free = (256 << 20) + (10 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    with Downloads(tmp_path).directory() as first:
        with Downloads(tmp_path).directory() as second:
            first.reserve(8 << 20)
            second.reserve(2 << 20)
            with pytest.raises(StorageFull, match="other running downloads"):
                second.reserve(3 << 20)
            (first.path / "x").write_bytes(bytes(8 << 20))
            second.reserve(3 << 20)
        with pytest.raises(StorageFull):
            first.reserve(11 << 20)
    with Downloads(tmp_path).directory() as alone:
        alone.reserve(10 << 20)


def test_a_disk_that_fills_up_ends_a_download(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a file of undeclared size arrives, the free space is checked."""
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1, {"w": (3 << 20,)}))})
    hub.sizes["model.safetensors"] = -1
    usage = shutil.disk_usage(tmp_path)
    left = iter([1 << 40, 1 << 20])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=next(left)))
    with open_hub_app(tmp_path) as app:
        job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
        assert job.error is not None, job.result
        assert ("queued", "storage_full") == (job.state, job.error["code"])
        assert "are spared" in job.error["detail"]
        assert str(tmp_path) not in job.error["detail"]  # a path of the server's


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """It is the disk's matter, and no bug."""
    with Downloads(tmp_path).directory() as directory:
        directory.folder("model")
        with pytest.raises(Unavailable) as caught:
            directory.folder("model")
        assert "File exists" in explain(caught.value)
        egress = Egress(Allowlist.parse("127.0.0.1"))
        limits = TransferLimits(checkpoint_bytes=1)
        with (
            closing(
                HubHttpClient(
                    "http://127.0.0.1:1",
                    egress,
                    authorization=None,
                    limits=limits,
                    refusal=lambda *_: None,
                )
            ) as transfer,
            pytest.raises(Unavailable, match="File name too long"),
        ):
            transfer.download("/f", HubFile("f", 1), directory.path / ("f" * 256), None)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(cuts=st.lists(st.integers(1, 999), max_size=2), ranges=st.booleans())
def test_a_download_is_whole_however_it_is_cut(
    hub: Hub, tmp_path: Path, cuts: list[int], ranges: bool
) -> None:
    """Connections may break anywhere, and servers may know no ranges: what is there in the end is
    what was declared.
    """
    data, left = bytes(range(250)) * 4, list(cuts)

    def serve(request: Handler) -> bool:
        asked = request.headers.get("Range") if ranges else None
        begin = 0 if asked is None else int(asked[6:-1])
        cut = left.pop(0) if left else len(data)
        request.send_response(200 if asked is None else 206)
        request.send_header("Content-Length", str(len(data) - begin))
        if asked is not None:
            request.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        request.end_headers()
        request.wfile.write(data[begin : begin + cut])
        request.close_connection = True
        return True

    hub.on_cdn = serve
    egress = Egress(Allowlist.parse("127.0.0.1"))
    file = HubFile("f", len(data), hashlib.sha256(data).hexdigest())
    with closing(
        HubHttpClient(
            hub.cdn,
            egress,
            authorization=None,
            limits=TransferLimits(checkpoint_bytes=1 << 20),
            refusal=lambda *_: None,
        )
    ) as transfer:
        assert len(data) == transfer.download("/f", file, tmp_path / "f", None)
    assert data == (tmp_path / "f").read_bytes()


def test_a_download_of_a_file_that_changes(hub: Hub, tmp_path: Path) -> None:
    """Where the hub declares no digest, it is asked for the rest of that very file."""
    old, new = bytes(1000), bytes(range(250)) * 4
    asked: list[str | None] = []

    def serve(request: Handler) -> bool:
        asked.append(request.headers.get("If-Range"))
        if len(asked) == 1:
            request.send_response(200)
            request.send_header("Content-Length", str(len(old)))
            request.send_header("ETag", '"old"')
            request.end_headers()
            request.wfile.write(old[:500])
            request.close_connection = True
        elif asked[-1] is None:
            request.say(206, new[500:], Content_Range=f"bytes 500-999/{len(new)}")
        else:
            request.say(200, new, ETag='"new"')
        return True

    hub.on_cdn = serve
    with closing(
        HubHttpClient(
            hub.cdn,
            Egress(Allowlist.parse("127.0.0.1")),
            authorization=None,
            limits=TransferLimits(checkpoint_bytes=1 << 20),
            refusal=lambda *_: None,
        )
    ) as transfer:
        transfer.download("/f", HubFile("f", len(new)), tmp_path / "f", None)
    assert new == (tmp_path / "f").read_bytes()
    assert [None, '"old"'] == asked


@pytest.mark.parametrize(
    ("paths", "first"),
    [
        (["model.safetensors"], "model.safetensors"),
        (["weights.safetensors", "config.json"], "weights.safetensors"),
        (["adapter_model.safetensors", "model.safetensors"], "model.safetensors"),
        (["model.fp16.safetensors", "model.safetensors"], "model.safetensors"),
        (
            [
                "model.safetensors",
                "model.safetensors.index.json",
                "model-00001-of-00002.safetensors",
            ],
            "model.safetensors",
        ),
        (
            ["consolidated.safetensors", "model.safetensors.index.json"],
            "model.safetensors.index.json",
        ),
        (["a.safetensors.index.json", "a-00001-of-00001.safetensors"], "a.safetensors.index.json"),
        (["model-00001-of-00001.safetensors"], "model-00001-of-00001.safetensors"),
        (["model.safetensors", "onnx/model.safetensors"], "model.safetensors"),
        (["x/y/model.safetensors", "x/z.txt"], "x/y/model.safetensors"),
        ([".safetensors", "b.safetensors"], "b.safetensors"),
    ],
)
def test_which_file_is_the_checkpoint(paths: list[str], first: str) -> None:
    """The one that is nearest to the top, and there the one that transformers would read."""
    assert first == choose([HubFile(path, 1) for path in paths], "here").first.path


def test_a_name_that_no_file_can_have() -> None:
    """A longer name than file systems take is refused before anything is downloaded."""
    with pytest.raises(InvalidCheckpoint, match="more than 255 bytes"):
        choose([HubFile("x/" + "ö" * 124 + ".safetensors", 1)], "here")
    choose([HubFile("ö" * 121 + ".safetensors", 1)], "here")
