"""Merges in a bucket: the average, and parties that vanish, repeat, or are not who they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkin import Layout
from modelkin.errors import ConnectionFailed, InvalidParameter, MergeFailed
from modelkin.federation.sharing import new_key, public_key
from modelkin.sharing import BucketMerge
from tests.support.federations.meeting import NAMES, SECRET, Meeting


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Meeting:
    """A merge that four members may join, of whom the first one leads."""
    return Meeting(monkeypatch)


def test_four_parties_have_the_average(meeting: Meeting) -> None:
    """Each has the same bits, and knows the members and the roster's digest."""
    meeting.join(*NAMES)
    meeting.run()
    meeting.require_average(*NAMES)
    shown = meeting.show()
    assert ("done", None, ()) == (shown.state, shown.failure, shown.awaited)
    assert {shown.digest} == {merged.digest for merged in meeting.merged.values()}
    members, shards, pieces = 4, 3, 1
    written = 4 + 2 * members + (members + 1) * shards * pieces + 2 * shards
    assert written == len(meeting.bucket.objects)


def test_a_plain_merge_is_fedavg_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a neutral party that holds a shard and leads, and two members that hold none."""
    meeting = Meeting(monkeypatch, conceal=False, neutral=["helper"], leader="helper")
    meeting.join(*NAMES[:2], conceal=False, may_aggregate=False)
    meeting.join(*NAMES[2:], "helper", conceal=False)
    meeting.run()
    wanted = meeting.average(*NAMES).astype(np.float32)
    assert {*NAMES, "helper"} == meeting.merged.keys()
    assert all(np.array_equal(wanted, meeting.average_of(name)) for name in meeting.merged)


def test_no_value_can_be_read_in_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor any two of the average."""
    meeting = Meeting(monkeypatch, conceal=False)
    meeting.join(*NAMES, conceal=False)
    meeting.run()
    seen = b"\0".join(meeting.bucket.objects.values())
    for vector in [*meeting.values.values(), meeting.average_of("org/a")]:
        assert not any(vector[at : at + 2].tobytes() in seen for at in range(0, 1000, 2))


def test_who_does_not_join_in_time_is_left_out(meeting: Meeting) -> None:
    """By the leader's clock alone, and named."""
    meeting.join("org/a", "org/b", "org/c")
    meeting.run()
    assert ("joining", ("org/d",)) == (meeting.show().state, meeting.show().awaited)
    meeting.wait()
    meeting.require_average("org/a", "org/b", "org/c", of=NAMES[:3])
    assert {"org/d": "it did not join in time"} == meeting.left_out()
    meeting.join("org/d")
    meeting.run()
    assert "it did not join in time" in str(meeting.failures["org/d"])


@pytest.mark.parametrize("count", range(3, 9))
def test_by_default_one_member_may_be_away(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Of four and more: the others hold all shards. Of three, two are fewer than are averaged."""
    names = tuple(f"org/{letter}" for letter in "abcdefgh"[:count])
    meeting = Meeting(monkeypatch, members=names, aggregators=None)
    assert {3: 3, 4: 3}.get(count, 4) == meeting.show().plan["shards"]
    meeting.join(*names[:-1])
    meeting.wait()
    if count > 3:
        meeting.require_average(*names[:-1], of=names[:-1])
        assert {names[-1]: "it did not join in time"} == meeting.left_out()
    else:
        assert "2 members joined, and min_members is 3" in str(meeting.failures["org/a"])


@pytest.mark.parametrize(
    ("count", "min_members", "shards"), [(2, 1, 2), (3, 2, 2), (4, 2, 3), (4, 4, 4), (9, 9, 4)]
)
def test_the_default_follows_the_least_number_of_members(
    monkeypatch: pytest.MonkeyPatch, count: int, min_members: int, shards: int
) -> None:
    """Where nobody may be away, nobody is allowed for; one shard alone would be a whole update."""
    names = [f"org/{letter}" for letter in "abcdefghi"[:count]]
    meeting = Meeting(monkeypatch, members=names, aggregators=None, min_members=min_members)
    assert shards == meeting.show().plan["shards"]


def test_who_vanishes_before_it_sends_costs_a_second_attempt(meeting: Meeting) -> None:
    """The others send again under new masks; a third attempt there is not."""
    meeting.join("org/d", may_aggregate=False)
    meeting.turn()
    del meeting.running["org/d"]
    meeting.join(*NAMES[:3])
    meeting.run()
    assert ("sending", ("org/d",)) == (meeting.show().state, meeting.show().awaited)
    meeting.wait()
    meeting.require_average(*NAMES[:3], of=NAMES[:3])
    assert {"org/d": "it did not send all cells in time"} == meeting.left_out()


def test_a_member_that_comes_back_has_the_average_it_is_not_in(
    meeting: Meeting, tmp_path: Path
) -> None:
    """It was left out meanwhile; its state file is its part in the roster."""
    meeting.join("org/d", state=tmp_path / "d", may_aggregate=False)
    meeting.turn()
    del meeting.running["org/d"]
    meeting.join(*NAMES[:3])
    meeting.wait()
    meeting.join("org/d", state=tmp_path / "d", may_aggregate=False)
    meeting.run()
    meeting.require_average(*NAMES[:3])


def test_an_aggregator_that_vanishes_ends_the_merge(meeting: Meeting) -> None:
    """Its shard would be missing: all others are told its name, and have no average."""
    meeting.join(*NAMES)
    meeting.run(until="combining")
    vanished = next(name for name in meeting.show_seated() if name != "org/a")
    del meeting.running[vanished]
    meeting.wait()
    assert {*NAMES} - {vanished} == meeting.failures.keys()
    for error in meeting.failures.values():
        assert f"in time from {vanished}" in str(error)


def test_a_leader_that_vanishes_is_named(meeting: Meeting) -> None:
    """The others wait for twice the time of a state."""
    meeting.join(*NAMES)
    meeting.run(until="sending")
    del meeting.running["org/a"]
    meeting.wait()
    assert {} == meeting.failures
    meeting.wait()
    for name in NAMES[1:]:
        assert "'org/a', which leads, has decided nothing" in str(meeting.failures[name])


@pytest.mark.parametrize("state", ["joining", "sending", "combining"])
def test_all_processes_begin_again(meeting: Meeting, tmp_path: Path, state: str) -> None:
    """In any state, the leader's too: they go on with their files, and nobody is left out."""
    files = {name: tmp_path / name.replace("/", "-") for name in NAMES}
    for name in NAMES:
        meeting.join(name, state=files[name])
        meeting.turn()
    meeting.run(until=state)
    for name in NAMES:
        meeting.join(name, state=files[name])
    meeting.run()
    meeting.require_average(*NAMES)
    assert not any(path.exists() for path in files.values())


def test_a_second_process_of_a_party_is_refused(meeting: Meeting) -> None:
    """The one that joined first stays; the average is of its values."""
    meeting.join("org/b")
    meeting.turn()
    first = meeting.running.pop("org/b")
    meeting.join("org/b", values=np.ones(1000, np.float32))
    meeting.turn()
    assert "another process has joined as 'org/b'" in str(meeting.failures.pop("org/b"))
    meeting.running["org/b"] = first
    meeting.join("org/a", "org/c", "org/d")
    meeting.run()
    meeting.require_average(*NAMES)


def test_a_party_under_another_name_is_refused(meeting: Meeting) -> None:
    """The terms name all parties; whoever they do not name gets nothing."""
    meeting.join("org/z", values=meeting.values["org/b"], examples=20)
    meeting.turn()
    assert "org/a, org/b, org/c, org/d, and not of 'org/z'" in str(meeting.failures["org/z"])
    assert [] == meeting.bucket.keys("joined")


def test_one_key_under_two_names_counts_once(meeting: Meeting) -> None:
    """A member that came back as another one would be in the sum twice, and its masks cancel."""
    meeting.join(*NAMES[:3])
    meeting.turn()
    twice = meeting.record("org/d").said("joined", "org/b", in_attempt=False)
    assert twice is not None
    meeting.say("org/d", "joined", twice)
    meeting.run()
    meeting.require_average(*NAMES[:3], of=NAMES[:3])
    assert {"org/d": "its public key gives the secrets of 'org/b'"} == meeting.left_out()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"examples": 0}, "its examples are 0"),
        ({"examples": 2**54}, "whole number from 1 to 2^53"),
        ({"examples": 1.5}, "its examples are 1.5"),
        ({"peak": float("nan")}, "the largest value must be"),
        ({"peak": -1.0}, "the largest value must be"),
        ({"public_key": "00" * 32}, "low order"),
        ({"public_key": "00"}, "not 32 bytes"),
        ({"neutral": True}, "neutral"),
        ({"may_aggregate": 1}, "cannot be read"),
        ({"peak": None}, "cannot be read"),
    ],
)
def test_a_statement_that_cannot_be_is_left_out(
    meeting: Meeting, changes: dict[str, object], why: str
) -> None:
    """Whatever program a member runs: it is named, with the reason; the others' mean is exact."""
    said = {
        "public_key": public_key(new_key()).hex(),
        "may_aggregate": True,
        "neutral": False,
        "examples": 20,
        "peak": 1.0,
        **changes,
    }
    meeting.say("org/b", "joined", said)
    meeting.join("org/a", "org/c", "org/d")
    meeting.run()
    meeting.require_average("org/a", "org/c", "org/d", of=("org/a", "org/c", "org/d"))
    assert why in meeting.left_out()["org/b"]


def test_values_of_another_layout_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number of parameters, or the same tensors in another order, before it joins."""
    layout = Layout.of([("a", (400,)), ("b", (600,))])
    meeting = Meeting(monkeypatch, size=layout)
    meeting.join("org/b", values=np.zeros(999, np.float32))
    meeting.join("org/c", layout=Layout.of([("b", (600,)), ("a", (400,))]))
    meeting.join("org/d", layout=Layout.of([("a", (400,)), ("b", (599,))]))
    meeting.join("org/a", layout=Layout.of([("a", (400,))]))
    meeting.run()
    assert "the values are of 999 parameters" in str(meeting.failures["org/b"])
    assert "merge has 'a' [400], they have 'b' [600]" in str(meeting.failures["org/c"])
    assert "merge has 'b' [600], they have 'b' [599]" in str(meeting.failures["org/d"])
    assert "merge has 'b' [600], they have none" in str(meeting.failures["org/a"])
    assert [] == meeting.bucket.keys("joined")


def test_the_bucket_cannot_read_names_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """They say of what kind a model is; the group alone opens them."""
    meeting = Meeting(monkeypatch, size=Layout.of([("secret.architecture", (1000,))]))
    assert not any(b"architecture" in data for data in meeting.bucket.objects.values())


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"layout": Layout.of([("a", (999,))])}, "other tensors"),
        ({"values": np.full(1000, np.nan, np.float32)}, "a value is not finite"),
        ({"examples": 0}, "its examples are 0"),
        ({"min_members": 4}, "min_members=3"),
    ],
)
def test_a_refusal_leaves_no_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: dict[str, Any], why: str
) -> None:
    """So the corrected values join with the same file, and the next error is named as it is."""
    meeting = Meeting(monkeypatch, size=Layout.of([("a", (1000,))]))
    meeting.join("org/b", state=tmp_path / "b", **{"values": np.ones(1000, np.float32), **wrong})
    meeting.turn()
    assert why in str(meeting.failures.pop("org/b"))
    assert [] == [*tmp_path.iterdir()]
    meeting.join("org/b", state=tmp_path / "b")
    meeting.join("org/a", "org/c", "org/d")
    meeting.run()
    meeting.require_average(*NAMES)


def test_a_party_that_comes_too_late_leaves_no_state(meeting: Meeting, tmp_path: Path) -> None:
    """A later merge of the name begins with whatever values it has then."""
    meeting.join(*NAMES[:3])
    meeting.wait()
    meeting.join("org/d", state=tmp_path / "d")
    meeting.turn()
    assert "past joining" in str(meeting.failures["org/d"])
    assert [] == [*tmp_path.iterdir()]


def test_terms_are_the_members_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member refuses a merge that shows more of it than it accepts, whoever created that."""
    meeting = Meeting(monkeypatch, conceal=False, min_members=2)
    meeting.join("org/a")
    meeting.join("org/b", conceal=False)
    meeting.turn()
    assert "conceal=False" in str(meeting.failures["org/a"])
    assert "min_members=2" in str(meeting.failures["org/b"])


def test_too_few_members_end_the_merge(meeting: Meeting) -> None:
    """Nothing is sent by two."""
    meeting.join("org/a", "org/b")
    meeting.run()
    meeting.wait()
    for name in NAMES[:2]:
        assert "2 members joined, and min_members is 3" in str(meeting.failures[name])
    assert [] == meeting.bucket.keys("0/cells")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"leader": "org/z"}, "leader"),
        ({"neutral": ["org/b"]}, "neutral"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": "1h"}, "deadline"),
        ({"deadline": float("nan")}, "deadline"),
        ({"weights": "foo"}, "weights"),
        ({"one_in": 2}, "one_in"),
        ({"of": "values"}, "of"),
        ({"min_members": 5}, "members"),
        ({"aggregators": 1001}, "shards"),
    ],
)
def test_terms_that_cannot_be(meeting: Meeting, changes: dict[str, object], field: str) -> None:
    """Nothing is written for them."""
    merge = BucketMerge(meeting.bucket.seen_by("test"), "august", group_secret=SECRET)
    with pytest.raises(InvalidParameter) as refused:
        merge.create(1000, NAMES, **{"leader": "org/a", **changes})  # type: ignore[arg-type]
    assert field == refused.value.field
    assert [] == [key for key in meeting.bucket.objects if key.startswith("august")]


@pytest.mark.parametrize(
    ("weight", "weights", "field"),
    [
        ("x", None, "members"),
        (True, None, "members"),
        (None, None, "members"),
        (float("inf"), None, "members"),
        (0.5, "equal", "weights"),
        (0.5, "examples", "weights"),
    ],
)
def test_given_weights_that_cannot_be(
    meeting: Meeting, weight: object, weights: str | None, field: str
) -> None:
    """No number, or beside another rule of weights, which would be ignored."""
    merge = BucketMerge(meeting.bucket.seen_by("test"), "august", group_secret=SECRET)
    given = {**dict.fromkeys(NAMES, 0.5), "org/b": weight}
    with pytest.raises(InvalidParameter) as refused:
        merge.create(1000, given, leader="org/a", weights=weights)  # type: ignore[arg-type]
    assert field == refused.value.field
    assert [] == [key for key in meeting.bucket.objects if key.startswith("august")]


def test_the_same_terms_find_the_merge(meeting: Meeting) -> None:
    """Others under its name are refused; a merge that is not there is asked for in vain."""
    same = {"leader": "org/a", "aggregators": 3, "deadline": 60}
    assert meeting.show() == meeting.merge.create(1000, NAMES, **same)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="another merge of this group is called 'july'"):
        meeting.merge.create(1000, NAMES, **{**same, "deadline": 61})  # type: ignore[arg-type]
    other = BucketMerge(meeting.bucket.seen_by("test"), "august", group_secret=SECRET)
    with pytest.raises(ConnectionFailed, match="there is no merge 'august'"):
        other.show()


def test_a_merge_by_given_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, as a service's donors have them; what members say of examples counts for nothing."""
    weights = {"org/a": 0.5, "org/b": 0.25, "org/c": 0.125, "org/d": 0.125}
    meeting = Meeting(monkeypatch, members=weights)
    meeting.join(*NAMES)
    meeting.run()
    meeting.examples = weights  # type: ignore[assignment]
    meeting.require_average(*NAMES)


def test_a_group_has_a_secret(meeting: Meeting) -> None:
    """Without one, anybody who may write could take a member's place."""
    for secret in (None, b"short"):
        with pytest.raises(InvalidParameter, match="16"):
            BucketMerge(meeting.bucket.seen_by("x"), "july", group_secret=secret)  # type: ignore[arg-type]


def test_a_failed_merge_says_so_to_who_asks(meeting: Meeting) -> None:
    """Also to a party that comes later."""
    meeting.join("org/a")
    meeting.run()
    meeting.wait()
    assert "failed" == meeting.show().state
    meeting.join("org/b")
    meeting.run()
    for name in NAMES[:2]:
        assert isinstance(meeting.failures[name], MergeFailed)
        assert "1 members joined, and min_members is 3" in str(meeting.failures[name])
