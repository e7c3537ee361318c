"""What a party of a merge in a bucket waits for, how long, and what it says meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from modelkin.errors import ConnectionFailed, MergeFailed
from modelkin.sharing import BucketMerge, FolderStore
from modelkin.types.merges import Merge
from tests.support.federations.meeting import SECRET

VALUES = np.arange(10, dtype=np.float32)


class Clock:
    """The time as parties have it: it passes while they sleep alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock in the place of the real one."""
    made = Clock()
    for module in ("buckets.merge", "buckets.mail", "buckets.party", "merging.polling"):
        monkeypatch.setattr(f"modelkin.federation.{module}.time", made)
    return made


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    """The folder that the parties share."""
    (tmp_path / "drive").mkdir()
    return tmp_path / "drive"


def merge_in(drive: Path, name: str = "july", secret: bytes = SECRET) -> BucketMerge:
    """A merge in the folder."""
    return BucketMerge(FolderStore(drive), name, group_secret=secret)


def test_a_merge_that_is_not_there_is_said_once(
    clock: Clock, drive: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the time that is left, in which somebody may create it; then it is an error."""
    with pytest.raises(ConnectionFailed, match="there is no merge 'nope'"):
        merge_in(drive, "nope").join("org/a", VALUES, examples=1)
    (said,) = caplog.messages
    assert "this party waits 300 s more at most: there is no merge 'nope'" in said
    assert clock.now > 300


def test_a_merge_is_created_while_a_party_waits(clock: Clock, drive: Path) -> None:
    """It goes on as if the merge had been there."""

    def create() -> None:
        if clock.now > 100:
            merge_in(drive).create(10, ["org/a"], leader="org/a", min_members=1, aggregators=1)

    clock.on_sleep = create
    merged = merge_in(drive).join("org/a", VALUES, examples=1, min_members=1)
    assert ("org/a",) == merged.members


def test_another_secret_ends_at_once(
    clock: Clock, drive: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As no waiting makes it fit; the error says it, and no warning says it too."""
    merge_in(drive).create(10, ["org/a", "org/b", "org/c"], leader="org/a")
    with pytest.raises(MergeFailed, match="or your secret is another"):
        merge_in(drive, secret=b"x" + SECRET).join("org/a", VALUES, examples=1)
    assert (0.0, []) == (clock.now, caplog.messages)


@pytest.mark.parametrize("state", ["joining", "sending", "combining", "done"])
def test_a_drive_that_is_away_in_the_middle(
    clock: Clock, drive: Path, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    """Is waited for, which is said once; the party goes on where it was when it is back."""
    merge_in(drive).create(10, ["org/a"], leader="org/a", min_members=1, aggregators=1)
    away, gone_at = drive.with_name("away"), list[float]()

    def leave(shown: Merge) -> None:
        if shown.state == state and not gone_at:
            gone_at.append(clock.now)
            drive.rename(away)

    def come_back() -> None:
        if away.exists() and clock.now > gone_at[0] + 200:
            away.rename(drive)

    clock.on_sleep = come_back
    taken = {"examples": 1, "min_members": 1, "on_progress": leave}
    merged = merge_in(drive).join("org/a", VALUES, **taken)  # type: ignore[arg-type]
    assert merged.values is not None
    assert np.abs(merged.values - VALUES).max() < 1e-6
    assert clock.now > gone_at[0] + 200
    (said,) = [each for each in caplog.messages if "no answer now" in each]
    assert f"the folder {drive} is not there" in said


def test_a_drive_that_is_away_for_good(clock: Clock, drive: Path, tmp_path: Path) -> None:
    """Ends in an error that names it; the values are unharmed, and the state file can go on."""
    members = ["org/a", "org/b", "org/c"]
    merge_in(drive).create(10, members, leader="org/a")
    values, state, away = VALUES.copy(), tmp_path / "state", drive.with_name("away")
    part = {"examples": 1, "state": state}
    with pytest.raises(ConnectionFailed, match=f"the folder {drive} is not there"):
        merge_in(drive).join("org/a", values, on_progress=lambda _: drive.rename(away), **part)  # type: ignore[arg-type]
    assert np.array_equal(VALUES, values)
    away.rename(drive)
    with pytest.raises(TimeoutError):
        merge_in(drive).join("org/a", values, timeout=10, **part)  # type: ignore[arg-type]
    assert ("org/b", "org/c") == merge_in(drive).show().awaited
