"""Anatomies as pages: where tensors come from, families, and pairs of models of any layout."""

from __future__ import annotations

import httpx
import pytest

from tests.support.explorer.anatomies import put_family
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
    """Each model with its verdict, what it declares, and a link; a prefix narrows the list."""
    found = {row.partition("</a>")[0].rpartition(">")[2]: row for row in page_rows(family)}
    assert "a copy" in found["acme/base"]
    assert "assembled" in found["mixer/assembled"]
    assert "acme/tuned" in found["acme/tuned-8bit"]
    assert 3 == len(rows(page(family, "/anatomies?q=acme/"), "anatomies"))
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


def test_two_models_are_compared_by_tensor(family: httpx.Client) -> None:
    """Each tensor of the first with what it is in the second, in another layout."""
    text = page(family, "/tensors?a=quiet/renamed&b=acme/tuned")
    found = {row.partition("</code>")[0].rpartition(">")[2]: row for row in rows(text, "tensors")}
    assert "<code>layers.3.q</code>" in found["blk.layers.3.q"]
    assert "100.0%" in found["blk.layers.3.q"]
    assert "not compared" in found["blk.norm"]


@pytest.mark.parametrize("path", ["/anatomies/no/where", "/family?of=no/where"])
def test_a_model_without_a_fingerprint_is_a_problem_page(family: httpx.Client, path: str) -> None:
    """404, as a page."""
    answer = family.get(path, headers={"Accept": "text/html"})
    assert 404 == answer.status_code
    assert "<h1" in answer.text
