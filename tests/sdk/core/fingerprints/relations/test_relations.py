"""What a checkpoint is to models, in sentences: those that are right, and none that is wrong."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest

from modelkin.core.fingerprints.anatomy import Anatomy, anatomy, anatomy_of
from modelkin.core.fingerprints.comparison import compare
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.relations.relation import ORIGIN
from modelkin.core.fingerprints.tensors import NotComparable
from tests.sdk.core.fingerprints.planted import fingerprint
from tests.sdk.core.fingerprints.relatives import (
    ALL_ELSE,
    BASE,
    CHANGED,
    FIRST,
    OTHERS,
    SAID,
    SECOND,
    STRANGER,
    THIRD,
    average,
    changed,
    layers,
    low_rank,
    of,
    rounded,
    with_head,
)

QUICK = ("copy", "adapter", "more tokens", "up-scaled, changed", "experts", "assembled", "stranger")
UNSURE = {
    "shares weights with base: N% of lines are equal",
    "no model given is an ancestor, as far as lines show; absence proves nothing",
}
TABLE = NotComparable.STRUCTURED
NAMED = "lines in common with base, in "
KIN = "shares weights as well, by lines that are equal, with "


@cache
def made(how: str) -> Fingerprint:
    return fingerprint(SAID[how][0]())


@cache
def hub() -> dict[str, Fingerprint]:
    return {"base": fingerprint(BASE), "stranger": fingerprint(STRANGER)}


@cache
def family() -> dict[str, Fingerprint]:
    """Two fine-tunes, and one of the stranger."""
    relatives = {"first": FIRST, "second": SECOND, "of stranger": changed(STRANGER, 4)}
    return {name: fingerprint(tensors) for name, tensors in relatives.items()}


def said(found: Anatomy) -> list[str]:
    """The sentences, with N for shares."""
    sentences = (relation.sentence for relation in found.relations)
    return [re.sub(r"(?:less than )?\d+%", "N%", sentence) for sentence in sentences]


def without_counts(sentences: Iterable[str]) -> set[str]:
    """Sentences without how many tensors were found, and without what else there is."""
    plain = {re.sub(r"(?:all )?[\d,]+(?: of [\d,]+)? tensors?", "TENSORS", s) for s in sentences}
    return {re.sub(", all (?:else )?of base$", "", sentence) for sentence in plain}


@pytest.mark.parametrize(
    "how", [how if how in QUICK else pytest.param(how, marks=pytest.mark.slow) for how in SAID]
)
def test_each_derivation_is_said_in_its_sentence(how: str) -> None:
    """Of all keys, and nothing beside it."""
    found = anatomy(made(how), hub())
    assert list(SAID[how][1]) == said(found)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [8, 32])
@pytest.mark.parametrize("how", SAID)
def test_a_sample_says_nothing_wrong(how: str, scale: int) -> None:
    """It says the same, or less, or that it does not know."""
    found = said(anatomy(made(how).at(scale), hub()))
    right = without_counts(SAID[how][1]) | UNSURE
    if any("changed" in sentence or "unchanged" in sentence for sentence in right):
        right |= without_counts(
            text.format("1 tensor " + place)
            for text in (CHANGED, OTHERS)
            for place in ("at their place", "at its place", "found")
        )
    left = {sentence for sentence in without_counts(found) - right if not is_part(sentence, right)}
    if any("base" in sentence for sentence in SAID[how][1]):
        left = {sentence for sentence in left if not sentence.startswith(NAMED)}
    assert not left


def is_part(sentence: str, whole: Iterable[str]) -> bool:
    """Whether it names some of what a right one names: ``q`` of ``q, k`` in the same words."""
    words = re.findall(r"[\w'-]+", sentence)
    return any(set(words) <= set(re.findall(r"[\w'-]+", each)) for each in whole)


@pytest.mark.slow
@pytest.mark.parametrize("how", SAID)
def test_relatives_change_no_sentence(how: str) -> None:
    """They are named behind, in one sentence with the share of each."""
    checkpoint = made(how).at(8)
    alone, beside = said(anatomy(checkpoint, hub())), said(anatomy(checkpoint, hub() | family()))
    kin = [sentence for sentence in beside if sentence.startswith(KIN)]
    assert alone == [sentence for sentence in beside if sentence not in kin]
    assert len(kin) == (how != "stranger")


@pytest.mark.parametrize("scale", [1, 8])
@pytest.mark.parametrize("share", [pytest.param(0.7, marks=pytest.mark.slow), 0.5])
def test_an_average_is_named_with_its_shares(share: float, scale: int) -> None:
    """Of two fine-tunes of one base, among their relatives."""
    merged = fingerprint(average(FIRST, SECOND, share)).at(scale)
    found = anatomy(merged, hub() | family())
    [of_two, beside] = found.relations
    assert ("average", {"first", "second"}) == (of_two.relation, set(of_two.models))
    assert "average" == found.verdict
    shares = [int(number) for number in re.findall(r"\((\d+)%\)", of_two.sentence)]
    by_model = dict(zip(of_two.models, shares, strict=True))
    assert 100 * share == pytest.approx(by_model["first"], abs=2 if scale == 1 else 6)
    assert ("shares", ("base",)) == (beside.relation, beside.models)


def test_an_original_is_no_average_of_what_is_made_from_it() -> None:
    """It lies between two of them by its lines as an average does: what they declare decides."""
    merged = fingerprint(average(FIRST, SECOND, 0.5))
    compared = [compare(merged, name, each) for name, each in (hub() | family()).items()]
    told = [each.relation for each in anatomy_of(merged, compared).relations]
    made = anatomy_of(merged, compared, made_from_it=("first",)).relations
    assert ("average" in told, "average" in [each.relation for each in made]) == (True, False)


def test_copies_of_a_parent_hide_no_average() -> None:
    """A hub stores a popular model many times, also of fewer bits, and its merges all the same."""
    copies = {f"copy-{i}": family()["first"] for i in range(9)}
    copies["of-8-bits"] = fingerprint(rounded(FIRST, 8))
    merged = fingerprint(average(FIRST, SECOND, 0.6)).at(8)
    [of_two, *_] = anatomy(merged, copies | {"second": family()["second"]}).relations
    assert ("average", 1) == (of_two.relation, len({*of_two.models} & {"second"}))


NO_AVERAGES: dict[str, Any] = {
    "of three": lambda: {k: (FIRST[k] + SECOND[k] + THIRD[k]) / np.float32(3) for k in BASE},
    "of the base and one": lambda: changed(BASE, 21, 0.1),
    "base": lambda: BASE,
    "rounded": lambda: rounded(FIRST, 8),
    "rounded more": lambda: rounded(FIRST, 6),
    "grandchild": lambda: changed(FIRST, 22, 0.03),
    "step towards the first": lambda: changed(average(FIRST, BASE, 0.5), 23, 0.05),
}


@pytest.mark.slow
@pytest.mark.parametrize("scale", [2, 8])
@pytest.mark.parametrize("how", NO_AVERAGES)
def test_what_is_no_average_of_two_is_not_called_one(how: str, scale: int) -> None:
    """Nor is it called so where two adapters changed other kinds, or their base is not given."""
    adapters = {kinds: fingerprint(low_rank(BASE, kinds)) for kinds in ("[qv]$", "up|down")}
    checkpoint = fingerprint(NO_AVERAGES[how]()).at(scale)
    for models in (hub() | family(), family(), adapters | family(), adapters):
        assert "average" not in {each.relation for each in anatomy(checkpoint, models).relations}


def test_layers_of_two_fine_tunes_are_told_apart() -> None:
    """Where all lines of a layer are one's, and fewer are the other's."""
    assembled = layers((FIRST, 0), (FIRST, 1), (SECOND, 2), (SECOND, 3))
    found = anatomy(fingerprint(assembled).at(8), family())
    assert "assembled" == found.verdict
    assert ["assembled: layers 0-1, embed, lm_head from first; layers 2-3 from second"] == said(
        found
    )


@pytest.mark.parametrize("scale", [1, 8])
def test_a_base_is_not_assembled_of_its_derivatives(scale: int) -> None:
    """A copy of fewer bits is the nearest, and another model took layers of the base."""
    taken = layers((STRANGER, 0), (BASE, 1), (BASE, 2), (STRANGER, 3))
    models = {"of-8-bits": rounded(BASE, 8), "taken": taken}
    stored = {name: fingerprint(tensors).at(scale) for name, tensors in models.items()}
    found = anatomy(fingerprint(BASE).at(scale), stored)
    assert "assembled" not in {each.relation for each in found.relations}


def test_the_order_of_models_decides_nothing() -> None:
    """Nor does that of the tensors."""
    models = hub() | family()
    base = dict(reversed(BASE.items()))
    expected = anatomy(made("experts").at(8), models)
    for names in itertools.islice(itertools.permutations(models), 5, 50, 15):
        found = anatomy(made("experts").at(8), {name: models[name] for name in names})
        assert (expected.relations, expected.parents) == (found.relations, found.parents)
    again = anatomy(made("experts").at(8), models | {"base": fingerprint(base).at(8)})
    assert expected.relations == again.relations


@pytest.mark.slow
@pytest.mark.parametrize("how", ["up-scaled", "dropped", "moved", "experts", "adapter", "narrower"])
def test_names_of_layers_decide_nothing_but_words(how: str) -> None:
    """Under names of GPT-2, or of flax, the same is said, and that it was renamed."""
    expected = anatomy(made(how), hub())
    for stack, rest in (("transformer.h.", ".attn_"), ("params/layers_", "/")):
        renamed = {
            re.sub(r"layers\.(\d)\.", rf"{stack}\g<1>{rest}", name): values
            for name, values in SAID[how][0]().items()
        }
        found = anatomy(fingerprint(renamed), hub())
        layout = {each.relation for each in found.relations} - {
            each.relation for each in expected.relations
        }
        assert layout <= {"layout"}
        assert [each.verdict for each in expected.parents] == [
            each.verdict for each in found.parents
        ]


def test_gates_are_split_or_in_another_order() -> None:
    """Of a recurrent network, whose layers stand in the last word of a name."""
    draw = np.random.default_rng(0)
    names = [
        f"rnn.weight_{of}_l{i}{way}"
        for of in ("ih", "hh")
        for i in (0, 1)
        for way in ("", "_reverse")
    ]
    base = {name: draw.standard_normal((3, 128, 128)).astype(np.float32) for name in names}
    models = {"base": fingerprint({name: gates.reshape(384, 128) for name, gates in base.items()})}
    moved = {name: gates[[1, 0, 2]].reshape(384, 128) for name, gates in base.items()}
    kinds = ("weight_ih", "weight_ih_reverse", "weight_hh", "weight_hh_reverse")
    layout = "another layout than base's: "
    assert [f"{layout}another order in {', '.join(kinds)}, all of base"] == said(
        anatomy(fingerprint(moved), models)
    )
    for named in ("rzn", "012"):
        parts = {f"{name}.{named[i]}": base[name][i] for name in base for i in range(3)}
        [split, *_] = said(anatomy(fingerprint(parts), models))
        assert split.startswith(f"{layout}split " + ", ".join(f"weight_ih.{i}" for i in named))


def test_a_slight_change_makes_no_part() -> None:
    """Of a model of as many parameters 99% of the lines are the base's: by lines it is a copy."""
    found = anatomy(fingerprint(changed(BASE, 3, 0.0005)), {"base": hub()["base"]})
    [parent] = found.parents
    assert 0.99 <= parent.share_of_lines < 1
    assert "copy" == parent.verdict
    assert ["copy of base: N% of the lines of both are equal"] == said(found)
    found = anatomy(fingerprint(changed(BASE, 3, 0.001)).at(8), {"base": hub()["base"]})
    assert "derived" == found.parents[0].verdict


def test_a_head_that_is_cut_with_all_else_is_no_other_head() -> None:
    """Half of the answers stand in one of two equal parts; alone they are those of another head."""
    base = {name: values for name, values in BASE.items() if name != "lm_head"}
    base["classifier"] = np.random.default_rng(2).standard_normal((10, 128)).astype(np.float32)
    models = {"base": fingerprint(base)}
    head = {"classifier": base["classifier"][:5]}
    units = {k: v[:192] for k, v in base.items() if k.endswith("up")}
    units |= {k: v[:, :192].copy() for k, v in base.items() if k.endswith("down")}
    for made, right in ((base | head, "head_changed"), (base | units | head, "pruned")):
        assert [right] == [each.relation for each in anatomy(fingerprint(made), models).relations]


def test_an_up_scaled_model_is_no_copy_of_its_base() -> None:
    """It has all lines of the base and no other, but more parameters; the base is a part of it."""
    grown = fingerprint(of(BASE, 0, 1, 2, 1, 2, 3))
    [parent] = anatomy(grown, {"base": hub()["base"]}).parents
    assert ("derived", 1.0) == (parent.verdict, parent.share_of_lines)
    [parent] = anatomy(hub()["base"], {"grown": grown}).parents
    assert ("part", 1.0) == (parent.verdict, parent.share_of_lines)


def test_a_small_head_of_its_own_is_named_beside_a_part() -> None:
    """Few lines of another head make it no other model, and are not passed over either."""
    draw = np.random.default_rng(1)
    head = {"predict": draw.standard_normal((64, 128)).astype(np.float32)}
    base = layers(*((of_model, n) for of_model in (BASE, STRANGER, with_head(5)) for n in range(4)))
    own = {name: values for name, values in base.items() if name != "lm_head"} | head
    found = anatomy(fingerprint(own, 16), {"base": fingerprint(base, 16)})
    assert ("part of base: layers 0-11, embed; unknown: predict", ORIGIN) == found.sentences


def test_words_and_heads_of_other_names_are_known_too() -> None:
    """A table of words and what predicts them have one row more for each token."""
    names = {"embed": "trunk.word_table", "lm_head": "predict"}
    grown, base = (
        {names.get(name, name): values for name, values in tensors.items()}
        for tensors in (SAID["more tokens"][0](), BASE)
    )
    found = anatomy(fingerprint(grown), {"base": fingerprint(base)})
    assert (f"vocabulary grown by 64 rows{ALL_ELSE}", ORIGIN) == found.sentences
    other = base | {"predict": with_head(5)["lm_head"][:100]}
    found = anatomy(fingerprint(other), {"base": fingerprint(base)})
    assert (f"head changed: predict is not base's{ALL_ELSE}", ORIGIN) == found.sentences


def test_a_part_of_a_head_that_is_smooth_is_no_other_head() -> None:
    """The rows of rare tokens may be alike: nothing is said of the head of a shard of these."""
    base = with_head(3)
    smooth = np.repeat(base["lm_head"][:1], 100, 0) * np.linspace(1, 2, 100, dtype="f4")[:, None]
    base["lm_head"] = np.concatenate([smooth, base["lm_head"][100:]])
    shard = base | {"embed": base["embed"][:100], "lm_head": base["lm_head"][:100]}
    found = anatomy(fingerprint(shard), {"base": fingerprint(base)})
    assert ["lm_head"] == [
        each.tensor.name for each in found.tensors if each.tensor.reason is TABLE
    ]
    assert ["vocabulary_resized"] == [each.relation for each in found.relations]


def test_a_small_head_of_another_name_or_order_is_no_other_one() -> None:
    """It has no lines to tell by; one of as many answers may be the same."""
    draw = np.random.default_rng(2)
    body = {name: values for name, values in BASE.items() if name != "lm_head"}
    small = draw.standard_normal((5, 128)).astype(np.float32)
    base = {"base": fingerprint(body | {"score": small})}
    for same in ({"net.score": small}, {"score": small.T.copy()}, {"classifier": small}):
        relations = anatomy(fingerprint(body | same), base).relations
        assert "head_changed" not in {each.relation for each in relations}
    [relation] = anatomy(fingerprint(body | {"score": draw.random((7, 128), "f4")}), base).relations
    assert "head_changed" == relation.relation


def test_nothing_is_missing_of_what_cannot_be_seen() -> None:
    """A layer of zeros is not dropped; after a long training a head without lines is no other."""
    zeros = {name: 0 * values if "layers.1" in name else values for name, values in BASE.items()}
    heavy = changed(BASE, 3, 0.3) | {"lm_head": with_head(5)["lm_head"]}
    for made in (zeros, heavy):
        found = anatomy(fingerprint(made), {"base": hub()["base"]})
        assert {each.relation for each in found.relations}.isdisjoint(
            {"layers_dropped", "head_changed", "added"}
        )


def test_two_copies_are_both_named() -> None:
    """Under their names, and what equal lines mean stands behind."""
    found = anatomy(hub()["base"], {"mirror": hub()["base"], "base": hub()["base"]})
    assert (
        "copy of base: all lines of both are equal",
        "all lines of mirror as well, and no others",
        ORIGIN,
    ) == found.sentences


def test_no_models_and_no_lines_are_said_as_such() -> None:
    """An answer about nothing claims nothing."""
    assert ("no model was given",) == anatomy(hub()["base"], {}).sentences
    short = fingerprint({"bias": np.ones(500, np.float32)})
    [sentence] = anatomy(short, hub()).sentences
    assert sentence.startswith("it has no lines to compare")


def test_names_of_strangers_are_no_markup() -> None:
    """They stand in ASCII, and never long."""
    found = anatomy(hub()["base"], {"\x1b[31mred\u202e" + 500 * "x": hub()["base"]})
    [sentence, _] = found.sentences
    assert sentence.isascii()
    assert sentence.isprintable()
    assert len(sentence) < 150


def test_a_seed_in_common_is_said_with_what_equal_lines_mean() -> None:
    """Two trainings from one start cannot be told from a base and its child."""
    found = anatomy(
        fingerprint(changed(with_head(3), 1)), {"twin": fingerprint(changed(with_head(3), 2))}
    )
    assert found.sentences[-1] == ORIGIN
    assert "the same random seed" in ORIGIN


def test_an_expert_of_another_model_is_not_counted_in() -> None:
    """Of four experts three are copies of the MLP, and the last one is a stranger's."""
    mlp = [name for name in BASE if name.rpartition(".")[2] in ("up", "down")]
    others = {name: values for name, values in BASE.items() if name not in mlp}
    experts = {
        f"{name.rpartition('.')[0]}.experts.{number}.{name.rpartition('.')[2]}": origin[name]
        for name in mlp
        for number, origin in enumerate((BASE, BASE, BASE, STRANGER))
    }
    found = anatomy(fingerprint(others | experts), {"base": fingerprint(BASE)})
    assert "experts 0-2 of every layer grew from" in found.sentences[0]


def test_one_large_table_makes_no_child() -> None:
    """A vocabulary that both have from elsewhere is named, and nothing is said of the others."""
    table = {"embed": rows(9000, 0)}
    found = anatomy(fingerprint(STRANGER | table), {"base": fingerprint(BASE | table)})
    assert "derived" == found.parents[0].verdict  # it holds half of all lines
    assert ("lines in common with base, in embed", ORIGIN) == found.sentences


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("emb.word", "vocabulary cut to 700 rows, all else of base"),
        ("embeddings.word_embeddings.weight", "vocabulary cut to 700 rows, all else of base"),
        ("embeddings.position_embeddings.weight", "narrower than base: "),
        ("emb.pos", "narrower than base: "),
    ],
)
def test_tables_of_words_are_told_by_their_names(name: str, sentence: str) -> None:
    """Those of positions are no vocabulary."""
    others = {each: values for each, values in BASE.items() if each != "embed"}
    whole = others | {name: rows(900, 1)}
    cut = others | {name: rows(900, 1)[:700]}
    found = anatomy(fingerprint(cut), {"base": fingerprint(whole)})
    assert found.sentences[0].startswith(sentence)


def rows(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 128)).astype(np.float32)


def test_weights_that_were_trained_away_are_not_missing() -> None:
    """Of most tensors no line is left: none of them is said to be of another model."""
    trained = changed(changed(BASE, 3, 3.0, "layers"), 4, 0.05, "embed|lm_head")
    [only] = anatomy(fingerprint(trained), {"base": hub()["base"]}).relations
    assert only.relation in ("changed", "shares", "reuses")
