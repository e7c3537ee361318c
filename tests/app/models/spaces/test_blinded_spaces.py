"""Spaces whose supports are blinded: the same answers, and nothing of another key."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from modelkin import Blinding, Layout
from tests.support.fixtures import on_one_database
from tests.support.http_space import SUPPORT, Space, assert_problem, family, ok

pytestmark = on_one_database

LAYOUT = Layout.of([("conv.weight", (30, 200)), ("head.weight", (10, 400))])
M = LAYOUT.num_parameters
BLINDING = Blinding("5a" * 32, LAYOUT)
OTHER = Blinding("a5" * 32, LAYOUT)
FAMILY = family(7, M, 500, 12)
NAMES = (f"blind-{number}" for number in itertools.count())


def put(http: httpx.Client, space: str, model: str, support: Any, **stated: str) -> httpx.Response:
    """PUT a support that states what is given."""
    headers = {"content-type": SUPPORT}
    path = f"/v1/spaces/{space}/supports/{model}"
    return http.put(path, content=support.to_bytes(), params=stated, headers=headers)


@pytest.fixture(scope="module")
def blinded(http: httpx.Client) -> str:
    """A blinded space that holds the family."""
    name = next(NAMES)
    body = {"name": name, "num_parameters": M, "blinding": BLINDING.check}
    assert 201 == http.post("/v1/spaces", json=body).status_code
    for model, support in FAMILY.items():
        answer = put(http, name, model, BLINDING.blind(support), blinding=BLINDING.check)
        assert 201 == answer.status_code, answer.text
    return name


@pytest.fixture(scope="module")
def plain(http: httpx.Client) -> Space:
    """The same family in the clear."""
    space = Space(http, M)
    for model, support in FAMILY.items():
        space.put(model, support)
    return space


def test_a_space_shows_its_check_value(http: httpx.Client, blinded: str) -> None:
    """The check value, no layout, and a note that chance knows no tensors."""
    shown = ok(http.get(f"/v1/spaces/{blinded}"))
    assert (BLINDING.check, None) == (shown["blinding"], shown["layout"])
    answer = ok(http.get(f"/v1/spaces/{blinded}/neighbors", params={"model": "m000"}))
    assert "blinded" in answer["note"]


def test_answers_are_those_of_the_plain_supports(
    http: httpx.Client, blinded: str, plain: Space
) -> None:
    """Neighbours, donors and the matrix agree to the last digit; weights of donors, for which the
    space is estimated by signatures, within their error.
    """
    for query in ("neighbors?model=m003&k=11&method=exact", "donors?target=m003&k=5"):
        mine, theirs = (
            ok(http.get(f"/v1/spaces/{name}/{query}"))["items"] for name in (blinded, plain.name)
        )
        ranked = [
            [(item["model"], item["similarity"]) for item in items] for items in (mine, theirs)
        ]
        assert ranked[0] == ranked[1]
        first, second = ([i.get("weight", 0.0) for i in items] for items in (mine, theirs))
        assert np.allclose(first, second, atol=0.03)
    body = {"models": sorted(FAMILY)}
    mine, theirs = (
        ok(http.post(f"/v1/spaces/{name}/similarity", json=body))["similarity"]
        for name in (blinded, plain.name)
    )
    assert theirs == mine


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({}, "blind yours with its key first"),
        ({"blinding": OTHER.check}, "the key or the layout is another"),
    ],
)
def test_what_is_not_blinded_under_the_key_is_refused(
    http: httpx.Client, blinded: str, stated: dict[str, str], said: str
) -> None:
    """Supports, signatures, queries and lines of a batch: a 409 that says what to do."""
    support = FAMILY["m001"]
    answers = [put(http, blinded, "new", support, **stated)]
    signature = {"content-type": "application/vnd.modelkin.signature"}
    root = f"/v1/spaces/{blinded}"
    sent = modelkin.wire.encode_signature(support.signature())
    answers.append(
        http.put(f"{root}/signatures/new", content=sent, headers=signature, params=stated)
    )
    content, headers = support.to_bytes(), {"content-type": SUPPORT}
    answers += [
        http.post(f"{root}/{path}", params=stated, content=content, headers=headers)
        for path in ("neighbors", "donors")
    ]
    for answer in answers:
        assert said in assert_problem(answer, 409, "space_mismatch")
    assert 404 == http.get(f"{root}/models/new").status_code


def test_a_batch_names_the_line_that_is_not_blinded(server: Any, blinded: str) -> None:
    """Through the SDK such an item is refused before it is sent, and the others are stored."""
    with modelkin.Client(server.url) as client:
        items = [("batch/a", BLINDING.blind(FAMILY["m002"])), ("batch/b", FAMILY["m002"])]
        results: list[Any] = []
        client.put_many(blinded, items, on_result=results.append)
        found = {each.model: each.status for each in results}
        assert {"batch/a": "created", "batch/b": "failed"} == found
        client.models.delete(blinded, "batch/a")


def test_a_delta_states_its_blinding(server: Any, blinded: str) -> None:
    """A changed support goes out as a patch, and one without the check value is refused."""
    with modelkin.Client(server.url) as client:
        first = BLINDING.blind(FAMILY["m000"])
        stored = client.put_support(blinded, "changing", first)
        kept = np.delete(FAMILY["m000"].indices, 3)
        second = BLINDING.blind(modelkin.Support(kept, M))
        assert client.put_support(blinded, "changing", second).revision == 2
        delta = modelkin.wire.encode_patch(second, first)
        answer = httpx.patch(
            f"{server.url}/v1/spaces/{blinded}/supports/changing",
            content=delta,
            headers={"content-type": modelkin.wire.PATCH, "if-match": stored.etag or ""},
        )
        assert_problem(answer, 409, "space_mismatch")
        client.models.delete(blinded, "changing")


def test_a_sketch_states_its_blinding(server: Any, blinded: str) -> None:
    """Beside a signature, alone or in a batch; without the check value it is a 409."""
    support = BLINDING.blind(FAMILY["m004"])
    signature, sketch = support.signature(), support.sketch()
    with modelkin.Client(server.url) as client:
        client.put_signature(blinded, "sketched", signature)
        with pytest.raises(modelkin.ConflictError, match="blind yours with its key first"):
            client.sketches.put(blinded, "sketched", sketch)
        client.sketches.put(blinded, "sketched", sketch, blinding=BLINDING)
        assert sketch == client.sketches.get(blinded, "sketched")
        item = modelkin.BulkItem("sketched/many", signature, sketch=sketch)
        assert 1 == client.put_many(blinded, [item]).created
        for name in ("sketched", "sketched/many"):
            client.models.delete(blinded, name)


def test_a_space_that_is_made_again_in_the_clear(server: Any) -> None:
    """A client that knew the blinded one reads the space again before it refuses an item."""
    with modelkin.Client(server.url) as client, modelkin.Client(server.url) as other:
        for many in (False, True):
            name, support = next(NAMES), FAMILY["m001"]
            client.ensure_space(name, blinding=BLINDING)
            other.spaces.delete(name)
            other.ensure_space(name, num_parameters=M)
            if many:
                assert 1 == client.put_many(name, [("a", support)]).created
            else:
                assert support.digest == client.put_support(name, "a", support).digest


@pytest.mark.slow
def test_the_command_line_does_not_upload_what_is_not_blinded(
    server: Any, blinded: str, tmp_path: Path
) -> None:
    """``modelkin push`` reads the space first, and says what to do; nothing is stored."""
    file = tmp_path / "plain.mksp"
    file.write_bytes(FAMILY["m001"].to_bytes())
    where = ["--space", blinded, "--model", "pushed", "--url", server.url]
    done = subprocess.run(
        [sys.executable, "-m", "modelkin", "push", str(file), *where],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 1 == done.returncode
    assert "--blinding-key FILE" in done.stderr
    assert "Nothing was sent" in done.stderr
    with modelkin.Client(server.url) as client, pytest.raises(modelkin.NotFoundError):
        client.models.get(blinded, "pushed")


def test_a_blinded_support_is_refused_in_a_plain_space(http: httpx.Client, plain: Space) -> None:
    """Its indices mean nothing there, so it is a 409 and not a stranger."""
    answer = put(http, plain.name, "b", BLINDING.blind(FAMILY["m001"]), blinding=BLINDING.check)
    assert "those of space" in assert_problem(answer, 409, "space_mismatch")


def test_bodies_that_cannot_be_a_blinded_space(http: httpx.Client, blinded: str) -> None:
    """A layout, a broken check value, data subspaces, or another key for the same name."""
    check = BLINDING.check
    layout = {"layout": LAYOUT.to_json()}
    for body, status, code in (
        ({"blinding": check, **layout}, 422, "invalid_parameter"),
        ({"blinding": "secret", "num_parameters": M}, 422, "invalid_parameter"),
        ({"blinding": check, "kind": "subspaces", "num_parameters": 64}, 422, None),
    ):
        answer = http.post("/v1/spaces", json={"name": next(NAMES), **body})
        assert status == answer.status_code, answer.text
        assert code in (None, answer.json()["code"])
    other = {"name": blinded, "num_parameters": M, "blinding": OTHER.check}
    assert check in assert_problem(http.post("/v1/spaces", json=other), 409, "space_exists")
    again = {"name": blinded, "num_parameters": M, "blinding": check}
    assert 200 == http.post("/v1/spaces", json=again).status_code


def test_a_wrong_key_is_an_error_before_any_upload(server: Any, blinded: str) -> None:
    """The SDK compares check values first: nothing of the support reaches the service."""
    with modelkin.Client(server.url) as client:
        with pytest.raises(modelkin.SpaceMismatch, match="Nothing was sent"):
            client.put_support(blinded, "new", OTHER.blind(FAMILY["m001"]))
        with pytest.raises(modelkin.SpaceMismatch, match=r"send blinding.blind\(support\)"):
            client.put_support(blinded, "new", FAMILY["m001"])
        with pytest.raises(modelkin.ConflictError, match="already a space"):
            client.ensure_space(blinded, blinding=OTHER)
        assert BLINDING.check == client.ensure_space(blinded, blinding=BLINDING).blinding


def test_importance_goes_up_blinded(server: Any) -> None:
    """``put_importance(blinding=...)`` selects, agrees on K and blinds; rotation is a new space."""
    values = np.random.default_rng(2).random(M).astype(np.float32) ** 8
    with modelkin.Client(server.url) as client:
        for blinding in (BLINDING, OTHER):
            name = next(NAMES)
            client.ensure_space(name, blinding=blinding, support_size=300, importance="fisher")
            client.put_importance(
                name, "a", values, kind="fisher", layout=LAYOUT, blinding=blinding
            )
            stored = client.supports.get(name, "a")
            expected = modelkin.select_support(values, k=300, kind="fisher", layout=LAYOUT)
            assert expected != stored
            assert expected == blinding.unblind(stored)
            with pytest.raises(modelkin.SpaceMismatch):
                client.put_importance(name, "b", values, kind="fisher", layout=LAYOUT)
