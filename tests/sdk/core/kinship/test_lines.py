"""Declared bases judged by lines: no true base is contradicted, and no wrong relation is said."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Final

import pytest

from modelkin.core.fingerprints.comparison import Comparison, compare
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.kinship.line_relations import (
    StoredAs,
    headline,
    in_words_of_hubs,
)
from modelkin.core.kinship.lines import LineJudgement, judge_by_lines, shares_nothing
from tests.sdk.core.fingerprints.planted import DERIVED, Tensors, fingerprint, model
from tests.sdk.core.fingerprints.relatives import (
    BASE,
    FIRST,
    SAID,
    STRANGER,
    changed,
    head,
    low_rank,
    rounded,
)
from tests.sdk.core.fingerprints.stored import STORED

SCALE: Final = 8


def of_plain(change: Callable[[Tensors], Tensors]) -> Callable[[], Tensors]:
    return lambda: change(model(0))


MADE: Final[Mapping[str, Callable[[], Tensors]]] = {
    **{name: made for name, (made, _) in SAID.items()},
    **{f"{name} (derived)": of_plain(change) for name, change in DERIVED.items()},
    **{f"{name} (stored)": of_plain(change) for name, change in STORED.items()},
}
"""All that is made of a base, by name."""
QUICK: Final = ("gguf", "frozen bottom", "8 bits", "up-scaled, changed", "classifier", "stranger")
BITS: Final = {
    "8 bits": 8.5,
    "8 bits (derived)": 8.5,
    "Q8_0 (stored)": 8.5,
    "fp8 (stored)": 8.0,
    "Q6_K (stored)": 6.6,
    "Q5_0 (stored)": 5.5,
    "Q4_K (stored)": 4.5,
    "Q4_0 (stored)": 4.5,
    "Q3_K (stored)": 3.4,
    "Q2_K (stored)": 2.6,
    "int4 of 128 (stored)": 4.2,
    "4 bits": 4.5,
    "nf4 (stored)": 4.5,
}
"""The bits a parameter of files that are quantised; others have sixteen."""
DECLARED: Final = {
    "frozen bottom": "finetune",
    **dict.fromkeys(BITS, "quantized"),
    **dict.fromkeys(("adapter", "fine-tune", "heavy"), "adapter"),
}
"""What is declared of them, if anything is."""
UNSURE: Final = {None, "changed", "shares", "layout", "added"}
"""Words that leave open what was done."""
RIGHT: Final[Mapping[str, Collection[str]]] = {
    "copy": (
        *("copy", "wrapped", "gguf", "nameless", "transposed", "conv1d", "renamed (derived)"),
        *("transposed (derived)", "flipped (derived)", "kernels (derived)"),
    ),
    "part": ("no head", "one layer", "a mixed layer"),
    "fine_tuned": ("frozen bottom",),
    "adapter_merged": ("adapter",),
    "quantised_copy": ("8 bits", "8 bits (derived)", "Q8_0 (stored)"),
    "quantised": tuple(BITS),
    "vocabulary_resized": (
        *("more tokens", "more tokens, changed", "fewer tokens"),
        *("more tokens (derived)", "fewer tokens (derived)"),
    ),
    "head_changed": ("new head", "classifier", "new head (stored)"),
    "pruned": (
        *("dropped", "dropped, changed", "of a model not given", "narrower", "shard"),
        *("narrower, changed, gguf", "half (stored)", "quarter (stored)", "fewer layers (stored)"),
        *("narrow units (stored)", "narrow stream (stored)"),
        "assembled in order",  # beside one of its two models alone
    ),
    "layers_moved": ("moved",),
    "depth_up_scaled": ("up-scaled", "up-scaled, changed", "up-scaled (derived)"),
    "upcycled": ("experts", "experts, changed", "stacked experts", "experts (derived)"),
    "reuses": ("embedding reused",),
}
"""What each word may be said of."""
NO_LINES: Final = {
    *("stranger", "embedding reused", "noise 1 (derived)", "noise .5 (derived)"),
    *("average .5 (stored)", "rotated (stored)"),
}
"""Those of which too few lines are found to confirm the base."""


@cache
def made(how: str) -> Fingerprint:
    return fingerprint(MADE[how]()).at(SCALE)


@cache
def base(is_said: bool) -> Fingerprint:
    return fingerprint(BASE if is_said else model(0)).at(SCALE)


@cache
def stranger(is_said: bool) -> Fingerprint:
    return fingerprint(STRANGER if is_said else model(1)).at(SCALE)


def judged(tensors: Tensors, declared: Tensors, *others: Tensors) -> LineJudgement:
    checkpoint = fingerprint(tensors).at(SCALE)
    compared = [
        compare(checkpoint, f"other {at}", fingerprint(each).at(SCALE))
        for at, each in enumerate(others)
    ]
    return judge_by_lines(checkpoint, "base", fingerprint(declared).at(SCALE), compared)


def word(found: LineJudgement, bits: float = 16, relation: str | None = None) -> str | None:
    """The headline, of a file of so many bits a parameter beside a base of sixteen."""
    stored = StoredAs(1000, round(125 * bits), relation)
    said = in_words_of_hubs(found.anatomy.relations, found.comparison, stored, StoredAs(1000, 2000))
    parents = found.anatomy.parents
    return headline(said, parents[0].verdict if parents else None)


ALL: Final = [pytest.param(how, marks=[] if how in QUICK else pytest.mark.slow) for how in MADE]


@pytest.mark.parametrize("how", ALL)
def test_no_true_base_is_contradicted_and_no_relation_is_wrong(how: str) -> None:
    """A base is confirmed wherever lines are found, and a word is right or leaves it open."""
    other = compare(made(how), "other", stranger(how in SAID))
    found = judge_by_lines(made(how), "base", base(how in SAID), [other])
    assert ("inconclusive" if how in NO_LINES else "consistent") == found.verdict
    for declared in (None, DECLARED.get(how)):
        said = word(found, BITS.get(how, 16), declared)
        assert said in UNSURE or how in RIGHT[str(said)]
    assert word(found, BITS.get(how, 16)) not in {"fine_tuned", "quantised_copy", "adapter_merged"}


@pytest.mark.parametrize("how", ALL)
def test_a_stranger_is_contradicted_only_by_most_of_the_lines(how: str) -> None:
    """The base of which half of the lines are is named; of less the answer stays open."""
    true = compare(made(how), "true", base(how in SAID))
    found = judge_by_lines(made(how), "declared", stranger(how in SAID), [true])
    if "assembled" in how or how == "embedding of another":
        assert found.verdict != "mismatch"  # it has lines of both
    elif true.share >= 0.5:
        assert ("mismatch", ("true",)) == (found.verdict, found.sources)
    else:
        assert ("inconclusive", ()) == (found.verdict, found.sources)
    alone = judge_by_lines(made(how), "declared", stranger(how in SAID))
    assert alone.verdict != "mismatch"


def test_words_are_said_and_not_merely_left_open() -> None:
    """Of one of each kind the very word is found."""
    said = {
        how: word(
            judge_by_lines(made(how), "base", base(how in SAID)),
            BITS.get(how, 16),
            DECLARED.get(how),
        )
        for how in QUICK
    }
    assert {
        "gguf": "copy",
        "frozen bottom": "fine_tuned",
        "8 bits": "quantised_copy",
        "up-scaled, changed": "depth_up_scaled",
        "classifier": "head_changed",
        "stranger": None,
    } == said


def test_bits_alone_tell_rounding_from_training() -> None:
    """The same values in a file of sixteen bits, or of unknown ones, were changed, and no more;
    whether they were trained before, nothing tells but what is declared.
    """
    found = judged(rounded(BASE, 8), BASE)
    said = [word(found, 8.5, declared) for declared in ("quantized", "finetune", None)]
    assert ["quantised_copy", "quantised", "quantised"] == said
    assert {"changed"} == {word(found, 16), word(found, 16, "quantized")}
    unknown = in_words_of_hubs(
        found.anatomy.relations, found.comparison, StoredAs(1000), StoredAs(1000, 2000)
    )
    assert ["changed"] == [each.relation for each in unknown]
    assert found.anatomy.relations[0].sentence == unknown[0].sentence


def test_a_training_before_the_rounding_is_no_copy() -> None:
    """Whatever is declared, the file is quantised, and the sentence leaves open whether it was
    trained as well.
    """
    found = judged(rounded(changed(BASE, 3), 8), BASE)
    assert "quantised" == word(found, 8.5, "quantized")
    said = in_words_of_hubs(
        found.anatomy.relations, found.comparison, StoredAs(1000, 1062), StoredAs(1000, 2000)
    )
    assert said[0].sentence.startswith(
        "quantised, stored in 8.5 bits a parameter, base in 16.0; changed: "
    )
    assert said[0].sentence.endswith("whether it was trained as well, lines do not tell")


def test_a_fine_tune_is_said_where_it_is_declared_and_fits() -> None:
    """Layers that are as they were may be due to rounding, so a declaration has to say it; alone
    that says nothing of a model that was changed everywhere.
    """
    upper = ("layers.2", "layers.3")
    for made in (changed(BASE, 3), rounded(BASE, 4)):
        part = judged(BASE | {k: v for k, v in made.items() if k.startswith(upper)}, BASE)
        assert ("fine_tuned", "changed") == (word(part, 16, "finetune"), word(part))
        assert "changed" == word(judged(made, BASE), 16, "finetune")


def test_an_adapter_is_said_where_it_is_declared_and_fits() -> None:
    """Kinds of every layer alone may be a training of these; a declaration alone says nothing."""
    merged = judged(low_rank(BASE, "[qv]$"), BASE)
    assert ("adapter_merged", "changed") == (word(merged, 16, "adapter"), word(merged))
    whole = judged(changed(BASE, 3), BASE)
    assert "changed" == word(whole, 16, "adapter")


def test_kin_of_the_base_contradict_nothing() -> None:
    """Most lines are a sibling's, and the base has lines in common with that."""
    tuned = changed(FIRST, 22, 0.03)
    found = judged(head(tuned, "score", 600), STRANGER, FIRST)
    assert ("mismatch", ("other 0",)) == (found.verdict, found.sources)
    part_of_both = FIRST | {"lm_head": STRANGER["lm_head"]}
    assert "inconclusive" == judged(tuned, STRANGER, part_of_both).verdict


def test_several_models_contradict_together() -> None:
    """Layers of two models leave no room for a third, though neither has half of the lines."""
    parts = [
        {name: values for name, values in BASE.items() if "layers.0" in name or "layers.1" in name},
        {name: values for name, values in BASE.items() if "layers.2" in name or "layers.3" in name},
    ]
    whole = parts[0] | parts[1]
    assert "inconclusive" == judged(whole | BASE, STRANGER, parts[0]).verdict
    assert {"other 0", "other 1"} == set(judged(whole, STRANGER, *parts).sources)


def test_few_lines_say_nothing() -> None:
    """Neither that a base is one, nor that it is none, nor that two models are strangers."""
    small = {"layers.0.q": BASE["layers.0.q"][:70]}
    found = judged(small, STRANGER, BASE)
    assert ("inconclusive", "few_lines") == (found.verdict, found.finding)
    assert not shares_nothing(found.comparison)


def test_one_large_table_makes_no_base() -> None:
    """A vocabulary that both have from elsewhere leaves it open, however many lines it has."""
    table = {"embed": model(7)["embed"].repeat(1, axis=0)}
    found = judged(STRANGER | table, BASE | table)
    assert ("inconclusive", "few_tensors") == (found.verdict, found.finding)


def test_a_comparison_is_of_the_two() -> None:
    """At the coarser of their scales."""
    found: Comparison = judge_by_lines(made("gguf"), "base", base(True).at(32)).comparison
    assert ("base", 32) == (found.model, found.ours.scale)
