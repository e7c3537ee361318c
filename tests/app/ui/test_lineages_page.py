"""The audit of a space as a page: declared bases beside what is measured."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, ok, random_support, related

pytestmark = on_one_database

M = 10_000


@pytest.fixture(scope="module")
def audited(http: httpx.Client) -> Space:
    """Strangers, a base with a true and a silent derivative, and one that names a stranger."""
    space, rng = Space(http, M), np.random.default_rng(4)
    base = random_support(rng, M, 500)
    space.put_all({f"other-{n}": random_support(rng, M, 500) for n in range(8)})
    space.put_all(
        {"base": base} | {name: related(rng, base, 0.8) for name in ("true", "false", "silent")}
    )
    for name, declared in (("true", "base"), ("false", "other-3")):
        ok(http.patch(space.path("models", name), json={"base_model": declared}))
    return space


def rows(http: httpx.Client, space: Space, show: str = "") -> dict[str, str]:
    """The rows of the table by the name of the model."""
    answer = http.get(f"/spaces/{space.name}/lineages", params={"show": show} if show else {})
    assert 200 == answer.status_code, answer.text
    found = [part.partition("</tbody>")[0] for part in answer.text.split("<tbody>")[1:]]
    return {
        part.partition('scope="rowgroup" data-value="')[2].partition('"')[0]: part for part in found
    }


def test_what_asks_for_a_look_comes_first(http: httpx.Client, audited: Space) -> None:
    """The false declaration and the silent derivative are listed, the true one is not."""
    shown = rows(http, audited)
    assert {"false", "silent"} <= shown.keys()
    assert "true" not in shown
    assert "mismatch" in shown["false"]
    assert ">other-3</a>" in shown["false"]
    assert "undeclared" in shown["silent"]


def test_what_figures_say_is_said_once(http: httpx.Client, audited: Space) -> None:
    """A row has what the columns do not say; a program gets the whole summary."""
    path = f"/spaces/{audited.name}/lineages"
    shown = http.get(path).text
    assert 1 == shown.count("it may be the base, or be made from the model.")
    for repeated in (
        "No base is declared",
        "The probability that unrelated",
        "or be made from this",
    ):
        assert repeated not in shown.replace('data-value="', "").partition("<td hidden")[0]
    row = rows(http, audited)["silent"].partition('class="why"')[2]
    assert '<p class="quiet small"></p>' in row
    assert "The declared base" in rows(http, audited)["false"].partition('class="why"')[2]
    [silent] = [
        each
        for each in ok(http.get(audited.path("lineages")))["items"]
        if each["model"] == "silent"
    ]
    assert silent["summary"].startswith("No base is declared.")
    assert silent["summary"].endswith("it may be the base, or be made from this model.")


@pytest.mark.parametrize(("show", "name"), [("consistent", "true"), ("mismatch", "false")])
def test_one_verdict(http: httpx.Client, audited: Space, show: str, name: str) -> None:
    """Its findings alone, and the same from a program."""
    assert [name] == [*rows(http, audited, show)]
    shown = http.get(f"/spaces/{audited.name}/lineages", params={"show": show}).text
    assert f"lineages?verdict={show}" in shown


def test_all_findings_are_those_of_the_api(http: httpx.Client, audited: Space) -> None:
    """The models of the API's findings, and a verdict that is not one is a problem page."""
    findings = ok(http.get(f"/v1/spaces/{audited.name}/lineages"))["items"]
    assert [each["model"] for each in findings] == [*rows(http, audited, "all")]
    wrong = http.get(f"/spaces/{audited.name}/lineages", params={"show": "guilty"})
    assert 422 == wrong.status_code


def test_acknowledged_findings_have_a_list_of_their_own(http: httpx.Client, audited: Space) -> None:
    """They are left out elsewhere, and each choice has its count."""
    path, of = audited.path("lineage/acknowledgement"), {"model": "false"}
    ok(http.put(path, params=of, json={"note": "<script>known</script>"}))
    try:
        assert "false" not in rows(http, audited)
        shown = rows(http, audited, "acknowledged")
        page = http.get(f"/spaces/{audited.name}/lineages").text
    finally:
        assert 204 == http.delete(path, params=of).status_code
    assert ["false"] == [*shown]
    assert "&lt;script&gt;known" in shown["false"]
    assert 'acknowledged <span class="quiet">1</span>' in page
    assert 'mismatch <span class="quiet">0</span>' in page


def test_a_space_without_models(http: httpx.Client, space: Space) -> None:
    """Says so, and leads to where the first comes from."""
    page = http.get(f"/spaces/{space.name}/lineages").text
    assert f'no model yet. <a href="/spaces/{space.name}/upload">' in page


def test_the_base_and_the_nearest_have_columns_of_their_own(
    http: httpx.Client, audited: Space
) -> None:
    """S to the declared base and S to the nearest model are two figures, as in the API."""
    found = ok(http.get(f"/v1/spaces/{audited.name}/lineages"))["items"]
    [false] = [each for each in found if each["model"] == "false"]
    assert false["base_similarity"] < 0.2 < false["nearest_similarity"]
    assert false["nearest"] in {"base", "true", "silent"}
    shown = rows(http, audited)["false"]
    for name in ("base_similarity", "nearest_similarity"):
        assert f">{false[name]:.3f}</td>" in shown
    [silent] = [each for each in found if each["model"] == "silent"]
    assert None is silent["base_similarity"]
    assert silent["nearest_similarity"] > 0.2


def test_a_base_that_is_elsewhere_is_no_link(http: httpx.Client, audited: Space) -> None:
    """A declared base that the space lacks is shown as text, here and on the model's page."""
    ok(http.patch(audited.path("models", "other-7"), json={"base_model": "acme/elsewhere"}))
    try:
        shown = rows(http, audited)["other-7"]
        page = http.get(f"/spaces/{audited.name}/models/other-7").text
    finally:
        ok(http.patch(audited.path("models", "other-7"), json={"base_model": None}))
    for text in (shown, page):
        assert "acme/elsewhere" in text
        assert "models/acme/elsewhere" not in text


def test_the_page_of_a_model_acknowledges_its_finding(http: httpx.Client, audited: Space) -> None:
    """Who comes because of a mismatch meets the reason first, and ends it there with a note."""
    address, form = f"/spaces/{audited.name}/models/", 'class="inline scripted acknowledge"'
    path, of = audited.path("lineage/acknowledgement"), {"model": "false"}
    opened = http.get(address + "false").text
    assert '<a href="#lineage">mismatch</a>' in opened
    assert opened.index('id="lineage"') < opened.index('id="neighbors-title"')
    assert f'{form} data-method="PUT" data-action="/v1/spaces/{audited.name}/lineage/' in opened
    ok(http.put(path, params=of, json={"note": "<b>known</b>"}))
    try:
        seen = http.get(address + "false").text
        base = http.get(address + "other-3").text
    finally:
        assert 204 == http.delete(path, params=of).status_code
    assert f'{form} data-method="DELETE"' in seen
    assert "&lt;b&gt;known" in seen
    assert 'contradicted</span> <span class="note">acknowledged</span>' in base
    assert form not in http.get(address + "true").text
