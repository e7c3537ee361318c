"""The page of trained networks in the evidence, made of cells alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from studies.cells import Figures
from studies.lines.cells import hiding, rotations, savings, wide
from studies.lines.gates import EXPECTED, LLAMA, derivatives
from studies.lines.networks.catalogue import ARCHITECTURES
from studies.lines.results import (
    FOLLOWED,
    HIDING,
    HUB,
    MERGES,
    ROTATIONS,
    SAVINGS,
    STRANGERS,
    WIDE,
    WORDS,
)
from studies.lines.words import section as words
from studies.sections.paragraphs import table

__all__ = ["COMMAND", "TITLE", "claims", "section"]

TITLE: Final = "Lines of trained networks"
COMMAND: Final = "python -m studies lines"

_INTRODUCTION: Final = """\
From which model does each tensor come? Small networks are trained on this repository's texts,
scikit-learn's digits and sounds that are made, then changed as hubs change them; the lines of each
are looked for in its base. A stranger has the same architecture, data and order of work, and other
seeds. Weights stay in `.studies/`, so each network is trained once. Digits and sounds give the same
weights again; another version of the repository has other texts, and so other weights. Of a later
one all was made anew: nearly the same shares, but one wrong word of 1,742, where none is
wrong below: word vectors with noise of .05 sigma in 16 bits were called changed.
"""
_RECIPES: Final = """\
Light: 20 steps at a tenth of the base's rate on other data; fine-tune: 60 at .3 of it; heavy: 200
at the same rate. Same seed: the base's initial weights and data in another order, as many steps.
LoRA: rank 8 on all linear layers, 50 steps at twice the rate, merged. A cell has the share of lines
that are found by all keys; in brackets, how many of the tensors have a source by default settings,
where not all have.
"""
_OF_LLAMA: Final = """\
The second column was measured before the product was, by other code on other texts. A mixture, the
narrower stream and the initial weights are of this architecture alone.
"""
_OF_HUB: Final = """\
Two LLaMA-like families, trained apart on the same data: what was trained of each, and five of these
models in 27 guises; merges, and layers of two. A pair is kin where they have a family in common.
All fingerprints are made by default settings, and P is of 1.3 lambda.
"""
_OF_FOLLOWED: Final = """\
`python -m tests.soak.kin --write` lets a service follow this hub by one source with default
settings, and kills it twice meanwhile. A third of the models declare what they were made of, a
third a stranger, and the others nothing. Then its answers are counted, and what its report says. Of
what was trained, rounded or made noisy the word is `changed`; of all else that is less than could
be said. A base that nobody declares is found where the report names an older model of its family,
and false where that is a stranger, or younger, or of a model that declares its own base.
"""
_OF_MERGES: Final = """\
The share of the first of two models in their merge, as lines tell it; the two distances from the
merge to them, of the distance between them; and whether it is called an average.
"""
_OF_STRANGERS: Final = """\
All pairs of networks of two seeds, whatever their architectures: the keys that they have in common,
and lambda, what chance explains. Networks of one seed are shown apart, since two architectures with
the same first layers begin with the same values there.
"""
_OF_OTHERS: Final = """\
What was measured before the product was of eight architectures, by other code, sizes and texts, and
with heavy training as long as the base's: so columns of much training may differ. First then, then
here.
"""
_MAIN: Final = ("light", "fine-tune", "heavy", "LoRA", "same seed, other order")
_ROUNDED: Final = ("Q8_0", "Q4_0", "nf4", "50% zeros", "80% zeros", "90% zeros")
_THEN: Final[dict[str, tuple[float, ...]]] = {
    "BERT-like": (0.86, 0.55, 0.12, 0.03, 0.96, 0.48, 0.29, 0.73, 0.44, 0.35),
    "GPT-2": (0.88, 0.45, 0.06, 0.02, 0.96, 0.48, 0.27, 0.82, 0.48, 0.38),
    "T5-like": (0.98, 0.88, 0.62, 0.53, 0.96, 0.50, 0.29, 0.91, 0.60, 0.47),
    "MoE": (0.95, 0.69, 0.20, 0.09, 0.96, 0.50, 0.29, 0.88, 0.58, 0.45),
    "ViT": (0.91, 0.49, 0.14, 0.25, 0.91, 0.13, 0.07, 0.63, 0.18, 0.17),
    "LSTM": (0.93, 0.60, 0.28, 0.27, 0.94, 0.34, 0.18, 0.75, 0.42, 0.36),
    "Mamba-like": (0.95, 0.72, 0.64, 0.54, 0.93, 0.32, 0.18, 0.82, 0.53, 0.45),
    "ResNet": (0.82, 0.15, 0.004, 0.01, 0.95, 0.41, 0.19, 0.87, 0.58, 0.44),
}
"""Shares of lines, in the order of the columns but LoRA's."""
_TOLD: Final = ("told", "distances", "average")
_COMPARED: Final = (*(kind for kind in _MAIN if kind != "LoRA"), *_ROUNDED)
_SHARDS: Final = ("shard 1 of 2", "shard 2 of 2", *(f"shard {i} of 4" for i in (1, 2, 3, 4)))


def section(cells: Mapping[str, Figures]) -> Iterator[str]:
    """Paragraphs and tables of the cells that there are."""
    own = {name: cells[name] for name in ARCHITECTURES if name in cells}
    yield _INTRODUCTION
    if own:
        yield table(
            ("architecture", "what it is"), [(name, ARCHITECTURES[name].about) for name in own]
        )
        yield "## Trained on, and from the same seed"
        yield _RECIPES
        yield table(("architecture", *_MAIN), _rows(own, _MAIN))
        yield "## Rounded and pruned"
        yield table(("architecture", *_ROUNDED), _rows(own, _ROUNDED))
        yield "## Tensor-parallel shards"
        yield table(("architecture", *_SHARDS), _rows(own, _SHARDS))
        yield "## Other sizes and layouts"
        yield table(("architecture", "made of it"), [*_others(own)])
        yield "## Scales"
        yield table(("scale", "tensors", "found"), [*_scales(own)])
        yield _placed(own)
    if LLAMA in own:
        yield "## Beside the first measurement"
        yield _OF_LLAMA
        yield table(
            (LLAMA, "then", "here"),
            [(k, f"{then:.2f}", _share(own[LLAMA][k])) for k, then in EXPECTED.items()],
        )
    compared = [*_compared(own)]
    if compared:
        yield _OF_OTHERS
        yield table(("architecture", *_COMPARED), compared)
    yield from _all(cells, own)


def claims(cells: Mapping[str, Figures]) -> Iterator[str]:
    """What lines do not find, and of whom."""
    heavy = [
        f"{row['found']:.0f} of {row['tensors']:.0f} in {name}"
        for name, derivative, row in derivatives(cells)
        if derivative == "heavy" and row["found"] < row["tensors"]
    ]
    if heavy:
        least = min(row["lines"] for _, kind, row in derivatives(cells) if kind == "heavy")
        yield (
            "**Not every tensor is found after 200 steps at the base's rate**: by default settings "
            f"{', '.join(heavy)}, of small networks of which down to {least:.1%} of lines are left."
        )
    short = [
        f"{row['tensors at 1']:.0f} of {cells[name]['Q8_0']['tensors at 1']:.0f} in {name}"
        for name, kind, row in derivatives(cells)
        if kind == "shard 1 of 4" and row["tensors at 1"] < cells[name]["Q8_0"]["tensors at 1"]
    ]
    if short:
        yield (
            "**A quarter of a small matrix has no lines**, since a side is below 64: of tensors of "
            f"one shard of four are compared {', '.join(short)}."
        )
    twins = {
        name: (figures["same seed, other order"]["lines"], figures["heavy"]["lines"])
        for name, figures in cells.items()
        if "same seed, other order" in figures
    }
    nearer = [name for name, (twin, heavy) in twins.items() if twin > heavy]
    if twins:
        least, most = min(t for t, _ in twins.values()), max(t for t, _ in twins.values())
        yield (
            "**Equal lines may mean the same random seed**: networks of one seed, which saw the "
            f"same data in another order, have {least:.0%} to {most:.0%} of their lines in common, "
            f"and are nearer than a heavily trained child in {len(nearer)} of {len(twins)} "
            "architectures."
        )


def _all(cells: Mapping[str, Figures], own: Mapping[str, Figures]) -> Iterator[str]:
    if HUB in cells:
        yield "## A hub"
        yield _OF_HUB
        limits = {k: row for k, row in cells[HUB].items() if k.startswith("P below")}
        yield table(
            ("kin if", *next(iter(limits.values()))),
            [(k, *map(_number, row.values())) for k, row in limits.items()],
        )
        counts = cells[HUB]["pairs"] | cells[HUB]["answers"]
        yield table(("of the hub", "seen"), [(k, _number(v)) for k, v in counts.items()])
    if FOLLOWED in cells:
        yield _OF_FOLLOWED
        answers, tables = cells[FOLLOWED]["answers"], dict(cells[FOLLOWED])
        del tables["answers"]
        yield table(("of the followed hub", "seen"), [(k, _number(v)) for k, v in answers.items()])
        rows = [(what, *map(_number, row.values())) for what, row in tables.items()]
        yield table(("in its report", "found", "of", "false"), rows)
    if MERGES in cells:
        yield "## Merges"
        yield _OF_MERGES
        yield table(
            ("merge", "share", *_TOLD, *(f"{column} by all keys" for column in _TOLD)),
            [_merge(name, row) for name, row in cells[MERGES].items()],
        )
    if STRANGERS in cells:
        yield "## Strangers"
        yield _OF_STRANGERS
        rows = [(k, *map(_number, row.values())) for k, row in cells[STRANGERS].items()]
        yield table(("", *next(iter(cells[STRANGERS].values()))), rows)
        own_strangers = [(name, figures["stranger"]) for name, figures in own.items()]
        yield table(
            ("two seeds of", "keys", "lambda", "of"),
            [(name, *map(_number, row.values())) for name, row in own_strangers],
        )

    for name, title, shown in (
        (WIDE, "## Wide lines", wide.section),
        (ROTATIONS, "## Rotated streams", rotations.section),
        (WORDS, "## In words of hubs", words.section),
        (SAVINGS, "## What storing differences saves", savings.section),
        (HIDING, "## Who hides, and who forges", hiding.section),
    ):
        if name in cells:
            yield title
            yield from shown(cells[name])


def _rows(own: Mapping[str, Figures], columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, figures in own.items():
        yield name, *(_cell(figures[c]) if c in figures else "" for c in columns)


def _cell(row: Mapping[str, float]) -> str:
    if not row["tensors"]:
        return "none comparable"
    missed = row["found"] < row["tensors"]
    brackets = f" ({row['found']:.0f} of {row['tensors']:.0f})" if missed else ""
    return _share(row) + brackets


def _share(row: Mapping[str, float]) -> str:
    return f"{row['lines']:.2f}" if row["lines"] >= 0.095 else f"{row['lines']:.3f}"


def _compared(own: Mapping[str, Figures]) -> Iterator[tuple[str, ...]]:
    for name, then in _THEN.items():
        if name in own:
            here = [_share(own[name][kind]) for kind in _COMPARED]
            yield name, *(f"{a:.2g}, {b}" for a, b in zip(then, here, strict=True))


def _others(own: Mapping[str, Figures]) -> Iterator[tuple[str, str]]:
    for name, figures in own.items():
        left = [
            f"{derivative} {_cell(row)}"
            for derivative, row in figures.items()
            if "wrong" in row
            and derivative not in (*_MAIN, *_ROUNDED, *_SHARDS)
            and not (name == LLAMA and derivative in EXPECTED)
        ]
        yield name, "; ".join(left)


def _scales(own: Mapping[str, Figures]) -> Iterator[tuple[str, ...]]:
    rows = [row for _, _, row in derivatives(own)]
    for title, name in (("", "default"), *((f" at {s}", f"{s}") for s in (1, 8, 32))):
        sought, found = (
            sum(row[f"{kind}{title}"] for row in rows) for kind in ("tensors", "found")
        )
        yield name, f"{sought:,.0f}", f"{found:,.0f}"


def _placed(own: Mapping[str, Figures]) -> str:
    rows = [*derivatives(own)]
    wrong = sum(row["wrong"] for *_, row in rows)
    beside = sum(row["beside"] for *_, row in rows)
    of = sorted({name for name, _, row in rows if row["beside"]})
    others = f", all of {', '.join(of)}" if of else ""
    return (
        f"At these four together, the best source of {wrong:.0f} tensors is at a wrong place or a "
        f"stranger's; {beside:.0f} have another one beside the right one{others}, since two "
        "tensors of the base itself have lines in common."
        if beside
        else f"At these four together, {wrong:.0f} tensors have a source at a wrong place."
    )


def _merge(name: str, row: Mapping[str, float]) -> tuple[str, ...]:
    told = [
        (f"{row[f'told{by}']:.3f}", f"{row[f'stretch{by}']:.3f}", _said(row[f"average{by}"]))
        if f"told{by}" in row
        else ("too few lines", "", "")
        for by in ("", " by all keys")
    ]
    return name, f"{row['share']}", *told[0], *told[1]


def _said(average: float) -> str:
    return "yes" if average else "no"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}"
