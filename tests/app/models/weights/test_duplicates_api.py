"""Weights that clients state: exact copies in a space and across spaces, their event and marks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelkin import Support
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import Backend
from tests.support.servers.webhook_receiver import receiving

SUPPORT = Support.from_indices([1, 2, 3], 1000)
OTHER = Support.from_indices([4, 5, 6], 1000)


@pytest.fixture
def app(tmp_path: Path, backend: Backend) -> Iterator[AppHarness]:
    """A service of its own, with two spaces."""
    with open_keyed_app(tmp_path, backend) as opened:
        opened.create_space("s", 1000)
        opened.create_space("other", 1000)
        yield opened


def weights(seed: int, files: int = 1, **more: Any) -> dict[str, Any]:
    """What a client states of a checkpoint."""
    return {
        "digest": f"sha256:{seed:064x}",
        "tensors": {"a.weight": f"{seed:064x}", "b.weight": f"{seed + 1:064x}"},
        "files": files,
        "size": 4000,
        "dtypes": {"F32": 1000},
        **more,
    }


def store(app: AppHarness, space: str, name: str, support: Support = SUPPORT) -> None:
    app.put_support(space, name, support)


def state(app: AppHarness, space: str, name: str, seed: int, **more: Any) -> None:
    answer = app.http.put(f"/v1/spaces/{space}/weights/{name}", json=weights(seed, **more))
    assert 200 == answer.status_code, answer.text


def duplicates(app: AppHarness, **params: Any) -> list[list[tuple[str, str, str | None]]]:
    """Space, model and remark of all models with equal weights, page by page."""
    found, cursor = [], None
    while True:
        answer = app.http.get("/v1/duplicates", params=params | {"cursor": cursor or []})
        assert 200 == answer.status_code, answer.text
        page = answer.json()
        found += [[(i["space"], i["model"], i["says"]) for i in g["items"]] for g in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def test_copies_are_found_in_a_space_and_across_spaces(app: AppHarness) -> None:
    """By digest, with the number of their files; a model in two spaces is no copy of itself."""
    for space, name, seed, more in (
        ("s", "org/base", 7, {"files": 30}),
        ("s", "org/copy", 7, {"files": 15}),
        ("other", "org/again", 7, {"files": 1}),
        ("s", "org/alone", 8, {}),
        ("s", "both", 9, {}),
        ("other", "both", 9, {}),
        ("s", "x", 5, {}),
        ("s", "y", 5, {}),
    ):
        store(app, space, name)
        state(app, space, name, seed, **more)
    one = [("s", "x", None), ("s", "y", "the same weights as x")]
    many = [
        ("s", "org/base", None),
        ("s", "org/copy", "the same weights as org/base, in 15 shards instead of 30"),
        (
            "other",
            "org/again",
            "the same weights as org/base, in 1 file instead of 30 shards",
        ),
    ]
    assert [one, many] == duplicates(app) == duplicates(app, limit=1)
    assert [many] == duplicates(app, space="other")
    assert [many] == duplicates(app, space="s", model="org/copy")
    assert [] == duplicates(app, space="s", model="both")
    shown = app.http.get("/v1/spaces/s/weights/org/copy").json()
    assert ("client", 1, 15) == (shown["stated_by"], shown["revision"], shown["files"])
    assert {"a.weight": f"{7:064x}"[:32], "b.weight": f"{8:064x}"[:32]} == shown["tensors"]


def test_weights_are_those_of_one_revision(app: AppHarness) -> None:
    """Another support has other weights until they are stated; late statements are refused."""
    for name in ("a", "b"):
        store(app, "s", name)
        state(app, "s", name, 7, revision=1)
    assert 1 == len(duplicates(app))
    store(app, "s", "b", OTHER)
    late = app.http.put("/v1/spaces/s/weights/b", json=weights(7, revision=1))
    assert (409, "conflict") == (late.status_code, late.json()["code"])
    assert "is at revision 2" in late.json()["detail"]
    unknown = app.http.get("/v1/spaces/s/weights/b").json()
    assert ("weights_not_found", []) == (unknown["code"], duplicates(app))
    state(app, "s", "b", 7, revision=2)
    assert 1 == len(duplicates(app))
    app.http.delete("/v1/spaces/s/models/a").raise_for_status()
    assert [] == duplicates(app)


def test_a_copy_is_an_event_and_marked_in_the_explorer(app: AppHarness) -> None:
    """The event names the others, once for each content; the pages say so in words."""
    with receiving() as receiver:
        app.webhooks.subscribe(f"{receiver.url}/ok", "model.duplicate", space="s")
        for name, files in (("org/base", 30), ("org/copy", 15), ("org/copy", 15)):
            store(app, "s", name)
            state(app, "s", name, 7, files=files)
        app.worker.run_all()
        [event] = [json.loads(each.body) for each in receiver.at("/ok")]
    data = event["data"]
    assert ("model.duplicate", "org/copy") == (event["type"], data["model"])
    assert [{"space": "s", "model": "org/base"}] == data["same_as"]
    named = app.http.get(data["url"]).json()["items"]
    assert ["org/base", "org/copy"] == [item["model"] for item in named[0]["items"]]
    page = app.http.get("/spaces/s/models/org/copy").text
    said = page.partition('id="copies">')[2].partition("</p>")[0]
    assert "org/base</a>: in 15 shards instead of 30." in said
    assert 2 == app.http.get("/spaces/s").text.count(">copy</span>")


def test_a_model_is_among_its_copies_however_many_there_are(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer lists so many at most, and the one that was asked for; the page says that."""
    monkeypatch.setattr("app.models.weights.service._MAX_MODELS", 4)
    for name, files in (("a", 30), ("b", 30), ("c", 30), ("d", 30), ("e", 15)):
        store(app, "s", name)
        state(app, "s", name, 7, files=files)
    last = ("s", "e", "the same weights as a, in 15 shards instead of 30")
    [found] = duplicates(app, space="s", model="e")
    assert (["a", "b", "c", "e"], last) == ([model for _, model, _ in found], found[-1])
    [every] = duplicates(app)
    assert ["a", "b", "c", "d"] == [model for _, model, _ in every]
    page = app.http.get("/spaces/s/models/e").text.partition('id="copies">')[2]
    assert "in 15 shards instead of 30." in page.partition("</p>")[0]
    first = app.http.get("/spaces/s/models/a").text.partition('id="copies">')[2]
    assert ">d</a>" in first.partition("</p>")[0]


def test_what_cannot_be_weights_is_refused(app: AppHarness) -> None:
    """Digests, counts and names that no checkpoint has, unknown models, foreign cursors."""
    store(app, "s", "a")
    path = "/v1/spaces/s/weights/a"
    refusals: tuple[dict[str, Any], ...] = (
        {"digest": "sha256:12"},
        {"tensors": {}},
        {"tensors": {"": "0" * 64}},
        {"tensors": {"a": "xyz"}},
        {"files": 0},
        {"size": -1},
        {"size": 2**63},
        {"dtypes": {"F32": -1}},
        {"revision": 0},
        {"more": 1},
    )
    for wrong in refusals:
        refused = app.http.put(path, json=weights(7) | wrong)
        assert 422 == refused.status_code, wrong
    missing = app.http.put("/v1/spaces/s/weights/none", json=weights(7))
    assert (404, "model_not_found") == (missing.status_code, missing.json()["code"])
    for params in ({"cursor": "AAAA"}, {"cursor": "c2hhMjU2Onp6"}, {"model": "a"}):
        answer = app.http.get("/v1/duplicates", params=params)
        assert (422, "invalid_parameter") == (answer.status_code, answer.json()["code"]), params
