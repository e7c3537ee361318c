"""The page of a pair as it comes: in which order its tensors stand, and what it says of that."""

from __future__ import annotations

import re
from typing import Final

import httpx
import numpy as np

from modelkin import Support
from tests.support.http_space import Space, random_support, related

LAYERS: Final = [f"layers.{i}.w" for i in range(12)]


def opened(http: httpx.Client, names: list[str]) -> tuple[list[str], str]:
    """The tensors of two models of such a layout, as the page lists them; and the page."""
    space = Space(http, 100 * len(names), layout=[{"name": n, "shape": [100]} for n in names])
    for model in ("a", "b"):
        space.put(model, Support.from_indices(np.arange(0, space.m, 5), space.m))
    shown = http.get(f"/spaces/{space.name}/pairs?a=a&b=b").text
    return re.findall(r'<th scope="row"><code>(.*?)</code>', shown), shown


def test_a_layout_of_a_file_is_read_by_number(http: httpx.Client) -> None:
    """Names that a reader has sorted are not called the depth of the network, but are read as one
    reads it: the embedding, layers by number, the head.
    """
    wanted = ["embed", *LAYERS, "head"]
    rows, shown = opened(http, sorted(wanted))
    assert wanted == rows
    assert "depth of the network" not in shown
    assert "does not keep the order of the network" in shown
    bars = re.findall(r"<g><title>(.*?): S = ", shown)
    assert wanted == bars


def test_a_layout_with_an_order_of_its_own_is_read_so(http: httpx.Client) -> None:
    """A program gives its modules in their order, from the embedding to the head."""
    wanted = ["embed", *LAYERS, "head"]
    rows, shown = opened(http, wanted)
    assert wanted == rows
    assert "Overlap over the depth of the network" in shown
    assert "by-name" not in shown


def test_names_of_tensors_are_text(http: httpx.Client) -> None:
    """Markup in a name, and 200 characters of it, run nothing."""
    hostile = ["<script>alert(1)</script>", "x" * 200, "é.10", "é.9"]
    rows, shown = opened(http, sorted(hostile))
    assert "<script>alert" not in shown
    assert ["é.9", "é.10"] == rows[-2:]


def test_a_figure_that_rounds_to_zero_has_no_sign(http: httpx.Client) -> None:
    """Two models that share one index less than a part of one by chance."""
    space = Space(http, 9_990, layout=[{"name": "w", "shape": [9_990]}])
    for model, begin in (("a", 0), ("b", 99)):
        space.put(model, Support.from_indices(np.arange(begin, begin + 100), space.m))
    assert 0 > http.get(space.path("overlap"), params={"a": "a", "b": "b"}).json()["kappa"]
    shown = http.get(f"/spaces/{space.name}/pairs?a=a&b=b").text
    assert "<dt>beyond chance</dt><dd>0.000<" in shown
    assert "-0.000" not in shown


def test_a_tensor_that_is_chosen_whole_is_named_and_not_drawn(http: httpx.Client) -> None:
    """S is 1 in it, and so it is by chance: a full bar would rule the picture and say nothing."""
    names = ["norm", "a", "b", "c", "d"]
    space = Space(http, 500, layout=[{"name": name, "shape": [100]} for name in names])
    for model, begin in (("a", 100), ("b", 105)):
        chosen = {*range(100), *range(begin, 500, 10)}
        space.put(model, Support.from_indices(sorted(chosen), space.m))
    shown = http.get(f"/spaces/{space.name}/pairs?a=a&b=b").text
    assert names[1:] == re.findall(r"<g><title>(\w+): S = ", shown)
    assert "chance gives the same: <code>norm</code>.</p>" in shown
    assert '<th scope="row"><code>norm</code></th>' in shown
    assert "norm" not in shown.partition("Where they agree most")[2].partition("</dl>")[0]


def test_only_tensors_that_are_whole(http: httpx.Client) -> None:
    """No picture is drawn of nothing."""
    space = Space(http, 100, layout=[{"name": "norm", "shape": [100]}])
    for model in ("a", "b"):
        space.put(model, Support.from_indices(np.arange(100), space.m))
    shown = http.get(f"/spaces/{space.name}/pairs?a=a&b=b").text
    assert 'id="depth"' not in shown
    assert "<code>norm</code>.</p>" in shown


def verdict_of(http: httpx.Client, share: float) -> tuple[str, str]:
    """What the page says first of two models with so much in common, and the whole page."""
    rng, names = np.random.default_rng(8), [f"w{n}" for n in range(8)]
    space = Space(http, 8_000, layout=[{"name": name, "shape": [1_000]} for name in names])
    first = random_support(rng, space.m, 800)
    space.put_all({"a": first, "b": related(rng, first, share)})
    shown = http.get(f"/spaces/{space.name}/pairs?a=a&b=b").text
    return shown.partition('id="verdict">')[2].partition("</p>")[0], shown


def test_the_page_begins_with_the_verdict(http: httpx.Client) -> None:
    """One sentence says whether the figures are those of chance, before all of them."""
    assert verdict_of(http, 0.1)[0].startswith("No more than unrelated models may have: S = 0.1")
    assert re.match(
        r"Far more than chance gives: S = 0\.\d+, kappa 0\.\d+, P = 10\^-\d+\.",
        verdict_of(http, 0.7)[0],
    )
    assert verdict_of(http, 1.0)[0].startswith("Their supports are the very same")


def test_tensors_agree_where_it_is_beyond_chance(http: httpx.Client) -> None:
    """The best of chance is no agreement; and the page has its line for a shell."""
    _, by_chance = verdict_of(http, 0.1)
    assert "Where they agree most" not in by_chance
    assert "In no tensor do the two agree by more than unrelated models may." in by_chance
    _, kin = verdict_of(http, 0.7)
    assert "Where they agree most" in kin
    assert "Where they differ most" in kin
    assert "/overlap?a=a&amp;b=b" in kin
