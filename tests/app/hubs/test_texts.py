"""Texts of hubs that are no text: names are refused with a reason, and what only describes is left
out.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.app.hubs.conftest import GOOD, refused
from tests.app.hubs.test_adapters import files as adapter_files
from tests.sdk.cli.files import entry, forge
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import random_tensors, sharded
from tests.support.servers.fake_huggingface import Fault, Handler, Hub, answering

HALF = "\ud800"
INDEX = "model.safetensors.index.json"


def index(**names: str) -> dict[str, bytes]:
    """A checkpoint of shards whose index has these names besides."""
    files = sharded(random_tensors(1))
    document = json.loads(files[INDEX])
    return {**files, INDEX: json.dumps({"weight_map": document["weight_map"] | names}).encode()}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"model.safetensors": forge({HALF: entry()}, bytes(12))}, "half a surrogate pair"),
        ({"model.safetensors": forge({"a\0": entry()}, bytes(12))}, "'a\\x00' has a control"),
        (
            {"model.safetensors": forge({"__metadata__": {HALF: ""}, "a": entry()}, bytes(12))},
            "half a surrogate pair",
        ),
        (index(**{HALF: "model-00001-of-00002.safetensors"}), "half a surrogate pair"),
        (index(a="\udfff.safetensors"), "half a surrogate pair"),
        (index(a="\0.safetensors"), "has a control character"),
        (adapter_files(1, target_modules=[HALF]), "half a surrogate pair"),
        (adapter_files(1, base_model_name_or_path=HALF), "half a surrogate pair"),
        (adapter_files(1, base_model_name_or_path="a\0"), "printable characters"),
        (adapter_files(1, rank_pattern={HALF: 2}), "half a surrogate pair"),
    ],
)
def test_names_in_files(hub: Hub, app: AppHarness, files: dict[str, bytes], says: str) -> None:
    """A name that no database and no encoder takes makes the file invalid; the error names the file
    and says what is wrong.
    """
    hub.push("org/a", files)
    state, code, detail = refused(app, hub.url)
    assert ("failed", "invalid_checkpoint") == (state, code)
    assert says in detail
    assert any(name in detail for name in files)


@pytest.mark.parametrize(
    ("field", "text"),
    [("id", HALF), ("id", "org/\0"), ("id", "org/\u202ea"), ("sha", "1\udfff"), ("sha", "\x1b[2J")],
)
def test_names_in_answers(hub: Hub, app: AppHarness, field: str, text: str) -> None:
    """A model or a commit whose name is no text is refused, and the name is shown with escapes."""
    answer = {"id": "org/a", "sha": "1", "siblings": [], field: text}
    hub.on_hub = answering(200, json.dumps(answer).encode())
    state, code, detail = refused(app, hub.url)
    assert ("failed", "hub_untrue") == (state, code)
    assert f"the {field} of org/a" in detail
    assert detail.isprintable()


def redirected(where: str, then: Fault) -> Fault:
    """A hub that redirects each look-up, and what answers behind it."""

    def answer(request: Handler) -> bool:
        if not request.path.startswith("/api/"):
            return then(request)
        request.say(302, Location=where)
        return True

    return answer


def reason(status: int, phrase: str) -> Fault:
    """An answer with a reason of the hub's own."""

    def answer(request: Handler) -> bool:
        request.send_response(status, phrase)
        request.send_header("Content-Length", "0")
        request.end_headers()
        return True

    return answer


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (reason(503, "\x1b[2J"), "hub_unavailable"),
        (reason(418, "\x07"), "hub_refused"),
        (redirected("/%00%1b%E2%80%AE", answering(404)), "hub_not_found"),
        (redirected("/%00%1b%E2%80%AE", answering(418)), "hub_refused"),
        (redirected("/%00%1b", answering(200, b"{}", Content_Encoding="gzip")), "hub_untrue"),
        (redirected("http://xn--0.example/", answering(404)), "hub_unavailable"),
        (redirected(f"//xn--{'a' * 70}.example/", answering(404)), "hub_unavailable"),
    ],
)
def test_words_of_http(
    hub: Hub, app: AppHarness, caplog: pytest.LogCaptureFixture, answer: Fault, code: str
) -> None:
    """Reasons, paths and hosts that a hub chooses reach no error and no log as they are, and raise
    no bug.
    """
    hub.on_hub = answer
    _, shown, detail = refused(app, hub.url)
    assert code == shown
    assert detail.isprintable()
    assert all(line.isprintable() for line in caplog.text.splitlines())


def test_a_next_page(hub: Hub, app: AppHarness) -> None:
    """The address of a further page is the hub's text, and is shown with escapes."""
    hub.on_hub = answering(200, b'[{"id": 1}]', Link="</%1b%00>; rel=next")
    page = hub.on_hub
    hub.on_hub = lambda request: (page if "?" in request.path else answering(200, b"x"))(request)
    source = app.hubs.follow(hub.url, poll_seconds=60)
    app.worker.run_all()
    shown = app.hubs.source(source.id).last_error
    assert shown is not None
    assert ("hub_untrue", True) == (shown["code"], "no JSON to /%1b%00" in shown["detail"])


def test_what_only_describes_is_left_out(hub: Hub, app: AppHarness) -> None:
    """Tags, library and base of a card, and names of other files, that are no text: the model is
    stored without them.
    """
    card: dict[str, Any] = {"base_model": "org/\ud800", HALF: HALF}
    tags = ["good", f"bad{HALF}", "bad\0", "bad\u202e"]
    hub.push("org/a", {"model.safetensors": GOOD, f"{HALF}.md": b"x"}, tags=tags, card=card)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert job.error is None, job.error
    stored = app.hubs.model("org/a")
    assert stored is not None
    assert (("good",), None) == (tuple(stored.tags), stored.base_model)


@pytest.mark.parametrize("text", ["org/a\udfff", "org/\0", "x" * 1_000_000])
def test_a_name_in_a_listing(hub: Hub, app: AppHarness, text: str) -> None:
    """A poll counts it as unnamable, and syncs the others."""
    hub.push("org/b", {"model.safetensors": GOOD})
    source = app.hubs.follow(hub.url, poll_seconds=60)
    lines = json.dumps([{"id": text, "sha": "1"}, {"id": "org/b", "sha": "2"}]).encode()

    def listing(request: Any) -> bool:
        return bool(request.path.startswith("/api/models?") and answering(200, lines)(request))

    hub.on_hub = listing
    app.http.post(f"/v1/sources/{source.id}/poll")
    app.worker.run_all()
    assert app.hubs.model("org/b") is not None
    shown = app.hubs.source(source.id)
    assert shown.last_poll is not None
    assert (1, 1) == (shown.last_poll["models"], shown.last_poll["unnamable"])
    assert shown.last_error is None
