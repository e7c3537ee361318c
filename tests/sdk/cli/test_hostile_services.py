"""What a lying service says to the command line: never raw to a terminal, never without bounds."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from modelkin._progress_bar import ProgressLine
from modelkin.cli import main
from modelkin.cli.style import BAD, for_output, paint
from tests.support.servers.hostile import Script, chunk, endless, head, hostile_server

EVIL = "a\x1b[2Jb\x07\r\nforged \u202ec\u2066\x9b31md\ud800\u2028e\x1b]0;title\x07"
"""A cleared screen, a bell, a new line, reversed text, half a character, a window's title."""

WHEN = "2026-01-02T03:04:05Z"
SPACE = {
    "name": EVIL,
    "num_parameters": 100,
    "layout": None,
    "signature": {"scheme": "affine32", "num_perm": 256, "seed": 1},
    "models": 3,
    "supports": 2,
    "signatures": 1,
    "version": 7,
    "created_at": WHEN,
}
MODEL = {
    "space": EVIL,
    "model": EVIL,
    "kind": "support",
    "support_size": 3,
    "digest": EVIL,
    "revision": 1,
    "version": 7,
    "tags": [EVIL],
    "attributes": {EVIL: EVIL},
    "source": EVIL,
    "base_model": EVIL,
    "verified": True,
    "created_at": WHEN,
    "updated_at": WHEN,
}
ITEM = {
    "model": EVIL,
    "similarity": 0.5,
    "jaccard": 0.3,
    "estimate": "exact",
    "standard_error": 0.0,
    "shared_indices": 2,
}
NEIGHBORS = {
    "model": EVIL,
    "method": "exact",
    "candidates": 2,
    "degraded": False,
    "items": [ITEM],
    "note": EVIL,
}
LEARNGENE = {
    "space": "digits",
    "cluster": 3,
    "version": 1,
    "digest": EVIL,
    "bytes": 10,
    "num_tensors": 1,
    "kept": True,
    "stale": False,
    "reference": None,
    "clustering": None,
    "members": 1,
    "rounds": 1,
    "metrics": {EVIL: 0.5, "digest": 0.25},
    "note": EVIL,
    "created_at": WHEN,
    "tensors": [{"name": EVIL, "dtype": "F32", "shape": [1]}],
}
JOB = {
    "id": "0123",
    "kind": "sync",
    "space": EVIL,
    "state": "failed",
    "parameters": {"model": EVIL},
    "progress": None,
    "result": None,
    "error": {"code": EVIL, "detail": EVIL},
    "attempts": 1,
    "cancelling": False,
    "created_at": WHEN,
    "started_at": None,
    "finished_at": None,
}


SOURCE = {
    "id": "0123",
    "kind": "huggingface",
    "space": EVIL,
    "url": EVIL,
    "hook": EVIL,
    "filters": {EVIL: [EVIL]},
    "poll_seconds": 60,
    "has_token": False,
    "on_delete": "keep",
    "importance": "weight",
    "last_poll_at": WHEN,
    "last_poll": {"models": [EVIL]},
    "last_error": {EVIL: EVIL, "at": EVIL, "code": [EVIL]},
    "created_at": WHEN,
    "updated_at": WHEN,
}


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a service of its own, whose settings a process would check."""
    monkeypatch.setattr("modelkin.cli.commands.doctor.local_checks", lambda _: iter(()))


def answer(body: Any, status: HTTPStatus = HTTPStatus.OK) -> Script:
    """Any request gets this JSON, a half of a character as it can only stand in an escape."""
    data = json.dumps(body).replace("\\ud800", "").encode()
    line = f"{status.value} {status.phrase}"
    return lambda: iter([head("Connection: close", status=line) + data])


LEARNGENE_COMMAND = ("learngene", "show", "--cluster", "3", "--space", "x")

COMMANDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "spaces": ({"items": [SPACE], "next_cursor": None}, ("spaces",)),
    "names of spaces": ({"items": [SPACE], "next_cursor": None}, ("spaces", "--names")),
    "a space": (SPACE, ("spaces", "show", "x")),
    "models": ({"items": [MODEL], "next_cursor": None}, ("models", "--space", "x", "--tag", "t")),
    "names of models": (
        {"items": [MODEL], "next_cursor": None},
        ("models", "--space", "x", "--tag", "t", "--names"),
    ),
    "a model": (MODEL, ("show", "a", "--space", "x")),
    "tags": (MODEL, ("tag", "a", "t", "--space", "x")),
    "neighbours": (NEIGHBORS, ("neighbors", "a", "--space", "x")),
    "a learngene": (LEARNGENE, LEARNGENE_COMMAND),
    "a job": (JOB, ("jobs", "show", "0123")),
    "a failed job": (JOB, ("jobs", "wait", "0123")),
    "jobs": ({"items": [JOB], "next_cursor": None}, ("jobs",)),
    "sources": ({"items": [SOURCE], "next_cursor": None}, ("sources",)),
    "a refusal": (
        {"code": EVIL, "title": EVIL, "detail": EVIL, "errors": [{"field": EVIL, "message": EVIL}]},
        ("spaces",),
    ),
    "a page": (f"<p>{EVIL}", ("spaces",)),
    "a diagnosis": ({"version": EVIL, "detail": EVIL}, ("doctor",)),
}


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(("body", "words"), COMMANDS.values(), ids=COMMANDS.keys())
def test_nothing_reaches_a_terminal_raw(
    body: Any,
    words: tuple[str, ...],
    form: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No control character, mark of direction or line of its own comes from names and notes."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    refuses = isinstance(body, dict) and "title" in body
    status = HTTPStatus.CONFLICT if refuses else HTTPStatus.OK
    extra = ("--json",) if form == "json" else ()
    with hostile_server(answer(body, status)) as server:
        main([*words, "--url", server.url, *extra])
    written = capsys.readouterr()
    shown = re.sub("\x1b\\[(0|1|2|31|32|33)m", "", written.out + written.err)
    assert shown
    assert "" == "".join(c for c in shown if c != "\n" and not c.isprintable())
    assert not [line for line in shown.splitlines() if line.startswith("forged")]
    if form == "json" and written.out:
        json.loads(written.out)


def test_a_hostile_name_is_one_line_of_names(capsys: pytest.CaptureFixture[str]) -> None:
    """``--names`` gives sound names as they are; others escaped, which no service knows."""
    rows = [{**SPACE, "name": "naïve-1"}, {**SPACE, "name": "rm\n-rf \x1b[2J"}]
    with hostile_server(answer({"items": rows, "next_cursor": None})) as server:
        assert 0 == main(["spaces", "--names", "--url", server.url])
    assert "naïve-1\nrm\\n-rf \\x1b[2J\n" == capsys.readouterr().out


def test_a_metric_takes_the_place_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A metric that is named like a line of the answer does not replace that line."""
    sound = {**LEARNGENE, "digest": "sha256:00", "metrics": {"digest": 0.25, "accuracy": 0.5}}
    with hostile_server(answer(sound)) as server:
        assert 0 == main([*LEARNGENE_COMMAND, "--url", server.url])
    said = dict(
        line.split("  ", 1) for line in capsys.readouterr().out.splitlines() if "  " in line
    )
    assert ("sha256:00", "0.25", "0.5") == tuple(
        said[name].strip() for name in ("digest", "metric digest", "accuracy")
    )


def test_the_last_step_escapes_what_a_command_forgot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Styles of the command line and ends of lines stay; any other control character is escaped."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = f"{paint('bad', BAD)}\n\x1b[8mhidden\x1b[2J\u202e"
    assert "\x1b[31mbad\x1b[0m\n\\x1b[8mhidden\\x1b[2J\\u202e" == for_output(text)


def test_a_progress_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The stage of a job is the service's text, and so is a model's name."""
    line = ProgressLine()
    line.draw(EVIL, 0.5, EVIL)
    (shown,) = re.findall("^\r(.*)\x1b\\[K$", capsys.readouterr().err, re.DOTALL)
    assert shown.isprintable()


@pytest.mark.parametrize("share", [1e18, -1e18, float("inf")])
def test_a_bar_is_as_long_as_a_bar(share: float, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that has done more than all of its work, or less than none, makes no longer line."""
    ProgressLine().draw("job", share)
    assert len(capsys.readouterr().err) < 100


def test_a_time_without_utc_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The last hours of the year 9999 in the west have no time in UTC."""
    late = {**SPACE, "name": "late", "created_at": "9999-12-31T23:00:00-08:00"}
    with hostile_server(answer(late)) as server:
        assert 0 == main(["spaces", "show", "late", "--url", server.url])
    assert "9999-12-31T23:00:00-08:00" in capsys.readouterr().out


@pytest.mark.parametrize("last_error", [{}, {"at": 5}, {"at": WHEN[:-1]}, {"at": WHEN}])
def test_a_source_with_an_odd_error_is_shown(
    last_error: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """What no type describes, such as the time of an error, may be anything."""
    rows = {"items": [{**SOURCE, "last_error": {"code": "odd", **last_error}}], "next_cursor": None}
    with hostile_server(answer(rows)) as server:
        assert 0 == main(["sources", "--url", server.url])
    assert capsys.readouterr().out.splitlines()[1].endswith("odd")


def test_a_time_without_an_offset_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Such a time compares with no other, so that the answer is none that this version knows."""
    job = {**JOB, "state": "queued", "error": None, "started_at": WHEN[:-1]}
    with hostile_server(answer({"items": [job], "next_cursor": None})) as server:
        assert 1 == main(["jobs", "--url", server.url])
    assert "`datetime` with a timezone component" in capsys.readouterr().err


_BOMB = gzip.compress(bytes(1 << 24))


def _bomb() -> Iterator[bytes | float]:
    yield head("Content-Encoding: gzip", f"Content-Length: {len(_BOMB)}") + _BOMB


def _endless_refusal() -> Iterator[bytes | float]:
    yield head("Transfer-Encoding: chunked", status="500 No")
    yield from endless(chunk(b" " * 65_536))


def _endless_head() -> Iterator[bytes | float]:
    yield b"HTTP/1.1 200 OK\r\n"
    yield from endless(b"X-More: and more\r\n" * 4_000)


@pytest.mark.parametrize("script", [_bomb, _endless_refusal, _endless_head])
@pytest.mark.parametrize("words", [("spaces",), ("doctor",), ("show", "a", "--space", "x")])
def test_a_command_ends(
    words: tuple[str, ...], script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers without an end are errors of a line, and exit code 1; the connection is closed."""
    with hostile_server(script) as server:
        assert 1 == main([*words, "--url", server.url])
        assert server.closed.wait(30)
    written = capsys.readouterr()
    assert re.search("compressed|longer than|no whole answer", written.out + written.err)
