"""Files read by ranges: the right bytes in little disk, whatever the hub does in between."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from app.hubs.clients.http import HubHttpClient, TransferLimits
from app.hubs.clients.huggingface import HuggingFace, refusal
from app.hubs.clients.protocol import RangesIgnored
from app.hubs.ingestion.files import ranged_files
from app.hubs.ingestion.files.ranged_files import RangedFiles
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.client import Egress
from app.infra.errors import HubProtocolError, HubUnavailable
from tests.support.servers.fake_huggingface import Handler, Hub, answering

BLOCK = 64 << 10
WINDOW = 4 * BLOCK
DATA = random.Random(7).randbytes(20 * BLOCK + 123)
NAME = "model.safetensors"
FIRST = f"bytes 0-{BLOCK - 1}/{len(DATA)}"


@pytest.fixture(autouse=True)
def whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read fetches whole blocks."""
    monkeypatch.setattr(ranged_files, "LOOK_BYTES", 0)


@pytest.fixture
def client(hub: Hub) -> Iterator[HuggingFace]:
    """A client of a hub that has one model of one file."""
    hub.push("org/a", {NAME: DATA})
    egress = Egress(Allowlist.parse("127.0.0.1"))
    limits = TransferLimits(1 << 30, timeout=20)
    transfer = HubHttpClient(hub.url, egress, authorization=None, limits=limits, refusal=refusal)
    with closing(transfer):
        yield HuggingFace(transfer)


@pytest.fixture
def ranged(client: HuggingFace, tmp_path: Path) -> RangedFiles:
    """The file of the model, read by ranges."""
    revision = client.look_up("org/a")
    [file] = [file for file in revision.files if file.path == NAME]
    with (tmp_path / NAME).open("wb") as sparse:
        sparse.truncate(len(DATA))
    files = RangedFiles(client, lambda size: None, BLOCK, WINDOW)
    files.add(tmp_path / NAME, revision, file, len(DATA))
    return files


def read(files: RangedFiles, path: Path, begin: int, size: int) -> bytes:
    """Bytes as a tensor reads them."""
    found, buffer = b"", bytearray(size)
    with files.open(path) as file:
        file.seek(begin)
        while got := file.readinto(memoryview(buffer)[len(found) :]):
            found = bytes(buffer[: len(found) + got])
    return found


def test_a_window_of_the_file_is_on_the_disk(hub: Hub, ranged: RangedFiles, tmp_path: Path) -> None:
    """Read front to back each byte comes once, and is digested; blocks go back to the disk."""
    path, most = tmp_path / NAME, 0
    for begin in range(0, len(DATA), 10_000):
        assert DATA[begin : begin + 10_000] == read(ranged, path, begin, 10_000)
        most = max(most, path.stat().st_blocks * 512)
    ranged.finish()
    assert len(DATA) // BLOCK + 1 == len(hub.downloads)
    assert most <= WINDOW + BLOCK


def test_a_read_beyond_the_window(ranged: RangedFiles, tmp_path: Path) -> None:
    """It takes several turns, and no byte of it is one that was given back."""
    assert DATA[1000:] == read(ranged, tmp_path / NAME, 1000, len(DATA))
    ranged.finish()


def test_what_is_held_stays_on_the_disk(hub: Hub, ranged: RangedFiles, tmp_path: Path) -> None:
    """Read twice, it comes once, also where the window is smaller; what comes beside has room."""
    path = tmp_path / NAME
    ranged.hold(path, 2 * BLOCK)
    for begin in range(0, 12 * BLOCK, BLOCK):
        assert DATA[begin : begin + BLOCK] == read(ranged, path, begin, BLOCK)
    assert DATA[2 * BLOCK : 12 * BLOCK] == read(ranged, path, 2 * BLOCK, 10 * BLOCK)
    assert 12 == len(hub.downloads)
    assert DATA[:BLOCK] == read(ranged, path, 0, BLOCK)
    assert path.stat().st_blocks * 512 <= 10 * BLOCK + WINDOW
    ranged.hold(path, None)
    assert DATA[:100] == read(ranged, path, 0, 100)
    assert DATA[12 * BLOCK :] == read(ranged, path, 12 * BLOCK, len(DATA))
    assert path.stat().st_blocks * 512 <= WINDOW + BLOCK
    ranged.finish()


def test_blocks_are_read_in_any_order(ranged: RangedFiles, tmp_path: Path) -> None:
    """What the window no longer has comes again; at the end all is digested in order."""
    generator = random.Random(1)
    for _ in range(60):
        begin, size = generator.randrange(len(DATA)), generator.randrange(1, 3 * BLOCK)
        assert DATA[begin : begin + size] == read(ranged, tmp_path / NAME, begin, size)
    ranged.finish()


def cut(request: Handler) -> bool:
    """Send half of a range, and break the connection."""
    first, last = (int(n) for n in request.headers["Range"].removeprefix("bytes=").split("-"))
    request.send_response(206)
    request.send_header("Content-Range", f"bytes {first}-{last}/{len(DATA)}")
    request.send_header("Content-Length", str(last + 1 - first))
    request.end_headers()
    request.wfile.write(DATA[first : (first + last + 1) // 2])
    request.wfile.flush()
    request.connection.shutdown(socket.SHUT_RDWR)
    return True


def another(**headers: str) -> Callable[[Handler], bool]:
    """Answer the first range with wrong headers."""

    def answer(request: Handler) -> bool:
        request.say(206, DATA[:BLOCK], **headers)
        return True

    return answer


def test_a_broken_connection_goes_on_where_it_was(
    hub: Hub, ranged: RangedFiles, tmp_path: Path
) -> None:
    """A few times for a block; then the job is to be retried."""
    broken = iter([True, True, False])
    hub.on_cdn = lambda request: next(broken, False) and cut(request)
    assert DATA[:100] == read(ranged, tmp_path / NAME, 0, 100)
    hub.on_cdn = answering(503)
    with pytest.raises(HubUnavailable, match="503"):
        read(ranged, tmp_path / NAME, 5 * BLOCK, 100)
    hub.on_cdn = lambda request: False
    assert DATA[-100:] == read(ranged, tmp_path / NAME, len(DATA) - 100, 200)
    ranged.finish()


def test_a_range_may_come_in_parts(hub: Hub, ranged: RangedFiles, tmp_path: Path) -> None:
    """A server may send less than was asked for, if it says so; it is asked for the rest."""

    def part(request: Handler) -> bool:
        first, last = (int(n) for n in request.headers["Range"].removeprefix("bytes=").split("-"))
        sent = DATA[first : first + max(1, (last + 1 - first) // 5)]
        where = f"bytes {first}-{first + len(sent) - 1}/{len(DATA)}"
        request.say(206, sent, Content_Range=where)
        return True

    hub.on_cdn = part
    assert DATA[:100] == read(ranged, tmp_path / NAME, 0, 100)
    hub.on_cdn = another(Content_Range=f"bytes 0-{BLOCK}/{len(DATA)}")
    with pytest.raises(HubProtocolError, match="another part"):
        read(ranged, tmp_path / NAME, BLOCK, 100)


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        (answering(200, DATA), RangesIgnored, "whole files alone"),
        (another(), HubProtocolError, "another part"),
        (another(Content_Range=f"bytes 1-{BLOCK}/{len(DATA)}"), HubProtocolError, "another part"),
        (another(Content_Range=f"bytes 0-{BLOCK - 1}/9"), HubProtocolError, "a part of 9"),
        (another(Content_Range=FIRST, Content_Encoding="gzip"), HubProtocolError, "compressed"),
        (
            another(Content_Type="multipart/byteranges; boundary=x"),
            HubProtocolError,
            "another part",
        ),
        (answering(206, DATA[: BLOCK + 1], Content_Range=FIRST), HubProtocolError, "more of"),
        (answering(206, DATA[:0], Content_Range=FIRST), HubUnavailable, "sends 0 of 65536"),
        (answering(416, Content_Range=f"bytes */{len(DATA)}"), HubUnavailable, "416"),
        (answering(403, b"<Code>AccessDenied</Code>"), HubUnavailable, "may have expired"),
    ],
    ids=[
        "whole",
        "unsaid",
        "shifted",
        "of-another",
        "packed",
        "several",
        "long",
        "empty",
        "beyond",
        "expired",
    ],
)
def test_a_hub_that_sends_something_else(
    hub: Hub,
    ranged: RangedFiles,
    tmp_path: Path,
    fault: Callable[[Handler], bool],
    error: type[Exception],
    says: str,
) -> None:
    """Nothing of it is taken for the file; whole files have an error of their own."""
    hub.on_cdn = fault
    with pytest.raises(error, match=says):
        read(ranged, tmp_path / NAME, 0, 100)
    hub.on_cdn = lambda request: False
    assert DATA[:100] == read(ranged, tmp_path / NAME, 0, 100)
    ranged.finish()


@pytest.mark.parametrize("declared", [True, False])
def test_a_file_that_changes_between_ranges(
    hub: Hub, client: HuggingFace, tmp_path: Path, declared: bool
) -> None:
    """Without a digest to compare it is to be downloaded whole, where the hub names its versions;
    with one, other names of one content do no harm.
    """
    revision = client.look_up("org/a")
    [file] = [file for file in revision.files if file.path == NAME]
    with (tmp_path / NAME).open("wb") as sparse:
        sparse.truncate(len(DATA))
    ranged = RangedFiles(client, lambda size: None, BLOCK, WINDOW)
    known = file if declared else replace(file, sha256=None)
    ranged.add(tmp_path / NAME, revision, known, len(DATA))

    def renamed(request: Handler) -> bool:
        first, last = (int(n) for n in request.headers["Range"].removeprefix("bytes=").split("-"))
        where = f"bytes {first}-{last}/{len(DATA)}"
        request.say(206, DATA[first : last + 1], Content_Range=where, ETag=f'"{first}"')
        return True

    hub.on_cdn = renamed
    assert DATA[:100] == read(ranged, tmp_path / NAME, 0, 100)
    with nullcontext() if declared else pytest.raises(RangesIgnored, match="another file"):
        read(ranged, tmp_path / NAME, BLOCK, 100)


def test_other_bytes_than_declared_are_found_out(
    hub: Hub, ranged: RangedFiles, tmp_path: Path
) -> None:
    """By the digest of the whole file, also where one block alone is wrong."""

    def change(request: Handler) -> bool:
        if request.headers["Range"] != f"bytes={BLOCK}-{2 * BLOCK - 1}":
            return False
        said = {"Content_Range": f"bytes {BLOCK}-{2 * BLOCK - 1}/{len(DATA)}"}
        request.say(206, bytes(BLOCK), **said)
        return True

    hub.on_cdn = change
    for begin in range(0, len(DATA), BLOCK):
        read(ranged, tmp_path / NAME, begin, BLOCK)
    with pytest.raises(HubProtocolError, match=r"declares model\.safetensors with the SHA-256"):
        ranged.finish()
