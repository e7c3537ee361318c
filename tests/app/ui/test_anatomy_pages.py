"""Anatomies as pages: where tensors come from, families, and pairs of models of any layout."""

from __future__ import annotations

import csv
import io

import httpx
import numpy as np
import pytest

from modelkin.core.fingerprints.relations.relation import ORIGIN
from tests.sdk.core.fingerprints import planted
from tests.sdk.core.fingerprints.planted import DERIVED
from tests.support.explorer.anatomies import put_family, put_model, wait_for_anatomies
from tests.support.fixtures import on_one_database

pytestmark = on_one_database


@pytest.fixture(scope="module")
def family(http: httpx.Client) -> httpx.Client:
    """A base and what was made of it, some of it in other layouts."""
    put_family(http)
    return http


def page(http: httpx.Client, path: str) -> str:
    """The text of a page."""
    answer = http.get(path)
    assert 200 == answer.status_code, answer.text
    return answer.text


def rows(text: str, table: str) -> list[str]:
    """The rows of a table."""
    body = text.partition(f'id="{table}"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    return body.split("</tr>")[:-1]


def test_the_list_says_what_was_found(family: httpx.Client) -> None:
    """Each model with what was found, what it declares, and a link."""
    found = {row.partition("</a>")[0].rpartition(">")[2]: row for row in page_rows(family)}
    assert "root of a family: " in found["acme/base"]
    assert "all lines of both are equal" in found["mirror/base"]
    assert "assembled" in found["mixer/assembled"]
    assert "acme/tuned" in found["acme/tuned-8bit"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q=cme/", {"acme/base", "acme/tuned", "acme/tuned-8bit"}),
        ("q=BASE", {"acme/base", "mirror/base"}),
        ("found=assembled", {"mixer/assembled"}),
        ("q=acme&found=copy", {"acme/base", "acme/tuned"}),
        ("stated_by=hub", set()),
        ("q=&stated_by=&found=average", set()),
        ("q=mixer&stated_by=client&found=", {"mixer/assembled"}),
    ],
)
def test_the_list_is_narrowed(family: httpx.Client, query: str, expected: set[str]) -> None:
    """By any part of a name, by what was found, and by who made it; its file has the same.

    A form sends an empty value where nothing is chosen.
    """
    shown = rows(page(family, f"/anatomies?{query}"), "anatomies")
    assert expected == {row.partition("</a>")[0].rpartition(">")[2] for row in shown}
    assert expected == {row["model"] for row in file(family, f"/anatomies.csv?{query}")}


def file(http: httpx.Client, path: str) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    text = page(http, path)
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))


def test_no_such_model_is_said(family: httpx.Client) -> None:
    """A list of nothing leads to all."""
    assert "No such model" in page(family, "/anatomies?q=nowhere")


def page_rows(http: httpx.Client) -> list[str]:
    """The rows of the list."""
    return rows(page(http, "/anatomies"), "anatomies")


def test_an_anatomy_names_its_sources(family: httpx.Client) -> None:
    """Both parents of an assembled model, each with its layers, and what it declares."""
    text = page(family, "/anatomies/mixer/assembled")
    assert "layers 2-3 from other/stranger" in text
    assert "a base, a checkpoint, or the same random seed" in text
    [stranger] = [row for row in rows(text, "parents") if "other/stranger</a>" in row[:200]]
    assert "not declared" in stranger
    assert "mit" in stranger
    assert "layers 2-3 q" in text
    assert 'class="source-1"' in text


def test_a_copy_is_named(family: httpx.Client) -> None:
    """A base names its copy of another owner, and leads to it."""
    text = page(family, "/anatomies/acme/base")
    copies = text.partition('id="copies"')[2].partition("</section>")[0]
    assert "mirror/base</a>" in copies
    assert "average" not in text.partition("<dl")[0]


def test_all_relatives_are_listed(family: httpx.Client) -> None:
    """Each with what the model is to it, how many there are of a kind, and in a file."""
    text = page(family, "/relatives?of=acme/base")
    found = {row.partition("</a>")[0].rpartition(">")[2]: row for row in rows(text, "relatives")}
    assert "its derivative" in found["acme/tuned"]
    assert "copy of mirror/base" in found["mirror/base"]
    assert found.keys() == {row["model"] for row in file(family, "/relatives.csv?of=acme/base")}
    [copy] = rows(page(family, "/relatives?of=acme/base&found=copy"), "relatives")
    assert "mirror/base" in copy
    [row] = file(family, "/relatives.csv?of=acme/base&found=copy")
    assert ("mirror/base", "1.0") == (row["model"], row["share_of_lines"])


@pytest.mark.parametrize(
    "path",
    [
        "/anatomies/acme/tuned",
        "/relatives?of=acme/base",
        "/family?of=acme/base",
        "/tensors?a=acme/tuned&b=acme/base",
        "/duplicates",
    ],
)
def test_a_page_of_equal_lines_says_what_they_mean(family: httpx.Client, path: str) -> None:
    """Of an anatomy the sentence is among those of its answer; tables have it below them."""
    assert ORIGIN in page(family, path)


def test_relatives_go_on(family: httpx.Client) -> None:
    """A page begins after those before it, in the same order."""
    first = page(family, "/relatives?of=acme/base&after=2")
    everything = rows(page(family, "/relatives?of=acme/base"), "relatives")
    assert everything[2:] == rows(first, "relatives")


def test_duplicates_are_listed_together(family: httpx.Client) -> None:
    """The model that was stored first stands for its copies."""
    found = [row.partition("</th>") for row in rows(page(family, "/duplicates"), "duplicates")]
    assert 2 == len(found)
    for (first, _, others), names in zip(
        found, (("acme/base", "mirror/base"), ("acme/tuned", "quiet/renamed")), strict=True
    ):
        assert f"{names[0]}</a>" in first
        assert f"{names[1]}</a>" in others


def test_a_younger_model_with_all_lines_is_no_base(family: httpx.Client) -> None:
    """A vocabulary that grew has all lines of its base, which was not made from it."""
    text = page(family, "/family?of=acme/base")
    assert not [row for row in rows(text, "edges") if "acme/base</a></th>" in row]


def test_a_family_hangs_each_model_on_its_nearest_base(family: httpx.Client) -> None:
    """A chain of two, an undeclared one in another layout, and a base that is not stored."""
    text = page(family, "/family?of=acme/base")
    edges = {
        tuple(part.partition("</a>")[0].rpartition(">")[2] for part in row.split("<td>")[:2]): row
        for row in rows(text, "edges")
    }
    assert "yes" in edges["acme/tuned", "acme/base"]
    assert "yes" in edges["acme/tuned-8bit", "acme/tuned"]
    assert "no" in edges["quiet/renamed", "acme/tuned"]
    assert "no" in edges["wrong/claims", "acme/base"]
    assert ("acme/tuned-8bit", "acme/base") not in edges
    assembled = page(family, "/family?of=mixer/assembled")
    assert "declared, and not stored here" in assembled
    wrong = page(family, "/family?of=wrong/claims")
    assert "nothing in common was found" in wrong


def test_kin_without_a_date_stand_beside_the_tree(family: httpx.Client) -> None:
    """They have no edge, as nothing says which came first, and are shown all the same."""
    base = planted.model(7)
    made = DERIVED["noise .05"](base)
    put_model(family, "mute/base", base)
    put_model(family, "mute/made", made, base_model=["mute/base"])
    put_model(family, "mute/silent", DERIVED["8 bits"](made))
    put_model(family, "mute/wrong", DERIVED["8 bits"](base), base_model=["mute/made-not"])
    put_model(family, "mute/made-not", planted.model(8))
    wait_for_anatomies(family)
    try:
        for model in ("mute/base", "mute/made"):
            text = page(family, f"/family?of={model}")
            _, _, beside = text.partition('id="undeclared-title"')
            assert "mute/silent</a>" in beside
            assert "mute/silent" not in text.partition('id="edges"')[2].partition("</table>")[0]
            assert "; declares mute/made-not" in beside
        root = "oot of a family: 1 model is made from it"
        [said] = rows(page(family, "/anatomies?q=mute/base"), "anatomies")
        assert root in said
        assert root in page(family, "/anatomies/mute/base")
        assert root not in page(family, "/anatomies/mute/made")
        assert "undeclared-title" not in page(family, "/family?of=acme/base")
    finally:
        for model in ("base", "made", "silent", "wrong", "made-not"):
            assert 204 == family.delete(f"/v1/fingerprints/mute/{model}").status_code


def test_a_family_without_lines_is_of_declarations(family: httpx.Client) -> None:
    """Matrices narrower than 64 have no line; the page does not say that nothing was found."""
    draw = np.random.default_rng(9)
    narrow = {"layers.0.weight": draw.normal(size=(48, 48)).astype(np.float32)}
    put_model(family, "narrow/base", narrow)
    put_model(family, "narrow/made", narrow, base_model=["narrow/base"])
    wait_for_anatomies(family)
    try:
        text = page(family, "/family?of=narrow/base")
        assert "narrow/made" in text.partition('id="edges"')[2].partition("</table>")[0]
        assert 2 == page(family, "/anatomies?q=narrow/").count("no lines to compare")
    finally:
        for model in ("base", "made"):
            assert 204 == family.delete(f"/v1/fingerprints/narrow/{model}").status_code


def test_a_model_is_said_to_be_of_the_base_that_it_declares(family: httpx.Client) -> None:
    """Also where one that is made of both has more lines in common with it."""
    base = planted.model(11)
    tuned = DERIVED["noise .05"](base)
    near = {name: tuned[name] if name > "layers.1" else base[name] for name in base}
    put_model(family, "kept/base", base)
    put_model(family, "kept/tuned", tuned, base_model=["kept/base"])
    put_model(family, "kept/near", near)
    wait_for_anatomies(family)
    try:
        [said] = rows(page(family, "/anatomies?q=kept/tuned"), "anatomies")
        assert "in kept/base" in said
        assert "in kept/near" not in said
        told = page(family, "/anatomies/kept/tuned")
        assert told.index("kept/base") < told.index("kept/near")
    finally:
        for model in ("base", "tuned", "near"):
            assert 204 == family.delete(f"/v1/fingerprints/kept/{model}").status_code


def test_two_models_are_compared_by_tensor(family: httpx.Client) -> None:
    """Each tensor of the first with what it is in the second, in another layout."""
    text = page(family, "/tensors?a=quiet/renamed&b=acme/tuned")
    found = {row.partition("</code>")[0].rpartition(">")[2]: row for row in rows(text, "tensors")}
    assert "<code>layers.3.q</code>" in found["blk.layers.3.q"]
    assert "100.0%" in found["blk.layers.3.q"]
    assert "not compared" in found["blk.norm"]
    taken = file(family, "/tensors.csv?a=quiet/renamed&b=acme/tuned")
    assert found.keys() == {row["tensor"] for row in taken}
    assert {"layers.3.q"} == {row["there"] for row in taken if row["tensor"] == "blk.layers.3.q"}


@pytest.mark.parametrize(
    "path", ["/anatomies/no/where", "/family?of=no/where", "/relatives?of=no/where"]
)
def test_a_model_without_a_fingerprint_is_a_problem_page(family: httpx.Client, path: str) -> None:
    """404, as a page."""
    answer = family.get(path, headers={"Accept": "text/html"})
    assert 404 == answer.status_code
    assert "<h1" in answer.text
