"""Buckets that lose, replace, hide and delay objects: named, or waited for, and never two sums."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from modelkin.errors import InvalidCell, InvalidParameter, MergeFailed
from modelkin.sharing import BucketMerge
from modelkin.wire.cell import read_cell_header
from tests.support.federations.meeting import NAMES, SECRET, Meeting
from tests.support.repetitions import repetitions

OTHERS = ("org/a", "org/c", "org/d")


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Meeting:
    """A merge that four members may join, of whom the first one leads."""
    return Meeting(monkeypatch)


def change_a_cell(data: bytes) -> bytes:
    """The last byte of the values is another one."""
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


@pytest.mark.parametrize("change", ["lost", "cut", "garbage", "changed", "another's", "last"])
def test_a_cell_that_is_not_what_was_sent_costs_its_member(meeting: Meeting, change: str) -> None:
    """It is named with the reason, and the others' average is exact."""
    meeting.join("org/b", may_aggregate=False)
    meeting.join(*OTHERS)
    meeting.bucket.hides = lambda _, key: "/log/1" in key  # all has been sent, nothing is combined
    meeting.run()
    objects = meeting.bucket.objects
    mine, theirs = meeting.bucket.keys("0/cells/1/0/")[1:3]
    data = objects[mine]
    changed = {
        "cut": data[:-1],
        "garbage": b"garbage",
        "changed": change_a_cell(data),
        "another's": objects[theirs],
        "last": b"",
    }
    if change == "lost":
        del objects[mine]
    else:
        objects[mine] = changed[change]
    meeting.bucket.hides = lambda _party, _key: False
    meeting.wait(20.0)
    meeting.require_average(*OTHERS)
    assert ["org/b"] == [*meeting.left_out()]


def test_a_cell_that_shows_late_is_waited_for(meeting: Meeting) -> None:
    """An aggregator names nobody before a quarter of the state's time is over."""
    meeting.join(*NAMES)
    meeting.bucket.hides = lambda _, key: "/cells/1/" in key
    meeting.run()
    assert "combining" == meeting.show().state
    meeting.wait(14.0)
    meeting.bucket.hides = lambda _party, _key: False
    meeting.run()
    meeting.require_average(*NAMES)


def test_objects_that_show_late_and_in_any_order(meeting: Meeting) -> None:
    """Each party is shown each object only when it has asked for it three times before."""
    asked: defaultdict[tuple[str, str], int] = defaultdict(int)

    def late(name: str, key: str) -> bool:
        if name == "test":
            return False
        asked[name, key] += 1
        return asked[name, key] <= 3

    meeting.bucket.hides = late
    meeting.join(*NAMES)
    for _ in range(200):
        meeting.turn()
    meeting.require_average(*NAMES)


def test_a_bucket_that_is_away_now_and_then(meeting: Meeting) -> None:
    """Nothing is named for it, as all go on where they were."""
    meeting.join(*NAMES)
    for at in range(60):
        meeting.bucket.away = at % 3 != 0
        meeting.turn()
    meeting.require_average(*NAMES)


def test_an_answer_that_is_lost_while_a_party_joins(meeting: Meeting) -> None:
    """Its statement stands: it is a member, even if joining has ended before it asks again."""
    meeting.join("org/b")
    meeting.bucket.mute = True
    meeting.turn()
    meeting.bucket.mute = False
    waiting = meeting.running.pop("org/b")
    meeting.join(*OTHERS)
    meeting.run(until="sending")
    meeting.running["org/b"] = waiting
    meeting.run()
    meeting.require_average(*NAMES)


@pytest.mark.parametrize("what", ["garbage", "of another group", "of another party"])
def test_a_statement_of_somebody_else_is_none(meeting: Meeting, what: str) -> None:
    """Who lacks the secret can only keep a member out, and the member learns why."""
    objects = meeting.bucket.objects
    meeting.join(*OTHERS)
    meeting.turn()
    place = meeting.record("x").name_of("joined", "org/b", in_attempt=False)
    theirs = meeting.record("x").name_of("joined", "org/a", in_attempt=False)
    text = objects[f"july/{theirs}"]
    forged = {"garbage": b"", "of another group": b"0" * 64 + text[64:], "of another party": text}
    objects[f"july/{place}"] = forged[what]
    meeting.join("org/b")
    meeting.run()
    assert "without the group's secret" in str(meeting.failures.pop("org/b"))
    meeting.wait()
    meeting.require_average(*OTHERS, of=OTHERS)
    assert "without the group's secret" in meeting.left_out()["org/b"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [("joined", "it did not join in time"), ("sent", "it did not send all cells in time")],
)
def test_who_hides_two_members_chooses_the_sum(
    monkeypatch: pytest.MonkeyPatch, kind: str, why: str
) -> None:
    """Down to ``min_members``, which all accepted; those hidden are named, and the sum is exact."""
    meeting, left = Meeting(monkeypatch, min_members=2, aggregators=2), NAMES[:2]
    record = meeting.record("test")
    record.follow()
    hidden = [record.name_of(kind, name, in_attempt=kind != "joined") for name in NAMES[2:]]
    meeting.bucket.hides = lambda _, key: key.removeprefix("july/") in hidden
    meeting.join(*NAMES, min_members=2)
    meeting.wait()
    if kind == "joined":
        assert [*NAMES[2:]] == sorted(meeting.failures)
        meeting.failures.clear()
    meeting.require_average(*left, of=left)
    assert dict.fromkeys(NAMES[2:], why) == meeting.left_out()


@pytest.mark.parametrize("kind", ["joined", "sent"])
def test_with_all_members_as_the_least_hiding_costs_the_result(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """No sum of fewer is made: the merge fails, and names who was hidden."""
    meeting = Meeting(monkeypatch, min_members=4)
    record = meeting.record("test")
    record.follow()
    hidden = record.name_of(kind, "org/d", in_attempt=kind != "joined")
    meeting.bucket.hides = lambda _, key: key == f"july/{hidden}"
    meeting.join(*NAMES, min_members=4)
    meeting.wait()
    assert {} == meeting.merged
    assert "org/d: it did not" in str(meeting.failures["org/a"])


def test_a_decision_of_somebody_else_is_none(meeting: Meeting) -> None:
    """The leader finds it in its way, and says so; the others end for want of a leader."""
    meeting.join(*NAMES[:3])
    meeting.turn()
    meeting.bucket.objects[f"july/{meeting.record('x').terms['id']}/log/0"] = b"garbage"
    meeting.wait()
    assert "without the group's secret" in str(meeting.failures["org/a"])
    meeting.wait(121.0)
    assert "'org/a', which leads" in str(meeting.failures["org/b"])


@pytest.mark.parametrize("change", ["lost", "changed"])
def test_a_result_that_is_not_what_was_sent(meeting: Meeting, change: str) -> None:
    """Nobody takes it for an average."""
    meeting.join(*NAMES)
    meeting.bucket.hides = lambda _, key: "/log/2" in key
    meeting.run()
    mine = meeting.bucket.keys("0/results/1/")[0]
    data = meeting.bucket.objects.pop(mine)
    if change == "changed":
        meeting.bucket.objects[mine] = change_a_cell(data)
    meeting.bucket.hides = lambda _party, _key: False
    meeting.wait(20.0)
    wanted = MergeFailed if change == "lost" else InvalidCell
    assert 4 * [wanted] == [type(error) for error in meeting.failures.values()]


def test_objects_of_an_earlier_merge_count_for_nothing(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket that shows what it had under the same name, of the same group."""
    meeting.join(*NAMES)
    meeting.run()
    later = Meeting(monkeypatch)
    old, new = (each.record("x").terms["id"] for each in (meeting, later))
    for key, data in meeting.bucket.objects.items():
        if old in key:
            later.bucket.objects[key.replace(old, new)] = data
    later.run()
    assert ("joining", 0) == (later.show().state, later.show().attempt)
    with pytest.raises(MergeFailed, match="without the group's secret"):
        later.say("org/a", "joined", {})


def test_who_lacks_the_secret_finds_no_merge(meeting: Meeting) -> None:
    """And is told at once that what lies there is of another group."""
    other = BucketMerge(meeting.bucket.seen_by("x"), "july", group_secret=b"x" + SECRET)
    with pytest.raises(MergeFailed, match=r"july/terms was put there .* your secret is another"):
        other.show()
    with pytest.raises(MergeFailed, match="without the group's secret"):
        other.create(1000, NAMES, leader="org/a")


def test_a_member_conceals_for_one_roster(meeting: Meeting, tmp_path: Path) -> None:
    """A leader that writes another one meanwhile, of the same places, is refused by a new process.

    Else the values of one update would be in two sums, which differ by another party's.
    """
    meeting.join(*OTHERS)
    meeting.join("org/b", state=tmp_path / "b")
    meeting.bucket.hides = lambda _, key: "/log/1" in key
    meeting.run()
    sent = meeting.bucket.keys("0/cells")
    (log,) = [key for key in meeting.bucket.objects if key.endswith("/log/0")]
    del meeting.bucket.objects[log]
    record = meeting.record("evil")
    before = meeting.running["org/b"].look()
    assert before.roster is not None
    roster = {**before.roster, "parties": [dict(each) for each in before.roster["parties"]]}
    roster["parties"][2]["public_key"] = (9).to_bytes(32, "little").hex()
    weights = {name: meeting.examples[name] for name in NAMES}
    said = {"state": "sending", "attempt": 0, "left_out": {}, "failure": None, "at": None}
    record.decide({**said, "roster": roster, "weights": weights, "peak": before.peak})
    for key in sent:
        del meeting.bucket.objects[key]
    meeting.running.clear()
    meeting.join("org/b", state=tmp_path / "b")
    meeting.turn()
    assert "the roster has changed meanwhile" in str(meeting.failures["org/b"])
    assert isinstance(meeting.failures["org/b"], InvalidParameter)
    assert [] == meeting.bucket.keys("0/cells")


@pytest.mark.parametrize("seed", range(repetitions(40, 4)))
def test_whatever_a_bucket_hides_there_are_no_two_sums(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    """It shows each party what it likes, and loses the rest; parties end and come back.

    All results are of one attempt, and an average is exactly that of the members it names.
    """
    meeting, random = Meeting(monkeypatch, aggregators=2), np.random.default_rng(seed)
    files = {name: tmp_path / name[-1] for name in NAMES}
    for name in NAMES:
        meeting.join(name, state=files[name])
    hidden: set[tuple[str, str]] = set()
    meeting.bucket.hides = lambda name, key: (name, key) in hidden
    for _ in range(60):
        for key in list(meeting.bucket.objects):
            for name in NAMES:
                if random.random() < 0.03 and "/terms" not in key:
                    hidden.add((name, key))
        hidden = {each for each in hidden if random.random() < 0.9}
        if random.random() < 0.05 and (running := sorted(meeting.running)):
            name = running[random.integers(len(running))]
            meeting.join(name, state=files[name])
        meeting.turn()
        meeting.now += random.choice([0.0, 0.0, 1.0, 20.0])
    results = {key: data for key, data in meeting.bucket.objects.items() if "/results/" in key}
    assert 1 >= len({read_cell_header(data).attempt for data in results.values()})
    for name, merged in meeting.merged.items():
        error = np.abs(meeting.average_of(name) - meeting.average(*merged.members)).max()
        assert error < 4 * 2.0**-30 + 1e-8
        assert len(merged.members) >= 3
