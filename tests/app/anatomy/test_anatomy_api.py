"""Anatomies over HTTP: each derivation by default settings, what answers carry, and refusals."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.fingerprints.records import NO_FACTS, Facts
from modelkin import anatomy
from tests.app.anatomy.families import BODY, DERIVATIONS, Family, derived, stranger, tensors_of
from tests.sdk.core.fingerprints.planted import fingerprint
from tests.sdk.core.fingerprints.relatives import FIRST, SECOND, average
from tests.support.fixtures import on_one_database

COPIES = ("renamed", "transposed", "flipped", "kernels")
LOST = ("noise 1",)
"""What lines cannot find, in principle."""
ORIGIN = (
    "Equal lines mean a common origin: a base, a checkpoint, or the same random seed. Which of two "
    "came first, they do not say."
)


@on_one_database
@pytest.mark.slow
@pytest.mark.parametrize("how", [how for how in DERIVATIONS if how not in LOST])
def test_each_derivation_shares_weights_with_its_base(hub: Family, how: str) -> None:
    """The model that the service read itself is named first, and the stranger never."""
    found = hub.given(derived(how), exclude=["org/copy", "org/child"])
    expected = "copy" if how in COPIES else "derived"
    named = [(p["model"], p["verdict"], p["stated_by"]) for p in found["parents"]]
    assert [("org/base", expected, "hub")] == named
    assert ORIGIN == found["sentences"][-1]


@on_one_database
def test_what_lines_cannot_find_is_unknown(hub: Family) -> None:
    """The sentence says of how many models nothing was found, and that this proves nothing."""
    found = hub.given(derived(LOST[0]))
    assert ("unknown", []) == (found["verdict"], found["parents"])
    assert found["sentences"] == [
        "none of 4 models is an ancestor, as far as lines show; absence proves nothing"
    ]


def test_an_answer_of_the_service_is_that_of_the_domain(hub: Family) -> None:
    """Tensors, parents and relations are those that are computed without one."""
    found = hub.given(derived("up-scaled"), exclude=["org/copy", "org/child"])
    alone = anatomy(derived("up-scaled"), {"org/base": stranger(0)}).to_json()
    assert alone["tensors"] == found["tensors"]
    assert alone["relations"] == found["relations"]
    [parent] = found["parents"]
    [expected] = alone["parents"]
    several = expected | {"log10_e": parent["log10_e"]}
    assert several == {name: parent[name] for name in expected}
    assert parent["log10_e"] - parent["log10_p"] == pytest.approx(0.301, abs=1e-3)  # of two models


def test_a_stored_model_is_no_parent_of_its_own(hub: Family) -> None:
    """Its own name is left out, and what the service read stands before what clients stated."""
    found = hub.anatomy("org/child")
    assert ["org/base", "org/copy"] == [each["model"] for each in found["parents"]]
    assert ("org/child", 1, 3) == (found["model"], found["revision"], found["compared"])


def test_a_likely_base_is_named_before_a_part_of_it(family: Family) -> None:
    """The older one, unless the model declares the other; the part has more of its own lines."""
    base, other = tensors_of(0), tensors_of(1)
    layer = {name: values for name, values in base.items() if name.startswith("layers.0.")}
    made = fingerprint({**other, **layer}, None)
    models = {"org/other": other, "org/base": base, "org/a-part": layer}
    for year, (name, tensors) in enumerate(models.items(), 2020):
        facts = Facts(published_at=datetime(year, 1, 1, tzinfo=UTC))
        family.put(name, fingerprint(tensors, None), facts=facts)
    for facts, named in (NO_FACTS, "org/base"), (Facts(base_models=("org/a-part",)), "org/a-part"):
        family.put("org/made", made, facts=facts)
        assert ["org/other", named] == family.anatomy("org/made")["relations"][0]["models"]


def test_a_model_that_declares_another_one_is_no_base_of_it(family: Family) -> None:
    """Without dates, too: an up-scaled model has all lines of its base, which is no part of it."""
    base, grown = stranger(0), derived("up-scaled")
    family.put("org/base", base)
    family.put("org/grown", grown)
    assert ["part"] == [each["edge"] for each in family.relatives("org/base")["items"]]
    family.put("org/grown", grown, facts=Facts(base_models=("org/base",)))
    assert [None] == [each["edge"] for each in family.relatives("org/base")["items"]]
    assert ["declared"] == [each["edge"] for each in family.relatives("org/grown")["items"]]


def test_an_answer_that_is_known_is_not_made_again(hub: Family) -> None:
    """304 for the tag of an answer; that of an anatomy is of all fingerprints."""
    for path in ("anatomy", "relatives", "tensors?with=org/base"):
        url = f"/v1/fingerprints/org/child/{path}"
        tag = hub.app.http.get(url).headers["etag"]
        again = hub.app.http.get(url, headers={"If-None-Match": tag})
        assert (304, tag, b"") == (again.status_code, again.headers["etag"], again.content)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("fingerprints/nobody/anatomy", "fingerprint_not_found"),
        ("fingerprints/nobody/relatives", "fingerprint_not_found"),
        ("fingerprints/org/base/tensors?with=nobody", "fingerprint_not_found"),
        ("fingerprints/org/base/tensors?with=", "invalid_name"),
        ("fingerprints/org/base/relatives?k=101", "invalid_parameter"),
        ("fingerprints/org/base/relatives?k=x", "invalid_parameter"),
        ("fingerprints/org/base/anatomy?exclude=", "invalid_name"),
    ],
)
@on_one_database
def test_what_is_wrong_with_a_question_is_said(hub: Family, path: str, code: str) -> None:
    """Names without a fingerprint, and values out of their range."""
    assert code == hub.app.http.get(f"/v1/{path}").json()["code"]


@on_one_database
def test_a_body_is_a_fingerprint(hub: Family) -> None:
    """Another type, another content, and more than 4 MiB."""
    post = hub.app.http.post
    assert 415 == post("/v1/anatomy", content=b"{}").status_code
    damaged = post("/v1/anatomy", content=b"MKFP" + bytes(80), headers=BODY)
    assert (422, "invalid_fingerprint") == (damaged.status_code, damaged.json()["code"])
    large = post("/v1/relatives", content=bytes((4 << 20) + 1), headers=BODY)
    assert (413, "payload_too_large") == (large.status_code, large.json()["code"])


@on_one_database
def test_an_original_is_no_average_of_what_declares_it(family: Family) -> None:
    """Directly or through another one: two that drifted from it have it between them."""
    family.put("original", fingerprint(average(FIRST, SECOND, 0.5)))
    family.put("first", fingerprint(FIRST))
    family.put("second", fingerprint(SECOND))
    said = [each["relation"] for each in family.anatomy("original")["relations"]]
    assert "average" in said
    family.put("first", fingerprint(FIRST), facts=Facts(base_models=("between",)))
    family.put("between", fingerprint(FIRST), facts=Facts(base_models=("original",)))
    said = [each["relation"] for each in family.anatomy("original")["relations"]]
    assert "average" not in said
