"""put_many after an interruption: the journal says what need not be sent again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from modelkin import BulkItem, Signature, Support
from modelkin.client._protocol.uploads.lines import Line, encode_line
from modelkin.errors import ConnectionFailed, InvalidParameter
from tests.support.servers.batch_service import A, B, M, Service, pairs

Open = Callable[[Service], Any]
SIGNED = A.signature(num_perm=4)


def test_a_second_run_sends_nothing_again(opened: Open, tmp_path: Path) -> None:
    """What is noted is skipped; what failed, is new or has changed in any way is sent."""
    journal = tmp_path / "upload.journal"
    service = Service("m1")
    client = opened(service)
    client.put_many("digits", pairs(3), resume=journal)
    service.batches.clear()
    items = [*pairs(2), ("m2", B), ("new", A), BulkItem("m0", A, ["t"])]
    summary = client.put_many("digits", items, resume=str(journal))
    assert (1, 3, 1) == (summary.skipped, summary.created, summary.failed)
    assert [["m1", "m2", "new", "m0"]] == service.names


def test_a_content_that_came_back_is_sent(opened: Open, tmp_path: Path) -> None:
    """Noted is what stands: A, then B, then A again sends A again, and the last one stands."""
    service = Service()
    client = opened(service)
    client.put_many("digits", [("a", A)], resume=tmp_path / "j")
    client.put_many("digits", [("a", A), ("a", B), ("a", A)], resume=tmp_path / "j")
    assert [["a"], ["a", "a"]] == service.names
    assert 1 == client.put_many("digits", [("a", A)], resume=tmp_path / "j").skipped


def test_an_interruption_loses_nothing(opened: Open, tmp_path: Path) -> None:
    """After an error in the middle, acknowledged items are skipped and all others sent."""
    service = Service()
    client = opened(service)

    def items() -> Iterator[tuple[str, Support]]:
        yield from pairs(7)
        raise RuntimeError("the disk went away")

    with pytest.raises(RuntimeError, match="went away"):
        client.put_many("digits", items(), batch_size=2, concurrency=1, resume=tmp_path / "j")
    noted = {json.loads(x)["model"] for x in (tmp_path / "j").read_text().splitlines()[1:]}
    service.batches.clear()
    summary = client.put_many("digits", pairs(9), resume=tmp_path / "j")
    assert (9, len(noted)) == (summary.total, summary.skipped)
    assert {f"m{i}" for i in range(9)} - noted == set(itertools.chain(*service.names))


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_torn_journal_is_mended(opened: Open, tmp_path: Path, cut: int) -> None:
    """A last line that was cut off counts for nothing, and what follows is noted behind it."""
    journal = tmp_path / "j"
    client = opened(Service())
    client.put_many("digits", pairs(3), resume=journal)
    journal.write_bytes(journal.read_bytes()[:-cut])
    first = client.put_many("digits", pairs(3), resume=journal)
    assert (2, 1) == (first.skipped, first.created) or cut == 60
    assert 3 == client.put_many("digits", pairs(3), resume=journal).skipped


def test_a_journal_is_of_one_space(opened: Open, tmp_path: Path) -> None:
    """The file of another space, of a space made again, or without a journal is refused."""
    journal = tmp_path / "j"
    service = Service()
    client = opened(service)
    client.put_many("digits", pairs(1), resume=journal)
    before = journal.read_bytes()
    service.space["created_at"] = "2027-01-02T03:04:05Z"
    with pytest.raises(InvalidParameter, match="created_at is 2026"):
        client.put_many("digits", pairs(1), resume=journal)
    assert before == journal.read_bytes()


@pytest.mark.parametrize("content", ["not a journal\n", "{}\n", "[]\n", "null\n", "no end"])
def test_no_other_file_is_written_to(opened: Open, tmp_path: Path, content: str) -> None:
    """A file that is not a journal is named, and left as it is."""
    (tmp_path / "j").write_text(content)
    with pytest.raises(InvalidParameter, match="not a journal of put_many: see its line 1"):
        opened(Service()).put_many("digits", pairs(1), resume=tmp_path / "j")
    assert content == (tmp_path / "j").read_text()


def test_a_service_that_is_gone_ends_it(opened: Open, tmp_path: Path) -> None:
    """After the last try the connection's error is raised, and nothing is noted."""
    service = Service()
    service.first = [httpx.ConnectError("refused")] * 4
    with pytest.raises(ConnectionFailed):
        opened(service).put_many("digits", pairs(1), resume=tmp_path / "j")
    assert 1 == len((tmp_path / "j").read_text().splitlines())


def test_signatures_of_one_model_are_told_apart() -> None:
    """The fingerprint of an item is that of all it says: other values are other content."""
    other = Signature.from_values(
        [1, 2, 3, 4], num_parameters=M, support_size=3, scheme=SIGNED.scheme, seed=1
    )
    lines = [encode_line(("a", content)) for content in (A, B, SIGNED, other)]
    assert 4 == len({x.fingerprint for x in lines if isinstance(x, Line)})
