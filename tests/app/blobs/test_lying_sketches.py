"""Files of sketches that lie: a slot counts only for the content that it was made from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from app.settings import Settings
from app.tenancy.auth.tenants import store_token
from tests.support.app.harness import open_app
from tests.support.app.honesty import Answers, M, Stand, require_honest

SLOT: Final = 8 * (8 + 65536 // 64)
Lie = Callable[[Path, Path], None]


def exchange_files(ours: Path, theirs: Path) -> None:
    """Let the files of two spaces change places."""
    kept = ours.with_name("kept")
    os.rename(ours, kept)
    os.rename(theirs, ours)
    os.rename(kept, theirs)


def exchange_slots(ours: Path, _: Path) -> None:
    """Let the slots of the models 1 and 2 change places."""
    data = ours.read_bytes()
    first, second = (data[i * SLOT : (i + 1) * SLOT] for i in (1, 2))
    ours.write_bytes(data[:SLOT] + second + first + data[3 * SLOT :])


def exchange_samples(ours: Path, _: Path) -> None:
    """Let the samples of two slots change places, and not their heads."""
    data = ours.read_bytes()
    first, second = (data[i * SLOT + 64 : (i + 1) * SLOT] for i in (1, 2))
    begin = data[: SLOT + 64] + second + data[2 * SLOT : 2 * SLOT + 64]
    ours.write_bytes(begin + first + data[3 * SLOT :])


def one_slot(ours: Path, _: Path) -> None:
    """Serve one slot for all models."""
    data = ours.read_bytes()
    ours.write_bytes(data[SLOT : 2 * SLOT] * (len(data) // SLOT))


def zeros(ours: Path, _: Path) -> None:
    """Lose all slots, and no byte of the length."""
    ours.write_bytes(bytes(ours.stat().st_size))


LIES: Final[dict[str, Lie]] = {
    "files exchanged": exchange_files,
    "slots exchanged": exchange_slots,
    "samples exchanged": exchange_samples,
    "one slot": one_slot,
    "zeros": zeros,
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stand, Answers]]:
    """A service with sketches of all its models."""
    with open_app(tmp_path_factory.mktemp("sketches"), support_cache_bytes=0) as app:
        stand = Stand(app)
        yield stand, stand.ask()


@pytest.mark.parametrize("lie", LIES)
def test_sketches_that_lie(told: tuple[Stand, Answers], lie: str) -> None:
    """No answer changes: the sketches are made again from supports."""
    stand, right = told
    with stand.app.database.reading() as session:
        folder = stand.app.services[Settings].sketch_dir / store_token(session)
    assert M > 65536, "else a slot is shorter"
    kept = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    LIES[lie](*kept)
    answers = stand.ask()
    assert {200} == {answer.status_code for answer in answers.values()}
    require_honest(right, answers)
    for path, data in kept.items():
        path.write_bytes(data)
